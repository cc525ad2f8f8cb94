"""What people do to a run: cancel it, bring it back."""

from __future__ import annotations

import asyncpg

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState, may_follow
from onbeat.store.postgres.after_finish import withhold_clocks
from onbeat.store.postgres.database import Connection, LostRaceError
from onbeat.store.postgres.endings import end_as_it_stands, key_columns, read_live
from onbeat.store.postgres.lanes import free_lane, pass_lanes_on
from onbeat.store.postgres.locks import lock_job, lock_lanes
from onbeat.store.postgres.lookups import read_ended, read_run
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import RunView

_FIRES = load_queries("fires")
_LEASES = load_queries("leases")


async def cancel(connection: Connection, key: RunKey, *, now: int, slots: int) -> RunState | None:
    """End a pending run, ask a running one to stop."""
    live = await read_live(connection, key.job_id, key.scheduled_at, slots=slots)
    if live is None:
        ended = await _read_not_live(connection, key, slots=slots)
        return None if ended is None else ended.state
    if live.run.state is RunState.RUNNING:
        await connection.execute(_FIRES["stop_runs"], now, *key_columns([key], slots=slots))
        return RunState.RUNNING
    await end_as_it_stands(connection, live, state=RunState.CANCELLED, now=now)
    await pass_lanes_on(connection, [key.job_id], slots=slots, now=now)
    return RunState.CANCELLED


async def revive(
    connection: Connection, key: RunKey, *, now: int, ready_at: int, late_after: int, priority: int, slots: int
) -> RunState | None:
    """Move an ended run back to live. Runs of deleted jobs stay where they are: nobody would start them."""
    slot = key.job_id % slots
    job = await lock_job(connection, key.job_id, slot=slot)
    live = await read_live(connection, key.job_id, key.scheduled_at, slots=slots)
    if live is not None:
        return live.run.state
    ended = await _read_not_live(connection, key, slots=slots)
    if ended is None:
        return None
    if not may_follow(ended.state, RunState.PENDING) or job is None or job.state is JobState.DELETED:
        return ended.state
    # Whoever ends a run that holds a lane is waited for, or finds this one in line.
    await lock_lanes(connection, [key.job_id], slots=slots)
    lane = await free_lane(connection, key.job_id, slot=slot)
    try:
        await connection.execute(
            _LEASES["revive_run"], slot, key.job_id, key.scheduled_at, lane, ready_at, late_after, priority, now
        )
    except asyncpg.UniqueViolationError as error:
        raise LostRaceError("the lane was taken meanwhile") from error
    await withhold_clocks(connection, [key.job_id], slots=slots, now=now)
    return RunState.PENDING


async def _read_not_live(connection: Connection, key: RunKey, *, slots: int) -> RunView | None:
    """The ended run. Raises LostRaceError where it has come back to life since it was looked for."""
    ended = await read_ended(connection, key, slots=slots)
    if ended is None and await read_run(connection, key, slots=slots) is not None:
        raise LostRaceError("the run came back meanwhile")
    return ended
