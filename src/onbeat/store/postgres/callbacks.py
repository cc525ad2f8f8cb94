"""What handlers say of attempts that they accepted: the end, and signs of life before it."""

from __future__ import annotations

from collections.abc import Callable

from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.endings import accept, jobs_of_runs, read_live
from onbeat.store.postgres.finishes import DecideFinish, LockedJobs, finish_held, refuse
from onbeat.store.postgres.lanes import pass_lanes_on
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import storable_text
from onbeat.store.values import Completion, Finish, Finished, FinishResult, LeaseStatus, LiveRun, Progress
from onbeat.store.verdicts import completed_outcome, is_handlers

_QUERIES = load_queries("leases")


async def complete(
    connection: Connection, item: Completion, *, now: int, decide: DecideFinish, slots: int, locked: LockedJobs
) -> Finished:
    """The end of the work."""
    live = await read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not is_handlers(live, item.token):
        return await _refuse_one(connection, item, slots=slots)
    outcome = completed_outcome(item, live.run, now=now)
    if live.run.accepted_at is None:
        # The handler was quicker than its worker's word that it accepted: that word is taken as said.
        assert live.lease_token is not None
        await accept(connection, live, token=live.lease_token, until=None, outcome=outcome, now=now)
    freed: set[int] = set()
    finish = Finish(item.key, item.token, outcome)
    answers = await finish_held(
        connection, [(live, finish)], freed=freed, now=now, decide=decide, slots=slots, locked=locked
    )
    if freed:
        await pass_lanes_on(connection, freed, slots=slots, now=now)
    return answers[item.key]


async def report(
    connection: Connection, item: Progress, *, now: int, decide: Callable[[LiveRun, str], int | None], slots: int
) -> LeaseStatus:
    """A sign of life."""
    live = await read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not is_handlers(live, item.token):
        refused = await _refuse_one(connection, item, slots=slots)
        has_ended = live is None and refused.result is not FinishResult.LEASE_LOST
        return LeaseStatus.RUN_TERMINAL if has_ended else LeaseStatus.LEASE_LOST
    if live.run.cancel_requested:
        return LeaseStatus.CANCEL
    if live.run.lease_until is None or live.run.lease_until < now:
        return LeaseStatus.LEASE_LOST
    jobs = await jobs_of_runs(connection, [live])
    until = decide(live.run, jobs[item.key.job_id, live.run.job_version].definition)
    await connection.execute(
        _QUERIES["report_progress"], until, item.percent, storable_text(item.message), now, *live.key_columns
    )
    return LeaseStatus.LIVE


async def _refuse_one(connection: Connection, item: Completion | Progress, *, slots: int) -> Finished:
    return (await refuse(connection, [(item.key, (item.token, item.token))], slots=slots))[item.key]
