"""/v1/jobs:batch: many jobs in one call, each judged by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pydantic
from fastapi import APIRouter, Request, Response

from onbeat.api.answers import AnswerOnce, json_answer, problems
from onbeat.api.auth import JobsWriter
from onbeat.api.context import ApiContext, context_of
from onbeat.api.problems import field_problems, refusal_of_fields, response_for
from onbeat.api.route import BulkRoute
from onbeat.api.schemas.job_actions import BatchBody, BatchView
from onbeat.api.schemas.job_views import refer_to_job
from onbeat.api.schemas.jobs import JobBody, read_draft
from onbeat.domain.errors import OnbeatError
from onbeat.services.job_rules import JobDraft
from onbeat.store.values import StoredJob

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=BulkRoute)

CHUNK: Final = 200
"""Jobs per transaction: some 20 ms, so that dispatch and heartbeats in this process are not held up by a batch."""

Item = dict[str, Any]


@router.post("/jobs:batch", response_model=BatchView, responses=problems(409, 422), summary="Create many jobs")
async def create_jobs(request: Request, body: BatchBody, principal: JobsWriter, once: AnswerOnce) -> Response:
    """Not all or nothing: what was saved before a failure of the server stays. The same batch sent again under its
    Idempotency-Key finds it; without one, jobs with a `key` of their own are answered with `key_taken`.
    """

    async def produce() -> Response:
        items: list[Item] = []
        ids = once.job_ids(len(body.jobs))
        for start in range(0, len(body.jobs), CHUNK):
            part = slice(start, start + CHUNK)
            items += await _create(
                context_of(request), body.jobs[part], ids and ids[part], namespace=principal.namespace
            )
            await asyncio.sleep(0)
        created = sum("job" in item for item in items)
        return json_answer({"created": created, "refused": len(items) - created, "items": items})

    return await once(produce)


async def _create(
    context: ApiContext, values: Sequence[Any], ids: Sequence[int] | None, *, namespace: str
) -> list[Item]:
    read = [_read(value) for value in values]
    drafts = {place: draft for place, draft in enumerate(read) if isinstance(draft, JobDraft)}
    answers = await context.jobs.create_many(
        list(drafts.values()), namespace=namespace, ids=ids and [ids[place] for place in drafts]
    )
    saved = dict(zip(drafts, answers, strict=True))
    return [draft if isinstance(draft, dict) else _item(saved[place]) for place, draft in enumerate(read)]


def _read(value: Any) -> JobDraft | Item:
    """The draft, or the item that refuses it."""
    try:
        return read_draft(JobBody.model_validate(value))
    except pydantic.ValidationError as error:
        return _refused(refusal_of_fields(field_problems(error.errors())))
    except OnbeatError as error:
        return _item(error)


def _item(answer: StoredJob | OnbeatError) -> Item:
    if isinstance(answer, OnbeatError):
        return _refused(response_for(answer))
    return {"status": 201, "job": refer_to_job(answer)}


def _refused(response: Response) -> Item:
    return {"status": response.status_code, "error": msgspec.Raw(bytes(response.body))}
