"""/v1/pause, /v1/resume, /v1/pauses: of a tag, or of everything."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import AnswerOnce, json_answer, problems
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import moment
from onbeat.api.schemas.pauses import (
    PausedManyView,
    PauseList,
    PauseManyBody,
    ResumedManyView,
    ResumeManyBody,
    tag_of,
    view_pause,
)
from onbeat.domain.instants import parse_instant

router = APIRouter(prefix="/v1", tags=["pauses"], route_class=EdgeRoute)


@router.post("/pause", response_model=PausedManyView, responses=problems(409, 422), summary="Pause many jobs")
async def pause_many(request: Request, body: PauseManyBody, principal: JobsWriter, once: AnswerOnce) -> Response:
    """Answered when the last job is paused. New jobs that it covers are paused too. Sent again, it goes on."""
    context = context_of(request)
    until = None if body.until is None else parse_instant(body.until, field="until")

    async def produce() -> Response:
        paused = await context.pauses.pause(
            principal.namespace, tag_of(body.scope), note=body.note, until=until, cancel=body.running == "cancel"
        )
        return json_answer(
            {
                "pause": view_pause(paused.pause),
                "jobs": paused.jobs,
                "last_possible_side_effect_at": moment(paused.side_effects_end_at),
            }
        )

    return await once(produce)


@router.post("/resume", response_model=ResumedManyView, responses=problems(409, 422), summary="End such a pause")
async def resume_many(request: Request, body: ResumeManyBody, principal: JobsWriter, once: AnswerOnce) -> Response:
    """Jobs that were paused one by one stay paused, and so do those that another pause covers."""
    context = context_of(request)

    async def produce() -> Response:
        return json_answer({"jobs": await context.pauses.resume(principal.namespace, tag_of(body.scope))})

    return await once(produce)


@router.get("/pauses", response_model=PauseList, responses=problems(), summary="Pauses of many jobs that hold")
async def list_pauses(request: Request, principal: JobsReader) -> Response:
    pauses = await context_of(request).pauses.find(principal.namespace)
    return json_answer({"items": [view_pause(pause) for pause in pauses]})
