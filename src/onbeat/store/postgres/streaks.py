"""For how long jobs have been failing. Only jobs with a policy that asks for it have a row here, while they fail.

Whoever counts on holds the row, or, where there is none yet, the job's: two failures at a time count as two.
"""

from __future__ import annotations

from collections.abc import Sequence

from onbeat.domain.auto_pause import Streak
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries

_QUERIES = load_queries("streaks")


async def lock_streaks(connection: Connection, jobs: Sequence[tuple[int, int]]) -> dict[int, Streak]:
    """The streaks of these jobs, `(slot, job_id)`, that have one, by job."""
    rows = await connection.fetch(_QUERIES["lock_streaks"], *columns(jobs, count=2))
    return {row[0]: Streak(row[1], row[2]) for row in rows}


async def keep_streak(connection: Connection, job_id: int, streak: Streak, *, slot: int) -> None:
    """Write it over what is there; a deleted job gets none."""
    await connection.execute(_QUERIES["put_streak"], streak.failures, streak.failing_since, slot, job_id)


async def end_streaks(connection: Connection, job_ids: Sequence[int], *, slots: int) -> None:
    """Forget those of many jobs, of which hardly any has one."""
    if job_ids and await connection.fetchval(_QUERIES["any_streak"]) is not None:
        await connection.execute(
            _QUERIES["drop_streaks"], *columns(sorted({(job_id % slots, job_id) for job_id in job_ids}), count=2)
        )
