"""/v1/runs:bulk: one action on every run that a filter finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import AnswerOnce, problems
from onbeat.api.auth import RunsWriter
from onbeat.api.bulk import bulk_answer
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.runs import find_job_id
from onbeat.api.schemas.bulk import BulkCountView, BulkDoneView, BulkRunsBody, check_filter
from onbeat.domain.ids import format_run_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.states import RunState
from onbeat.store.values import Page, RunFilter, RunView

router = APIRouter(prefix="/v1", tags=["runs"], route_class=EdgeRoute)

KIND: Final = "runs:bulk"
NOT_ENDED: Final = frozenset({RunState.PENDING, RunState.RUNNING})


@router.post(
    "/runs:bulk",
    response_model=BulkDoneView | BulkCountView,
    responses=problems(404, 409, 422),
    summary="One action on every run that a filter finds",
)
async def bulk_runs(request: Request, body: BulkRunsBody, principal: RunsWriter, once: AnswerOnce) -> Response:
    """Newest planned instant first, each run by itself. Runs that end meanwhile are refused as `run_terminal`."""
    check_filter(body)
    context = context_of(request)
    where, namespace = body.filter, principal.namespace
    chosen = RunFilter(
        job_id=None if where.job is None else await find_job_id(context, principal, where.job),
        states=frozenset(RunState(name) for name in where.state or ()) or NOT_ENDED,
        late=where.late,
        scheduled_from=None
        if where.scheduled_from is None
        else parse_instant(where.scheduled_from, field="filter.from"),
        scheduled_to=None if where.scheduled_to is None else parse_instant(where.scheduled_to, field="filter.to"),
    )

    async def find(page: Page) -> Sequence[RunView]:
        return await context.runs.find(chosen, page, namespace=namespace)

    async def act(run: RunView) -> bool:
        was_so = run.cancel_requested or run.state is RunState.CANCELLED
        await context.runs.cancel(run.key)
        return not was_so

    async def produce() -> Response:
        return await bulk_answer(
            body,
            find,
            act,
            kind=KIND,
            place=lambda run: (run.key.scheduled_at, run.key.job_id),
            name=lambda run: format_run_id(run.key),
        )

    return await once(produce)
