"""/v1/runs: what became of fires."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import RunsReader, RunsWriter
from onbeat.api.context import ApiContext, context_of
from onbeat.api.pages import Cursor, Limit, encode_cursor, read_page
from onbeat.api.schemas.runs import AttemptList, RunPage, RunStateName, RunView, view_attempt, view_run
from onbeat.domain.errors import JobNotFound, RequestError, RunNotFound
from onbeat.domain.ids import RunKey, parse_job_id, parse_run_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.states import RunState
from onbeat.services.api_keys import Principal
from onbeat.store.values import RunFilter

router = APIRouter(prefix="/v1/runs", tags=["runs"])

OWN_LISTS = "runs"


class QueryRefused(RequestError):
    """A query parameter is not acceptable."""

    code = "query_invalid"


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
    job: Annotated[str | None, Query(max_length=64, description="Id of a job")] = None,
    state: Annotated[list[RunStateName] | None, Query(description="May be given several times")] = None,
    late: Annotated[bool | None, Query()] = None,
    scheduled_from: Annotated[str | None, Query(alias="from", max_length=64, description="RFC 3339, inclusive")] = None,
    scheduled_to: Annotated[str | None, Query(alias="to", max_length=64, description="RFC 3339, exclusive")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    context = context_of(request)
    job_id = None if job is None else parse_job_id(job)
    if job_id is not None and await context.jobs.namespace_of(job_id) != principal.namespace:
        raise JobNotFound
    where = RunFilter(
        job_id=job_id,
        states=frozenset(RunState(name) for name in state or ()),
        late=late,
        scheduled_from=_read_instant(scheduled_from, "from"),
        scheduled_to=_read_instant(scheduled_to, "to"),
    )
    runs = await context.runs.find(where, read_page(limit, cursor, kind=OWN_LISTS))
    last = runs[-1] if len(runs) == limit else None
    next_cursor = None if last is None else encode_cursor((last.key.scheduled_at, last.key.job_id), kind=OWN_LISTS)
    return json_answer({"items": [view_run(run) for run in runs], "next_cursor": next_cursor})


@router.get("/{run_id}", response_model=RunView, responses=problems(404), summary="One run")
async def get_run(request: Request, run_id: str, principal: RunsReader) -> Response:
    context = context_of(request)
    return json_answer(view_run(await context.runs.get(await _own(context, principal, run_id))))


@router.get("/{run_id}/attempts", response_model=AttemptList, responses=problems(404), summary="Its finished attempts")
async def list_attempts(request: Request, run_id: str, principal: RunsReader) -> Response:
    context = context_of(request)
    attempts = await context.runs.attempts(await _own(context, principal, run_id))
    return json_answer({"items": [view_attempt(attempt) for attempt in attempts]})


@router.post("/{run_id}/cancel", response_model=RunView, responses=problems(404, 409), summary="Cancel a run")
async def cancel_run(request: Request, run_id: str, principal: RunsWriter) -> Response:
    context = context_of(request)
    return json_answer(view_run(await context.runs.cancel(await _own(context, principal, run_id))))


@router.post("/{run_id}/retry", response_model=RunView, responses=problems(404, 409), summary="Run it again, same id")
async def retry_run(request: Request, run_id: str, principal: RunsWriter) -> Response:
    context = context_of(request)
    return json_answer(view_run(await context.runs.retry(await _own(context, principal, run_id))))


def _read_instant(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    try:
        return parse_instant(text, field=field)
    except RequestError as error:
        raise QueryRefused(error.detail, field=field, remedy=error.remedy) from None
