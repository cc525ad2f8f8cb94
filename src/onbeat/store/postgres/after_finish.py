"""Jobs whose clock is set by the end of their run. The rule: such a job, while active, has a clock or a live run.

Called wherever runs end (by `lanes.pass_lanes_on`), in the transaction in which they end, and wherever one is added.

Two transactions may each end one of a job's last two runs, or one end the last run while another adds one. Each of
them locks the job's row in after_finish once it has written, and looks afterwards: the one that gets the lock last sees
what all others did. A change of the job's state or rule locks its live runs first, so that their ends are over or wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from onbeat.domain.instants import next_whole_second
from onbeat.domain.states import JobState
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.job_states import NewState, set_job_states
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import AfterFinish

_QUERIES = load_queries("after_finish")


async def write_after_finish(connection: Connection, job_id: int, rule: AfterFinish | None, *, slot: int) -> None:
    """Note that a job is one of these, or no longer."""
    if rule is None:
        await connection.execute(_QUERIES["drop_after_finish"], slot, job_id)
    else:
        await connection.execute(_QUERIES["put_after_finish"], slot, job_id, rule.every_us, rule.until)


async def set_clocks_after(connection: Connection, job_ids: Iterable[int], *, slots: int, now: int) -> None:
    """Set the clock of those jobs that are such, active, and have neither a clock nor a live run any more."""
    such = await _lock_such(connection, job_ids, slots=slots)
    if such is None:
        return
    started: list[tuple[int, int, int]] = []
    completed: list[NewState] = []
    for job_id, every_us, until, recorded_until in await connection.fetch(_QUERIES["idle_after_finish"], *such):
        next_fire_at = max(next_whole_second(now + every_us), next_whole_second(recorded_until + 1))
        if until is None or next_fire_at <= until:
            started.append((job_id % slots, job_id, next_fire_at))
        else:
            completed.append(NewState(job_id, JobState.COMPLETED))
    if started:
        await connection.execute(_QUERIES["start_clocks"], *columns(started, count=3))
    if completed:
        await set_job_states(connection, completed, slots=slots, now=now)


async def withhold_clocks(connection: Connection, job_ids: Iterable[int], *, slots: int, now: int) -> None:
    """Take away the clocks of those jobs that are such and have a live run."""
    such = await _lock_such(connection, job_ids, slots=slots)
    if such is not None:
        await connection.execute(_QUERIES["withhold_clocks"], *such, now)


async def _lock_such(connection: Connection, job_ids: Iterable[int], *, slots: int) -> list[list[int]] | None:
    """Slots and ids of those jobs that are such, locked. None: no job is."""
    asked = {(job_id % slots, job_id) for job_id in job_ids}
    rows = await connection.fetch(_QUERIES["lock_after_finish"], *columns(asked, count=2))
    return columns([(row[0], row[1]) for row in rows], count=2) if rows else None
