"""Writes new jobs: thousands with a handful of statements.

What is taken is read first, so that a transaction begins anew only where another one is taking the same just then.
"""

from __future__ import annotations

from collections.abc import Sequence

from onbeat.domain.states import JobState
from onbeat.store.postgres.calendars import write_uses
from onbeat.store.postgres.database import Connection, LostRaceError
from onbeat.store.postgres.pauses import HoldingPauses, hold_pauses
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import encode_strings
from onbeat.store.values import NewJob, StoredJob

_QUERIES = load_queries("jobs")


async def insert_jobs(
    connection: Connection, jobs: Sequence[NewJob], *, slots: int, now: int
) -> list[StoredJob | None]:
    """The jobs as they are written, in order. None: its key or its id is taken, also by one before it.

    Raises LostRaceError where another transaction takes one of them meanwhile.
    """
    if not jobs:
        return []
    free = await _free(connection, jobs, slots=slots)
    pauses = await hold_pauses(connection, [job.namespace for job in jobs])
    stored = [_stored(job, pauses, now=now) if is_free else None for job, is_free in zip(jobs, free, strict=True)]
    written = [(job, row) for job, row in zip(jobs, stored, strict=True) if row is not None]
    if written:
        await _take_keys(connection, [job for job, _row in written])
        await _insert(connection, written, slots=slots, now=now)
        await write_uses(
            connection, [(job.namespace, name, job.job_id) for job, _row in written for name in job.calendars]
        )
    return stored


async def _free(connection: Connection, jobs: Sequence[NewJob], *, slots: int) -> list[bool]:
    """Which of the jobs can be written, one after the other."""
    ids = [job.job_id for job in jobs]
    rows = await connection.fetch(_QUERIES["taken_ids"], [job_id % slots for job_id in ids], ids)
    taken_ids: set[int] = {row[0] for row in rows}
    keys = [(job.namespace, job.key) for job in jobs if job.key is not None]
    taken_keys: set[tuple[str, str]] = set()
    if keys:
        rows = await connection.fetch(_QUERIES["taken_keys"], *(list(column) for column in zip(*keys, strict=True)))
        taken_keys = {(row[0], row[1]) for row in rows}
    free: list[bool] = []
    for job in jobs:
        is_free = job.job_id not in taken_ids and (job.key is None or (job.namespace, job.key) not in taken_keys)
        free.append(is_free)
        if is_free:
            taken_ids.add(job.job_id)
            if job.key is not None:
                taken_keys.add((job.namespace, job.key))
    return free


def _stored(job: NewJob, pauses: HoldingPauses, *, now: int) -> StoredJob:
    state, reason, paused_at, paused_by = job.state, None, None, None
    if state is JobState.ACTIVE and (pause := pauses.covering(job.namespace, job.tags)) is not None:
        state, paused_at, (paused_by, reason) = JobState.PAUSED, now, pause
    return StoredJob(
        job.job_id, job.namespace, job.key, job.name, job.tags, 1, state, reason, job.definition,
        job.next_fire_at if state is JobState.ACTIVE else None, now, now, paused_at, None, paused_by,
    )  # fmt: skip


async def _take_keys(connection: Connection, jobs: Sequence[NewJob]) -> None:
    keys = sorted((job.namespace, job.key, job.job_id) for job in jobs if job.key is not None)
    if not keys:
        return
    taken = await connection.execute(_QUERIES["take_keys"], *(list(column) for column in zip(*keys, strict=True)))
    if taken != f"INSERT 0 {len(keys)}":
        raise LostRaceError("another transaction took a key")


async def _insert(connection: Connection, written: Sequence[tuple[NewJob, StoredJob]], *, slots: int, now: int) -> None:
    rows = sorted(
        (
            row.job_id % slots, row.job_id, row.namespace, row.key, row.name, encode_strings(row.tags),
            row.state.value, row.reason, row.definition, job.max_running, row.paused_at, row.paused_by,
            row.name.casefold(), None if row.key is None else row.key.casefold(), row.next_fire_at,
            None if job.after_finish is None else job.after_finish.every_us,
            None if job.after_finish is None else job.after_finish.until,
        )
        for job, row in written
    )  # fmt: skip
    columns = (list(column) for column in zip(*rows, strict=True))
    if await connection.fetchval(_QUERIES["insert_jobs"], *columns, now) != len(rows):
        raise LostRaceError("another transaction took a job's id")
