"""/v1/retries:preview: when the attempts of a failing run would start."""

from __future__ import annotations

from fastapi import APIRouter, Response

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import JobsReader
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.retries import LadderBody, LadderView, read_retry, view_ladder
from onbeat.domain.backoff import check_retry, preview_ladder

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=EdgeRoute)


@router.post(
    "/retries:preview", response_model=LadderView, responses=problems(422), summary="Preview the attempts of a run"
)
async def preview_retries(body: LadderBody, _principal: JobsReader) -> Response:
    """From the earliest to the latest start of each attempt: by the function that plans the waits."""
    policy = read_retry(body.retry)
    check_retry(policy)
    return json_answer(view_ladder(preview_ladder(policy, timeout_s=body.timeout_s)))
