"""Definitions and their clocks, on SQLite. Implements the contract's Jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
from msgspec.structs import replace

from onbeat.domain.errors import KeyTaken
from onbeat.domain.states import JobState
from onbeat.store.holding import held_by_pause
from onbeat.store.planned import MarksAgain, marks_without
from onbeat.store.rows import LARGEST, encode_strings, stored_job
from onbeat.store.sqlite.after_finish import withhold_clock, write_after_finish
from onbeat.store.sqlite.calendars import write_uses
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.pauses import covering_pause
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.recording import insert_marks
from onbeat.store.sqlite.streaks import end_streak
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import KEEP, JobChange, JobFilter, NewJob, Page, StoredJob

_QUERIES = load_queries("jobs")
_HELD = frozenset({JobState.PAUSED, JobState.DELETED})
"""States in which no attempt may start."""


class SqliteJobs:
    """Jobs of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots

    async def create(self, jobs: Sequence[NewJob], *, now: int) -> list[StoredJob | None]:
        return await self._writer.submit(lambda connection: [self._create(connection, job, now=now) for job in jobs])

    async def get(self, job_id: int) -> StoredJob | None:
        return await self._readers.read(lambda connection: _read_job(connection, job_id))

    async def get_by_key(self, namespace: str, key: str) -> StoredJob | None:
        return await self._readers.read(lambda connection: _read_job_by_key(connection, namespace, key))

    async def find(self, where: JobFilter, page: Page) -> list[StoredJob]:
        before = page.after or (LARGEST, LARGEST)
        text = None if where.text is None else where.text.casefold()
        narrowed = (*before, where.state, where.tag, text, page.limit)

        def read(connection: apsw.Connection) -> list[StoredJob]:
            if where.namespace is None:
                rows = connection.execute(_QUERIES["find_jobs"], narrowed)
            else:
                rows = connection.execute(_QUERIES["find_jobs_in_namespace"], (where.namespace, *narrowed))
            return [stored_job(row) for row in rows]

        return await self._readers.search(read)

    async def change(
        self, job_id: int, *, now: int, decide: Callable[[StoredJob], JobChange | None]
    ) -> StoredJob | None:
        def write(connection: apsw.Connection) -> StoredJob | None:
            before = _read_job(connection, job_id)
            if before is None:
                return None
            recorded_until = connection.execute(_QUERIES["recorded_until"], (job_id % self._slots, job_id)).get
            seen = replace(before, recorded_until=recorded_until)
            change = decide(seen)
            if change is None:
                return before
            change = _heed_pauses(connection, before, change, now=now)
            self._write_change(connection, before, change, marks_again=marks_without(seen, decide), now=now)
            return _read_job(connection, job_id)

        return await self._writer.submit(write)

    def _create(self, connection: apsw.Connection, job: NewJob, *, now: int) -> StoredJob | None:
        slot, state = job.job_id % self._slots, job.state
        reason, paused_at, paused_by = None, None, None
        if state is JobState.ACTIVE and (pause := covering_pause(connection, job.namespace, job.tags)) is not None:
            state, paused_at, (paused_by, reason) = JobState.PAUSED, now, pause
        connection.execute(
            _QUERIES["insert_job"],
            (
                job.job_id, slot, job.namespace, job.key, job.name, encode_strings(job.tags), state, reason,
                job.definition, job.max_running, now, paused_at, paused_by,
            ),
        )  # fmt: skip
        if not connection.changes():
            return None
        if job.calendars:
            write_uses(connection, job.job_id, namespace=job.namespace, names=job.calendars)
        if job.after_finish is not None:
            write_after_finish(connection, job.job_id, job.after_finish, slot=slot)
        next_fire_at = job.next_fire_at if state is JobState.ACTIVE else None
        if next_fire_at is not None:
            connection.execute(_QUERIES["put_clock"], (slot, job.job_id, next_fire_at))
        return StoredJob(
            job.job_id, job.namespace, job.key, job.name, job.tags, 1, state, reason, job.definition, next_fire_at,
            now, now, paused_at, None, paused_by,
        )  # fmt: skip

    def _write_change(
        self, connection: apsw.Connection, before: StoredJob, change: JobChange, *, marks_again: MarksAgain, now: int
    ) -> None:
        """Marks, cancellations, former definition, row, calendars, clock, lanes: in the contract's order."""
        job_id, slot = before.job_id, before.job_id % self._slots
        insert_marks(connection, change.marks, before, slot=slot, again=marks_again, now=now)
        if change.cancels_pending:
            connection.execute(_QUERIES["end_pending_of_job"], (now, slot, job_id))
            connection.execute(_QUERIES["delete_pending_of_job"], (slot, job_id))
        if change.cancels_running:
            connection.execute(_QUERIES["stop_running_of_job"], (slot, job_id))
        redefined = change.definition is not None and change.definition != before.definition
        if redefined:
            connection.execute(_QUERIES["keep_version"], (slot, job_id, before.version, before.definition))
        state = before.state if change.state is None else change.state
        _write_row(connection, before, change, state=state, raises_version=redefined or change.raises_version, now=now)
        if change.calendars is not None or state is JobState.DELETED:
            names = () if change.calendars is None or state is JobState.DELETED else change.calendars
            write_uses(connection, job_id, namespace=before.namespace, names=names)
        if change.definition is not None or state is JobState.DELETED:
            rule = None if state is JobState.DELETED else change.after_finish
            write_after_finish(connection, job_id, rule, slot=slot)
        if state is not JobState.ACTIVE or change.next_fire_at is None:
            connection.execute(_QUERIES["drop_clock"], (slot, job_id))
        elif change.next_fire_at is not KEEP:
            connection.execute(_QUERIES["put_clock"], (slot, job_id, change.next_fire_at))
            withhold_clock(connection, job_id, slot=slot, now=now)
        if change.state is not None and state is not JobState.PAUSED:
            end_streak(connection, job_id, slot=slot)
        if state is not before.state:
            connection.execute(_QUERIES["hold_runs"], (int(state in _HELD), slot, job_id))
        pass_lanes_on(connection, [job_id], slots=self._slots, now=now)


def _heed_pauses(connection: apsw.Connection, before: StoredJob, change: JobChange, *, now: int) -> JobChange:
    """The change, but for a job that would be active though a pause covers it: that pause holds it then."""
    if (change.state or before.state) is not JobState.ACTIVE:
        return change
    tags = before.tags if change.tags is None else change.tags
    pause = covering_pause(connection, before.namespace, tags)
    return change if pause is None else held_by_pause(before, change, pause=pause, now=now)


def _write_row(
    connection: apsw.Connection,
    before: StoredJob,
    change: JobChange,
    *,
    state: JobState,
    raises_version: bool,
    now: int,
) -> None:
    key = None if state is JobState.DELETED else before.key if change.key is None else change.key
    if key is not None and key != before.key:
        holder = _read_job_by_key(connection, before.namespace, key)
        if holder is not None and holder.job_id != before.job_id:
            raise KeyTaken(f"another job in {before.namespace!r} already has the key {key!r}", field="key")
    if change.state is None:
        reason, paused_at, paused_until = before.reason, before.paused_at, before.paused_until
        paused_by = before.paused_by
    else:
        reason, paused_at, paused_until = change.reason, change.paused_at, change.paused_until
        paused_by = change.paused_by
    connection.execute(
        _QUERIES["update_job"],
        (
            key,
            before.name if change.name is None else change.name,
            encode_strings(before.tags if change.tags is None else change.tags),
            before.version + 1 if raises_version else before.version,
            state,
            reason,
            before.definition if change.definition is None else change.definition,
            change.max_running,
            now,
            paused_at,
            paused_until,
            paused_by,
            before.job_id,
        ),
    )


def _read_job(connection: apsw.Connection, job_id: int) -> StoredJob | None:
    for row in connection.execute(_QUERIES["get_job"], (job_id,)):
        return stored_job(row)
    return None


def _read_job_by_key(connection: apsw.Connection, namespace: str, key: str) -> StoredJob | None:
    for row in connection.execute(_QUERIES["get_job_by_key"], (namespace, key)):
        return stored_job(row)
    return None
