"""What people do to a run: cancel it, bring it back."""

from __future__ import annotations

import apsw

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState, may_follow
from onbeat.store.sqlite.after_finish import withhold_clock
from onbeat.store.sqlite.endings import end_as_it_stands, read_live
from onbeat.store.sqlite.lanes import free_lane, pass_lanes_on
from onbeat.store.sqlite.lookups import read_ended
from onbeat.store.sqlite.queries import load_queries

_FIRES = load_queries("fires")
_LEASES = load_queries("leases")


def cancel(connection: apsw.Connection, key: RunKey, *, now: int, slots: int) -> RunState | None:
    """End a pending run, ask a running one to stop."""
    live = read_live(connection, key.job_id, key.scheduled_at, slots=slots)
    if live is None:
        ended = read_ended(connection, key, slots=slots)
        return None if ended is None else ended.state
    if live.run.state is RunState.RUNNING:
        connection.execute(_FIRES["stop_run"], live.key_columns)
        return RunState.RUNNING
    end_as_it_stands(connection, live, state=RunState.CANCELLED, now=now)
    pass_lanes_on(connection, [key.job_id], slots=slots, now=now)
    return RunState.CANCELLED


def revive(
    connection: apsw.Connection,
    key: RunKey,
    *,
    now: int,
    ready_at: int,
    late_after: int,
    priority: int,
    slots: int,
) -> RunState | None:
    """Move an ended run back to live. Runs of deleted jobs stay where they are: nobody would start them."""
    live = read_live(connection, key.job_id, key.scheduled_at, slots=slots)
    if live is not None:
        return live.run.state
    ended = read_ended(connection, key, slots=slots)
    if ended is None:
        return None
    job_state = connection.execute(_LEASES["job_state"], (key.job_id,)).get
    if not may_follow(ended.state, RunState.PENDING) or job_state in (None, JobState.DELETED):
        return ended.state
    slot = key.job_id % slots
    lane = free_lane(connection, key.job_id, slot=slot)
    revived = (lane, ready_at, late_after, priority, now, slot, key.job_id, key.scheduled_at)
    connection.execute(_LEASES["revive_run"], revived)
    connection.execute(_LEASES["delete_ended"], (slot, key.job_id, key.scheduled_at))
    withhold_clock(connection, key.job_id, slot=slot, now=now)
    return RunState.PENDING
