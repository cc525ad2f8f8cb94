"""What handlers say of attempts that they accepted: the end, and signs of life before it."""

from __future__ import annotations

from collections.abc import Callable

import apsw

from onbeat.store.rows import storable_text
from onbeat.store.sqlite.endings import accept, read_live
from onbeat.store.sqlite.finishes import DecideFinish, finish_held, refuse
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import Completion, Finish, Finished, FinishResult, LeaseStatus, LiveRun, Progress
from onbeat.store.verdicts import completed_outcome, is_handlers

_QUERIES = load_queries("leases")


def complete(connection: apsw.Connection, item: Completion, *, now: int, decide: DecideFinish, slots: int) -> Finished:
    """The end of the work."""
    live = read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not is_handlers(live, item.token):
        return refuse(connection, item.key, live, tokens=(item.token, item.token), slots=slots)
    outcome = completed_outcome(item, live.run, now=now)
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
    if live is None or not is_handlers(live, item.token):
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
