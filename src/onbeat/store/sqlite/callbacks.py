"""What handlers say of attempts that they accepted: the end, and signs of life before it."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from onbeat.domain.callback import callback_token, tokens_match
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.store.sqlite.endings import LiveRow, accept, read_live
from onbeat.store.sqlite.finishes import DecideFinish, finish_held, refuse
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.rows import storable_text
from onbeat.store.values import Completion, Finish, Finished, FinishResult, LeaseStatus, LiveRun, Progress

_QUERIES = load_queries("leases")


def complete(connection: apsw.Connection, item: Completion, *, now: int, decide: DecideFinish, slots: int) -> Finished:
    """The end of the work."""
    live = read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not _is_handlers(live, item.token):
        return refuse(connection, item.key, live, tokens=(item.token, item.token), slots=slots)
    outcome = _outcome_of(item, live.run, now=now)
    if live.run.accepted_at is None:
        # The handler was quicker than its worker's word that it accepted: that word is taken as said.
        assert live.lease_token is not None
        accept(connection, live, token=live.lease_token, until=None, outcome=outcome, now=now)
    freed: list[int] = []
    finish = Finish(item.key, item.token, outcome)
    answer = finish_held(connection, live, finish, freed=freed, now=now, decide=decide, slots=slots)
    if freed:
        pass_lanes_on(connection, freed, slots=slots, now=now)
    return answer


def report(
    connection: apsw.Connection,
    item: Progress,
    *,
    now: int,
    decide: Callable[[LiveRun, str], int | None],
    slots: int,
) -> LeaseStatus:
    """A sign of life."""
    live = read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not _is_handlers(live, item.token):
        refused = refuse(connection, item.key, live, tokens=(item.token, item.token), slots=slots)
        has_ended = live is None and refused.result is not FinishResult.LEASE_LOST
        return LeaseStatus.RUN_TERMINAL if has_ended else LeaseStatus.LEASE_LOST
    if live.run.cancel_requested:
        return LeaseStatus.CANCEL
    if live.run.lease_until is None or live.run.lease_until < now:
        return LeaseStatus.LEASE_LOST
    definition = connection.execute(_QUERIES["definition_of_version"], (live.run.job_version, item.key.job_id)).get
    until = decide(live.run, definition)
    connection.execute(
        _QUERIES["report_progress"], (until, item.percent, storable_text(item.message), now, *live.key_columns)
    )
    return LeaseStatus.LIVE


def _is_handlers(live: LiveRow, token: bytes) -> bool:
    """Is this the token of the run's handler, whether its worker has said that it accepted or not?"""
    if live.run.accepted_at is not None:
        return tokens_match(live.lease_token, token)
    return live.lease_token is not None and tokens_match(callback_token(live.lease_token), token)


def _outcome_of(item: Completion, run: LiveRun, *, now: int) -> Outcome:
    started_at = now if run.attempt_started_at is None else run.attempt_started_at
    return Outcome(
        kind=OutcomeKind.SUCCEEDED if item.error is None else OutcomeKind.HANDLER,
        started_at=started_at,
        duration_us=max(now - started_at, 0),
        error=item.error,
        response=item.result,
    )
