"""/v1/jobs/{id}/…: pause, resume, trigger, next."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from onbeat.api.answers import AnswerOnce, etag, json_answer, problems
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import context_of
from onbeat.api.jobs import job_answer, own_job
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import moment
from onbeat.api.schemas.job_actions import NextView, PauseBody, PausedView, ResumeBody, ResumedView, TriggerBody
from onbeat.api.schemas.job_views import view_job
from onbeat.api.schemas.jobs import write_payload
from onbeat.api.schemas.kept_out import view_kept_out
from onbeat.api.schemas.runs import TriggeredView, view_run
from onbeat.domain.ids import format_job_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.webhook import check_text
from onbeat.services.pauses import check_until

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["jobs"], route_class=EdgeRoute)


@router.post("/pause", response_model=PausedView, responses=problems(404, 409, 422), summary="Pause a job")
async def pause_job(
    request: Request, job_id: str, principal: JobsWriter, once: AnswerOnce, body: PauseBody = PauseBody()
) -> Response:
    """No new run and no new attempt from now on; `last_possible_side_effect_at` bounds what runs already."""
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    cancels = body.running == "cancel"
    until = None if body.until is None else parse_instant(body.until, field="until")
    check_until(until, now=context.clock.now())

    async def produce() -> Response:
        paused = await context.jobs.pause(job.job_id, note=body.note, cancel=cancels, until=until)
        bound = await context.runs.side_effects_end_at(paused, asked_to_stop=cancels)
        view = {"job": view_job(paused), "last_possible_side_effect_at": moment(bound)}
        return json_answer(view, headers={"etag": etag(paused.version)})

    return await once(produce)


@router.post("/resume", response_model=ResumedView, responses=problems(404, 409, 422), summary="Resume a job")
async def resume_job(
    request: Request, job_id: str, principal: JobsWriter, once: AnswerOnce, body: ResumeBody = ResumeBody()
) -> Response:
    """Goes on at the next future instant. Instants of the pause are recorded as skipped; a backfill makes up for them.

    With `replay`, runs that failed before the pause come back first. On a job that goes on already it does nothing.
    """
    context = context_of(request)
    job = await own_job(context, principal, job_id)

    async def produce() -> Response:
        if body.replay == "none":
            return job_answer(await context.jobs.resume(job.job_id))
        resumed = await context.resumptions.resume(job.job_id)
        view = view_job(resumed.job) | {"replayed": {"count": resumed.replayed, "left": resumed.left}}
        return json_answer(view, headers={"etag": etag(resumed.job.version)})

    return await once(produce)


@router.post(
    "/trigger", status_code=201, response_model=TriggeredView, responses=problems(404, 409, 422), summary="Run it now"
)
async def trigger_job(
    request: Request, job_id: str, principal: JobsWriter, once: AnswerOnce, body: TriggerBody = TriggerBody()
) -> Response:
    """One run beside the schedule. It waits for a free lane unless it is forced, and for no blackout: see `hint`."""
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    payload = None if body.payload is None else write_payload(body.payload)
    check_text(payload, field="payload")

    async def produce() -> Response:
        view = view_run(await context.runs.trigger(job.job_id, payload=payload, force=body.force))
        blackout = context.almanac.blackout_at(context.clock.now(), namespace=job.namespace, tags=job.tags)
        if blackout is not None:
            view["hint"] = f"the blackout {blackout!r} holds back scheduled runs now; this one was asked for and runs"
        return json_answer(view, status=201, headers={"location": f"/v1/runs/{view['id']}"})

    return await once(produce)


@router.get("/next", response_model=NextView, responses=problems(404, 422), summary="Planned instants to come")
async def next_fires(
    request: Request,
    job_id: str,
    principal: JobsReader,
    count: Annotated[int, Query(ge=1, le=1_000)] = 5,
    explain: Annotated[bool, Query(description="Tell what calendars removed or moved, too")] = False,
) -> Response:
    """Computed by the function that the dispatcher uses."""
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    # A job without a clock plans nothing, also where its stored schedules could not be computed.
    fires = [] if job.next_fire_at is None else await context.jobs.next_fires(job, count=count)
    answer: dict[str, Any] = {"job_id": format_job_id(job.job_id), "fires": [moment(instant) for instant in fires]}
    if explain:
        answer["kept_out"] = view_kept_out(await context.jobs.kept_out(job, fires=fires))
    return json_answer(answer)
