"""Backfills, on SQLite. Implements the contract's Backfills."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.planned import reason_of
from onbeat.store.rows import Row, storable_text, stored_job
from onbeat.store.sqlite.after_finish import withhold_clock
from onbeat.store.sqlite.fires import read_lanes
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.recording import insert_run
from onbeat.store.sqlite.writer import Writer
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
_JOBS = load_queries("jobs")
_LEASES = load_queries("leases")

LISTED = 100

_MARKS = frozenset({RunState.MISSED, RunState.SKIPPED})

Choose = Callable[[DueBackfill], tuple[int, ...]]
Decide = Callable[[DueBackfill, Sequence[tuple[int, Recorded | None]]], BackfillStep]


class SqliteBackfills:
    """Backfills of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots

    async def begin(self, new: NewBackfill, *, now: int) -> StoredBackfill | None:
        def write(connection: apsw.Connection) -> StoredBackfill | None:
            row = (new.job_id, new.from_at, new.to_at, new.order, new.rate_per_s, new.most, new.instants, now)
            connection.execute(_QUERIES["begin_backfill"], row)
            if not connection.changes():
                return None
            return _stored(connection.execute(_QUERIES["newest_backfills"], (new.job_id, 1)).fetchall()[0])

        return await self._writer.submit(write)

    async def get(self, job_id: int, number: int) -> StoredBackfill | None:
        return await self._readers.read(lambda connection: _get(connection, job_id, number))

    async def find(self, job_id: int) -> list[StoredBackfill]:
        return await self._readers.read(
            lambda connection: [
                _stored(row) for row in connection.execute(_QUERIES["newest_backfills"], (job_id, LISTED))
            ]
        )

    async def cancel(self, job_id: int, number: int, *, now: int) -> StoredBackfill | None:
        def write(connection: apsw.Connection) -> StoredBackfill | None:
            connection.execute(_QUERIES["cancel_backfill"], (now, None, job_id, number))
            return _get(connection, job_id, number)

        return await self._writer.submit(write)

    async def look_up(self, job_id: int, instants: Sequence[int]) -> list[Recorded | None]:
        def read(connection: apsw.Connection) -> list[Recorded | None]:
            records = _Records(connection, job_id, slot=job_id % self._slots)
            return [records.of(instant) for instant in instants]

        return await self._readers.read(read)

    async def advance(self, *, now: int, choose: Choose, decide: Decide) -> BackfillAdvance:
        def write(connection: apsw.Connection) -> BackfillAdvance:
            row = connection.execute(_QUERIES["due_backfill"], (now,)).fetchone()
            if row is None:
                return _advance(connection, None, ())
            backfill = _stored(row)
            job_id, slot = backfill.job_id, backfill.job_id % self._slots
            job = connection.execute(_JOBS["get_job"], (job_id,)).fetchone()
            if job is None:
                return self._give_up(connection, backfill, "the job is gone", now=now)
            holds, waiting = read_lanes(connection, job_id, slot=slot)
            due = DueBackfill(backfill, DueJob(stored_job(job), now, holds, waiting))
            try:
                records = _Records(connection, job_id, slot=slot)
                step = decide(due, [(instant, records.of(instant)) for instant in choose(due)])
            except Exception as error:
                return self._give_up(connection, backfill, reason_of(error), now=now)
            return self._record(connection, due, step, slot=slot, now=now)

        return await self._writer.submit(write)

    def _record(
        self, connection: apsw.Connection, found: DueBackfill, step: BackfillStep, *, slot: int, now: int
    ) -> BackfillAdvance:
        backfill, job = found.backfill, found.due.job
        for cut in step.cuts:
            _cut(connection, cut, job_id=job.job_id, slot=slot)
        held = job.state in (JobState.PAUSED, JobState.DELETED)
        written = tuple([run for run in step.runs if insert_run(connection, job, run, slot=slot, held=held, now=now)])
        if written:
            withhold_clock(connection, job.job_id, slot=slot, now=now)
        ended_at = None if step.state is BackfillState.RUNNING else now
        connection.execute(
            _QUERIES["advance_backfill"],
            (step.left_from, step.left_to, step.next_at, step.looked_at, len(written), step.state, step.reason,
             ended_at, job.job_id, backfill.number),
        )  # fmt: skip
        return _advance(connection, _get(connection, job.job_id, backfill.number), written)

    def _give_up(
        self, connection: apsw.Connection, backfill: StoredBackfill, reason: str, *, now: int
    ) -> BackfillAdvance:
        row = (now, storable_text(reason), backfill.job_id, backfill.number)
        connection.execute(_QUERIES["cancel_backfill"], row)
        return _advance(connection, _get(connection, backfill.job_id, backfill.number), ())


class _Records:
    """What accounts for the instants of one job. Former definitions are read once."""

    def __init__(self, connection: apsw.Connection, job_id: int, *, slot: int) -> None:
        self._connection = connection
        self._job_id = job_id
        self._slot = slot
        self._definitions: dict[int, str] = {}

    def of(self, instant: int) -> Recorded | None:
        key = (self._slot, self._job_id, instant)
        if self._connection.execute(_QUERIES["is_live"], key).fetchone() is not None:
            return Recorded()
        row = self._connection.execute(_QUERIES["ended_at_instant"], key).fetchone()
        if row is None:
            row = self._connection.execute(_QUERIES["range_before_instant"], key).fetchone()
            if row is None or row[1] < instant:
                return None
        state = RunState(row[3])
        if state not in _MARKS:
            return Recorded()
        reason = None if row[4] is None else SkipReason(row[4])
        mark = Mark(row[0], row[1], row[2], state, reason, row[5])
        return Recorded(mark, row[6], self._definition(row[6]))

    def _definition(self, version: int) -> str:
        if version not in self._definitions:
            found: str = self._connection.execute(_LEASES["definition_of_version"], (version, self._job_id)).get
            self._definitions[version] = found
        return self._definitions[version]


def _cut(connection: apsw.Connection, cut: MarkCut, *, job_id: int, slot: int) -> None:
    key = (slot, job_id, cut.scheduled_at)
    if not cut.rest:
        connection.execute(_QUERIES["drop_mark"], key)
        return
    first, *others = cut.rest
    for piece in others:
        connection.execute(_QUERIES["copy_mark"], (*_piece(piece), *key))
    connection.execute(_QUERIES["shrink_mark"], (*_piece(first), *key))


def _piece(mark: Mark) -> Row:
    return (mark.scheduled_at, mark.count, mark.until if mark.count > 1 else None)


def _get(connection: apsw.Connection, job_id: int, number: int) -> StoredBackfill | None:
    row = connection.execute(_QUERIES["get_backfill"], (job_id, number)).fetchone()
    return None if row is None else _stored(row)


def _advance(connection: apsw.Connection, backfill: StoredBackfill | None, runs: tuple[NewRun, ...]) -> BackfillAdvance:
    return BackfillAdvance(backfill, runs, connection.execute(_QUERIES["next_batch_at"]).get)


def _stored(row: Row) -> StoredBackfill:
    return StoredBackfill(
        row[0], row[1], row[2], row[3], BackfillOrder(row[4]), row[5], row[6], row[7], row[8], row[9], row[10], row[11],
        BackfillState(row[12]), row[13], row[14], row[15], row[16],
    )  # fmt: skip
