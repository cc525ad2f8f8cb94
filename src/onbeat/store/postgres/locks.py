"""Locks on a job and on its lanes, and what was read under them. The order of locks is in the package's docstring."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection, LostRaceError
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import lane_hold, stored_job
from onbeat.store.values import LaneHold, StoredJob

_QUERIES = load_queries("locks")

Lanes = tuple[tuple[LaneHold, ...], int | None]
"""The lanes of a job that are held, and the newest scheduled instant that waits for one."""


async def lock_job(connection: Connection, job_id: int, *, slot: int) -> StoredJob | None:
    """The job as it stands, which nobody fires or changes until the transaction ends. None: there is no such job."""
    next_fire_at = await connection.fetchval(_QUERIES["lock_clock"], slot, job_id)
    row = await connection.fetchrow(_QUERIES["lock_job"], next_fire_at, slot, job_id)
    if row is None:
        return None
    if next_fire_at is None and await connection.fetchval(_QUERIES["clock_of"], slot, job_id) is not None:
        raise LostRaceError("the job got a clock while its row was waited for")
    return stored_job(tuple(row))


async def lock_jobs(connection: Connection, job_ids: Sequence[int], *, slots: int) -> list[StoredJob]:
    """The same for many jobs, by slot and job_id. Jobs that there are not are left out."""
    asked = _columns(job_ids, slots=slots)
    clocks = {row[0]: row[1] for row in await connection.fetch(_QUERIES["lock_clocks"], *asked)}
    jobs = [stored_job(tuple(row)) for row in await connection.fetch(_QUERIES["lock_jobs"], *asked)]
    without_clock = [job.job_id for job in jobs if job.job_id not in clocks]
    if without_clock and await connection.fetch(_QUERIES["clocks_of"], *_columns(without_clock, slots=slots)):
        raise LostRaceError("a job got a clock while its row was waited for")
    return [replace(job, next_fire_at=clocks.get(job.job_id)) for job in jobs]


async def lock_lanes(connection: Connection, job_ids: Sequence[int], *, slots: int) -> dict[int, Lanes]:
    """The lanes of these jobs by job; jobs without live runs are left out. The caller holds their clocks or rows.

    The runs that hold lanes are locked, so that whoever ends one sees, afterwards, the runs that the caller has put in
    line. A lane that changed hands while its former holder was waited for is locked, too, before the answer counts.
    """
    asked = _columns(job_ids, slots=slots)
    locked: set[tuple[int, int]] = set()
    while True:
        locked.update((row[1], row[2]) for row in await connection.fetch(_QUERIES["lock_lanes"], *asked))
        holds: dict[int, list[LaneHold]] = {}
        rows = await connection.fetch(_QUERIES["lane_holds"], *asked)
        for row in sorted(rows, key=lambda row: int(row[0])):
            holds.setdefault(row[7], []).append(lane_hold(tuple(row)))
        if all((job_id, hold.scheduled_at) in locked for job_id, held in holds.items() for hold in held):
            break
    waiting: dict[int, int] = {row[0]: row[1] for row in await connection.fetch(_QUERIES["newest_waiting"], *asked)}
    return {job_id: (tuple(holds.get(job_id, ())), waiting.get(job_id)) for job_id in holds.keys() | waiting.keys()}


async def find_held_elsewhere(connection: Connection, job_ids: Sequence[int], *, slots: int) -> set[int]:
    """Of these jobs, those of which another transaction has a run that holds a lane. Waits for none; the runs of all
    others are locked.
    """
    asked = _columns(job_ids, slots=slots)
    locked = {(row[1], row[2]) for row in await connection.fetch(_QUERIES["lock_free_lanes"], *asked)}
    holds = await connection.fetch(_QUERIES["lane_holds"], *asked)
    return {row[7] for row in holds if (row[7], row[1]) not in locked}


def _columns(job_ids: Sequence[int], *, slots: int) -> list[list[int]]:
    """In the order in which rows are locked."""
    return columns(sorted((job_id % slots, job_id) for job_id in job_ids), count=2)
