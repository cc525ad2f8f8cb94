"""Runs of the past that people asked for, on PostgreSQL. Implements the contract's Backfills.

The row of a backfill is locked before anything else of its job: whoever advances one holds it, and others go on with
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.planned import reason_of
from onbeat.store.postgres.after_finish import withhold_clocks
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.locks import lock_job, lock_lanes
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.recording import RunToWrite, insert_runs
from onbeat.store.rows import Row, storable_text
from onbeat.store.values import (
    BackfillAdvance,
    BackfillStep,
    DueBackfill,
    DueJob,
    Mark,
    MarkCut,
    NewBackfill,
    NewRun,
    Recorded,
    StoredBackfill,
)

_QUERIES = load_queries("backfills")

LISTED = 100

_MARKS = frozenset({RunState.MISSED, RunState.SKIPPED})

Choose = Callable[[DueBackfill], tuple[int, ...]]
Decide = Callable[[DueBackfill, Sequence[tuple[int, Recorded | None]]], BackfillStep]


class PostgresBackfills:
    """Backfills of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def begin(self, new: NewBackfill, *, now: int) -> StoredBackfill | None:
        async def write(connection: Connection) -> StoredBackfill | None:
            row = await connection.fetchrow(
                _QUERIES["begin_backfill"], new.job_id % self._slots, new.job_id, new.from_at, new.to_at, new.order,
                new.rate_per_s, new.most, new.instants, now,
            )  # fmt: skip
            return None if row is None else _stored(tuple(row))

        return await self._database.write(write)

    async def get(self, job_id: int, number: int) -> StoredBackfill | None:
        return await self._database.read(lambda connection: self._get(connection, job_id, number))

    async def find(self, job_id: int) -> list[StoredBackfill]:
        async def read(connection: Connection) -> list[StoredBackfill]:
            rows = await connection.fetch(_QUERIES["newest_backfills"], job_id % self._slots, job_id, LISTED)
            return [_stored(tuple(row)) for row in rows]

        return await self._database.read(read)

    async def cancel(self, job_id: int, number: int, *, now: int) -> StoredBackfill | None:
        async def write(connection: Connection) -> StoredBackfill | None:
            await connection.execute(_QUERIES["cancel_backfill"], now, None, job_id % self._slots, job_id, number)
            return await self._get(connection, job_id, number)

        return await self._database.write(write)

    async def look_up(self, job_id: int, instants: Sequence[int]) -> list[Recorded | None]:
        return await self._database.read(
            lambda connection: _look_up(connection, job_id, instants, slot=job_id % self._slots)
        )

    async def advance(self, *, now: int, choose: Choose, decide: Decide) -> BackfillAdvance:
        async def write(connection: Connection) -> BackfillAdvance:
            row = await connection.fetchrow(_QUERIES["lock_due_backfill"], now)
            if row is None:
                return await _advance(connection, None, ())
            backfill = _stored(tuple(row))
            job_id, slot = backfill.job_id, backfill.job_id % self._slots
            job = await lock_job(connection, job_id, slot=slot)
            if job is None:
                return await self._give_up(connection, backfill, "the job is gone", now=now)
            holds, waiting = (await lock_lanes(connection, [job_id], slots=self._slots)).get(job_id, ((), None))
            due = DueBackfill(backfill, DueJob(job, now, holds, waiting))
            try:
                instants = choose(due)
            except Exception as error:
                return await self._give_up(connection, backfill, reason_of(error), now=now)
            found = await _look_up(connection, job_id, instants, slot=slot)
            try:
                step = decide(due, list(zip(instants, found, strict=True)))
            except Exception as error:
                return await self._give_up(connection, backfill, reason_of(error), now=now)
            return await self._record(connection, due, step, slot=slot, now=now)

        return await self._database.write(write)

    async def _record(
        self, connection: Connection, found: DueBackfill, step: BackfillStep, *, slot: int, now: int
    ) -> BackfillAdvance:
        backfill, job = found.backfill, found.due.job
        for cut in step.cuts:
            await _cut(connection, cut, job_id=job.job_id, slot=slot)
        written: tuple[NewRun, ...] = ()
        if step.runs:
            held = job.state in (JobState.PAUSED, JobState.DELETED)
            to_write = [RunToWrite(slot, job, run) for run in step.runs]
            keys = await insert_runs(connection, to_write, held=held, now=now)
            written = tuple(run for run in step.runs if (job.job_id, run.scheduled_at) in keys)
        if written:
            await withhold_clocks(connection, [job.job_id], slots=self._slots, now=now)
        ended_at = None if step.state is BackfillState.RUNNING else now
        await connection.execute(
            _QUERIES["advance_backfill"], step.left_from, step.left_to, step.next_at, step.looked_at, len(written),
            step.state, storable_text(step.reason), ended_at, slot, job.job_id, backfill.number,
        )  # fmt: skip
        return await _advance(connection, await self._get(connection, job.job_id, backfill.number), written)

    async def _give_up(
        self, connection: Connection, backfill: StoredBackfill, reason: str, *, now: int
    ) -> BackfillAdvance:
        key = (backfill.job_id % self._slots, backfill.job_id, backfill.number)
        await connection.execute(_QUERIES["cancel_backfill"], now, storable_text(reason), *key)
        return await _advance(connection, await self._get(connection, backfill.job_id, backfill.number), ())

    async def _get(self, connection: Connection, job_id: int, number: int) -> StoredBackfill | None:
        row = await connection.fetchrow(_QUERIES["get_backfill"], job_id % self._slots, job_id, number)
        return None if row is None else _stored(tuple(row))


async def _look_up(connection: Connection, job_id: int, instants: Sequence[int], *, slot: int) -> list[Recorded | None]:
    """What accounts for each of these instants, in order. Former definitions are read once."""
    if not instants:
        return []
    rows = {
        row[0]: row for row in await connection.fetch(_QUERIES["records_of_instants"], list(instants), slot, job_id)
    }
    versions = sorted({row[8] for row in rows.values() if row[5] in _MARKS})
    definitions: dict[int, str] = {}
    if versions:
        found = await connection.fetch(_QUERIES["definitions_of_versions"], slot, job_id, versions)
        definitions = {row[0]: row[1] for row in found}
    return [_recorded(tuple(rows[instant]), definitions) for instant in instants]


def _recorded(row: Row, definitions: dict[int, str]) -> Recorded | None:
    is_live, scheduled_at, until, count, state, reason, blocked_by, job_version = row[1:]
    if is_live:
        return Recorded()
    if scheduled_at is None:
        return None
    if state not in _MARKS:
        return Recorded()
    mark = Mark(scheduled_at, until, count, RunState(state), None if reason is None else SkipReason(reason), blocked_by)
    return Recorded(mark, job_version, definitions.get(job_version, ""))


async def _cut(connection: Connection, cut: MarkCut, *, job_id: int, slot: int) -> None:
    key = (slot, job_id, cut.scheduled_at)
    await connection.execute(_QUERIES["drop_range"], *key)
    if not cut.rest:
        await connection.execute(_QUERIES["drop_mark"], *key)
        return
    first, *others = cut.rest
    for piece in others:
        await connection.execute(_QUERIES["copy_mark"], *_piece(piece), *key)
    await connection.execute(_QUERIES["shrink_mark"], *_piece(first), *key)


def _piece(mark: Mark) -> Row:
    return (mark.scheduled_at, mark.count, mark.until if mark.count > 1 else None)


async def _advance(
    connection: Connection, backfill: StoredBackfill | None, runs: tuple[NewRun, ...]
) -> BackfillAdvance:
    return BackfillAdvance(backfill, runs, await connection.fetchval(_QUERIES["next_batch_at"]))


def _stored(row: Row) -> StoredBackfill:
    return StoredBackfill(
        row[0], row[1], row[2], row[3], BackfillOrder(row[4]), row[5], row[6], row[7], row[8], row[9], row[10], row[11],
        BackfillState(row[12]), row[13], row[14], row[15], row[16],
    )  # fmt: skip
