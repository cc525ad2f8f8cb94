"""/v1/runs:bulk: one action on every run that a filter finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import AnswerOnce, problems
from onbeat.api.auth import RunsWriter
from onbeat.api.bulk import bulk_answer
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.runs import find_job_id
from onbeat.api.schemas.bulk import BulkCountView, BulkDoneView, BulkRunsBody, check_filter
from onbeat.domain.errors import RequestError
from onbeat.domain.ids import format_run_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.states import LIVE, REVIVABLE, RunState
from onbeat.services.runs import REPLAYED
from onbeat.store.values import Page, RunFilter, RunView

router = APIRouter(prefix="/v1", tags=["runs"], route_class=EdgeRoute)

KIND: Final = "runs:bulk"

STATES_MEANT: Final[dict[Literal["cancel", "retry"], frozenset[RunState]]] = {
    "cancel": LIVE,
    "retry": REPLAYED,
}
"""Where the filter names no state."""


@router.post(
    "/runs:bulk",
    response_model=BulkDoneView | BulkCountView,
    responses=problems(404, 409, 422),
    summary="One action on every run that a filter finds",
)
async def bulk_runs(request: Request, body: BulkRunsBody, principal: RunsWriter, once: AnswerOnce) -> Response:
    """Each run by itself. `cancel`: newest planned instant first; one that ends meanwhile is refused (`run_terminal`).
    `retry`: oldest first; they start one after the other at `recovery_per_s`, behind live runs.
    """
    check_filter(body)
    context = context_of(request)
    where, namespace = body.filter, principal.namespace
    chosen = RunFilter(
        job_id=None if where.job is None else await find_job_id(context, principal, where.job),
        states=_states(body),
        late=where.late,
        scheduled_from=None
        if where.scheduled_from is None
        else parse_instant(where.scheduled_from, field="filter.from"),
        scheduled_to=None if where.scheduled_to is None else parse_instant(where.scheduled_to, field="filter.to"),
    )

    is_retry = body.action == "retry"

    async def find(page: Page) -> Sequence[RunView]:
        look = context.runs.find_revivable if is_retry else context.runs.find
        return await look(chosen, page, namespace=namespace)

    async def act(run: RunView) -> bool:
        if is_retry:
            return await context.runs.replay(run.key)
        was_so = run.cancel_requested or run.state is RunState.CANCELLED
        await context.runs.cancel(run.key)
        return not was_so

    async def produce() -> Response:
        return await bulk_answer(
            body,
            find,
            act,
            kind=f"{KIND}:{body.action}",
            place=lambda run: (run.key.scheduled_at, run.key.job_id),
            name=lambda run: format_run_id(run.key),
        )

    return await once(produce)


def _states(body: BulkRunsBody) -> frozenset[RunState]:
    """Raises RequestError for states that cannot be brought back."""
    states = frozenset(RunState(name) for name in body.filter.state or ()) or STATES_MEANT[body.action]
    if body.action == "retry" and not states <= REVIVABLE:
        raise RequestError(
            f"runs that are {min(states - REVIVABLE)} cannot be brought back",
            field="filter.state",
            remedy=f"leave it out, or name of {', '.join(sorted(REVIVABLE))}",
        )
    return states
