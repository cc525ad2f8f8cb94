"""/v1/runs: what became of fires."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from onbeat.api.answers import AnswerOnce, json_answer, problems
from onbeat.api.auth import RunsReader, RunsWriter
from onbeat.api.context import ApiContext, context_of
from onbeat.api.pages import Cursor, Limit, page_answer, read_page
from onbeat.api.route import EdgeRoute, QueryRefused
from onbeat.api.schemas.job_actions import NothingBody
from onbeat.api.schemas.runs import (
    AttemptList,
    RunPage,
    RunStateName,
    RunView,
    view_attempt,
    view_response,
    view_run,
)
from onbeat.domain.errors import IdInvalid, JobNotFound, RequestError, RunNotFound
from onbeat.domain.ids import RunKey, parse_job_id, parse_run_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.states import RunState
from onbeat.services.api_keys import Principal
from onbeat.store.values import RunFilter
from onbeat.store.values import RunView as StoredRun

router = APIRouter(prefix="/v1/runs", tags=["runs"], route_class=EdgeRoute)

LISTS: Final = "runs"
NOTHING = NothingBody()


async def _own(context: ApiContext, principal: Principal, run_id: str) -> RunKey:
    """The run's key, if its job lies in the caller's namespace. Raises RunNotFound for foreign ones too."""
    key = parse_run_id(run_id)
    if await context.jobs.namespace_of(key.job_id) != principal.namespace:
        raise RunNotFound
    return key


@router.get("", response_model=RunPage, responses=problems(404), summary="List runs, newest planned instant first")
async def list_runs(
    request: Request,
    principal: RunsReader,
    job: Annotated[str | None, Query(max_length=128, description="Id or key of a job")] = None,
    state: Annotated[list[RunStateName] | None, Query(description="May be given several times")] = None,
    late: Annotated[bool | None, Query()] = None,
    scheduled_from: Annotated[str | None, Query(alias="from", max_length=64, description="RFC 3339, inclusive")] = None,
    scheduled_to: Annotated[str | None, Query(alias="to", max_length=64, description="RFC 3339, exclusive")] = None,
    response: Annotated[bool, Query(description="Show what the last attempt of each was answered")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Runs of deleted jobs are listed too, while they are kept."""
    context = context_of(request)
    where = RunFilter(
        job_id=None if job is None else await find_job_id(context, principal, job),
        states=frozenset(RunState(name) for name in state or ()),
        late=late,
        scheduled_from=_read_instant(scheduled_from, "from"),
        scheduled_to=_read_instant(scheduled_to, "to"),
    )
    runs = await context.runs.find(where, read_page(limit, cursor, kind=LISTS), namespace=principal.namespace)
    responses = await context.runs.last_responses(runs[:limit]) if response else {}

    def view(run: StoredRun) -> dict[str, Any]:
        shown = {"response": view_response(responses.get(run.key))} if response else {}
        return view_run(run) | shown

    return page_answer(
        runs, limit=limit, kind=LISTS, view=view, place=lambda run: (run.key.scheduled_at, run.key.job_id)
    )


@router.get("/{run_id}", response_model=RunView, responses=problems(404), summary="One run")
async def get_run(request: Request, run_id: str, principal: RunsReader) -> Response:
    context = context_of(request)
    return json_answer(view_run(await context.runs.get(await _own(context, principal, run_id))))


@router.get("/{run_id}/attempts", response_model=AttemptList, responses=problems(404), summary="Its finished attempts")
async def list_attempts(request: Request, run_id: str, principal: RunsReader) -> Response:
    context = context_of(request)
    attempts = await context.runs.attempts(await _own(context, principal, run_id))
    return json_answer({"items": [view_attempt(attempt) for attempt in attempts]})


@router.post("/{run_id}/cancel", response_model=RunView, responses=problems(404, 409, 422), summary="Cancel a run")
async def cancel_run(
    request: Request, run_id: str, principal: RunsWriter, once: AnswerOnce, _body: NothingBody = NOTHING
) -> Response:
    """A run that waits ends at once; one that runs is asked to stop, and `cancel_requested` is true meanwhile."""
    context = context_of(request)
    key = await _own(context, principal, run_id)

    async def produce() -> Response:
        return json_answer(view_run(await context.runs.cancel(key)))

    return await once(produce)


@router.post("/{run_id}/retry", response_model=RunView, responses=problems(404, 409, 422), summary="Run it again")
async def retry_run(
    request: Request, run_id: str, principal: RunsWriter, once: AnswerOnce, _body: NothingBody = NOTHING
) -> Response:
    """Brings a run that ended without success back under its own id, so that receivers can tell it is the same. Refused
    while its job is paused, and for good once that is deleted.
    """
    context = context_of(request)
    key = await _own(context, principal, run_id)

    async def produce() -> Response:
        return json_answer(view_run(await context.runs.retry(key)))

    return await once(produce)


async def find_job_id(context: ApiContext, principal: Principal, job: str) -> int:
    """The number of a job given by id or by key. Raises JobNotFound: for foreign ones too."""
    try:
        job_id = parse_job_id(job)
    except IdInvalid:
        found = await context.jobs.get_by_key(principal.namespace, job)
        if found is None:
            raise JobNotFound from None
        return found.job_id
    if await context.jobs.namespace_of(job_id) != principal.namespace:
        raise JobNotFound
    return job_id


def _read_instant(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant(text, field=field)
    except RequestError as error:
        raise QueryRefused(error.detail, field=field, remedy=error.remedy) from None
