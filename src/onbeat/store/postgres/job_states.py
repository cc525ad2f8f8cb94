"""The states of jobs: written together with the count of jobs per state."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onbeat.domain.states import JobState
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import storable_text

_QUERIES = load_queries("job_states")


class NewState(msgspec.Struct, frozen=True, gc=False):
    """The state that a job comes into, and why."""

    job_id: int
    state: JobState
    reason: str | None = None
    paused_by: str | None = None


async def set_job_states(
    connection: Connection,
    changes: Sequence[NewState],
    *,
    slots: int,
    now: int,
    raises_version: bool = False,
    paused_at: int | None = None,
) -> None:
    """What fires and answers do to jobs: completed, error, or paused by 410 Gone."""
    ordered = sorted(changes, key=lambda change: (change.job_id % slots, change.job_id))
    await connection.execute(
        _QUERIES["set_job_states"],
        [change.job_id % slots for change in ordered],
        [change.job_id for change in ordered],
        [change.state.value for change in ordered],
        [storable_text(change.reason) for change in ordered],
        [change.paused_by for change in ordered],
        int(raises_version),
        now,
        paused_at,
    )


async def count_jobs(connection: Connection, changes: Sequence[tuple[int, JobState, int]]) -> None:
    """Note that there are more or fewer jobs in a state: `(slot, state, how many more)`."""
    await connection.execute(
        _QUERIES["count_jobs"],
        [slot for slot, _state, _count in changes],
        [state.value for _slot, state, _count in changes],
        [count for _slot, _state, count in changes],
    )


async def drop_clocks(connection: Connection, job_ids: Sequence[int], *, slots: int) -> None:
    """Remove the clocks of these jobs."""
    await connection.execute(_QUERIES["drop_clocks"], [job_id % slots for job_id in job_ids], list(job_ids))
