"""Definitions and their clocks, on PostgreSQL. Implements the contract's Jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from msgspec.structs import replace

from onbeat.domain.errors import KeyTaken
from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState
from onbeat.store.hints import Hint, hint_of_jobs
from onbeat.store.holding import held_by_pause
from onbeat.store.planned import MarksAgain, marks_without
from onbeat.store.postgres.after_finish import withhold_clocks, write_after_finish
from onbeat.store.postgres.calendars import drop_uses, write_uses
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.job_states import count_jobs
from onbeat.store.postgres.lanes import pass_lanes_on
from onbeat.store.postgres.locks import lock_job
from onbeat.store.postgres.new_jobs import insert_jobs
from onbeat.store.postgres.pauses import hold_pauses
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.recording import insert_marks
from onbeat.store.postgres.streaks import end_streaks
from onbeat.store.rows import LARGEST, encode_strings, is_storable, stored_job
from onbeat.store.values import KEEP, JobChange, JobFilter, NewJob, Page, StoredJob

_QUERIES = load_queries("jobs")
_HELD = frozenset({JobState.PAUSED, JobState.DELETED})
"""States in which no attempt may start."""


class PostgresJobs:
    """Jobs of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def create(self, jobs: Sequence[NewJob], *, now: int) -> list[StoredJob | None]:
        return await self._database.write(
            lambda connection: insert_jobs(connection, jobs, slots=self._slots, now=now),
            hint=lambda written: hint_of_jobs(written, slots=self._slots, now=now),
        )

    async def get(self, job_id: int) -> StoredJob | None:
        return await self._database.read(lambda connection: self._read_job(connection, job_id))

    async def get_by_key(self, namespace: str, key: str) -> StoredJob | None:
        if not is_storable(namespace, key):
            return None

        async def read(connection: Connection) -> StoredJob | None:
            row = await connection.fetchrow(_QUERIES["get_job_by_key"], self._slots, namespace, key)
            return None if row is None else stored_job(tuple(row))

        return await self._database.read(read)

    async def find(self, where: JobFilter, page: Page) -> list[StoredJob]:
        if not is_storable(where.namespace, where.tag, where.text):
            return []
        before = page.after or (LARGEST, LARGEST)
        state = None if where.state is None else where.state.value
        text = None if where.text is None else where.text.casefold()
        narrowed = (*before, state, where.tag, text, page.limit)

        async def read(connection: Connection) -> list[StoredJob]:
            if where.namespace is None:
                rows = await connection.fetch(_QUERIES["find_jobs"], *narrowed)
            else:
                rows = await connection.fetch(_QUERIES["find_jobs_in_namespace"], where.namespace, *narrowed)
            return [stored_job(tuple(row)) for row in rows]

        return await self._database.read(read)

    async def change(
        self, job_id: int, *, now: int, decide: Callable[[StoredJob], JobChange | None]
    ) -> StoredJob | None:
        async def write(connection: Connection) -> tuple[StoredJob | None, Hint | None]:
            """The job after the change, and what others are to hear of it."""
            slot = job_id % self._slots
            before = await lock_job(connection, job_id, slot=slot)
            if before is None:
                return None, None
            recorded_until = await connection.fetchval(_QUERIES["recorded_until"], slot, job_id)
            seen = replace(before, recorded_until=recorded_until)
            change = decide(seen)
            if change is None:
                return before, None
            change = await _heed_pauses(connection, before, change, now=now)
            ready_at, stopped = await self._write_change(
                connection, before, change, marks_again=marks_without(seen, decide), now=now
            )
            job = await self._read_job(connection, job_id)
            return job, hint_of_jobs([job], slots=self._slots, now=now, ready_at=ready_at, stopped=stopped)

        job, _hint = await self._database.write(write, hint=itemgetter(1), slot=job_id % self._slots)
        return job

    async def _read_job(self, connection: Connection, job_id: int) -> StoredJob | None:
        row = await connection.fetchrow(_QUERIES["get_job"], job_id % self._slots, job_id)
        return None if row is None else stored_job(tuple(row))

    async def _write_change(
        self, connection: Connection, before: StoredJob, change: JobChange, *, marks_again: MarksAgain, now: int
    ) -> tuple[int | None, list[RunKey]]:
        """Marks, cancellations, former definition, row, calendars, clock, lanes: in the contract's order.

        Answer: when the first of the runs is ready that became claimable by it, and the runs that were asked to stop.
        """
        stopped: list[RunKey] = []
        ready_at: int | None = None
        job_id, slot = before.job_id, before.job_id % self._slots
        state = before.state if change.state is None else change.state
        # A finish that does not see the new rule of after_finish sets no clock, so it must be over when this looks.
        touches_runs = change.cancels_pending or change.cancels_running or state is not before.state
        if touches_runs or change.after_finish is not None:
            await connection.execute(_QUERIES["lock_runs_of_job"], slot, job_id)
        await insert_marks(connection, change.marks, before, slot=slot, again=marks_again, now=now)
        if change.cancels_pending:
            await connection.execute(_QUERIES["end_pending_of_job"], slot, job_id, now)
        if change.cancels_running:
            rows = await connection.fetch(_QUERIES["stop_running_of_job"], now, slot, job_id)
            stopped = [RunKey(job_id, row[0]) for row in rows]
        redefined = change.definition is not None and change.definition != before.definition
        if redefined:
            await connection.execute(_QUERIES["keep_version"], slot, job_id, before.version, before.definition)
        await _write_row(
            connection, before, change, slot=slot, state=state, raises_version=redefined or change.raises_version,
            now=now,
        )  # fmt: skip
        if change.calendars is not None or state is JobState.DELETED:
            names = () if change.calendars is None or state is JobState.DELETED else change.calendars
            await drop_uses(connection, job_id)
            await write_uses(connection, [(before.namespace, name, job_id) for name in names])
        if change.definition is not None or state is JobState.DELETED:
            rule = None if state is JobState.DELETED else change.after_finish
            await write_after_finish(connection, job_id, rule, slot=slot)
        if state is not JobState.ACTIVE or change.next_fire_at is None:
            await connection.execute(_QUERIES["drop_clock"], slot, job_id)
        elif change.next_fire_at is not KEEP:
            await connection.execute(_QUERIES["put_clock"], slot, job_id, change.next_fire_at)
            await withhold_clocks(connection, [job_id], slots=self._slots, now=now)
        if change.state is not None and state is not JobState.PAUSED:
            await end_streaks(connection, [job_id], slots=self._slots)
        if state is not before.state:
            ready_at = await connection.fetchval(_QUERIES["hold_runs"], state in _HELD, slot, job_id)
        if await pass_lanes_on(connection, [job_id], slots=self._slots, now=now):
            ready_at = now if ready_at is None else min(ready_at, now)
        return ready_at, stopped


async def _heed_pauses(connection: Connection, before: StoredJob, change: JobChange, *, now: int) -> JobChange:
    """The change, but for a job that would be active though a pause covers it: that pause holds it then."""
    if (change.state or before.state) is not JobState.ACTIVE:
        return change
    tags = before.tags if change.tags is None else change.tags
    pause = (await hold_pauses(connection, [before.namespace])).covering(before.namespace, tags)
    return change if pause is None else held_by_pause(before, change, pause=pause, now=now)


async def _write_row(
    connection: Connection,
    before: StoredJob,
    change: JobChange,
    *,
    slot: int,
    state: JobState,
    raises_version: bool,
    now: int,
) -> None:
    key = None if state is JobState.DELETED else before.key if change.key is None else change.key
    if key != before.key:
        await _move_key(connection, before, key)
    name = before.name if change.name is None else change.name
    if change.state is None:
        reason, paused_at, paused_until = before.reason, before.paused_at, before.paused_until
        paused_by = before.paused_by
    else:
        reason, paused_at, paused_until = change.reason, change.paused_at, change.paused_until
        paused_by = change.paused_by
    await connection.execute(
        _QUERIES["update_job"],
        key,
        name,
        encode_strings(before.tags if change.tags is None else change.tags),
        before.version + 1 if raises_version else before.version,
        state.value,
        reason,
        before.definition if change.definition is None else change.definition,
        change.max_running,
        now,
        paused_at,
        paused_until,
        paused_by,
        name.casefold(),
        None if key is None else key.casefold(),
        slot,
        before.job_id,
    )
    if state is not before.state:
        await count_jobs(connection, [(slot, before.state, -1), (slot, state, 1)])


async def _move_key(connection: Connection, before: StoredJob, key: str | None) -> None:
    if before.key is not None:
        await connection.execute(_QUERIES["free_key"], before.namespace, before.key, before.job_id)
    if key is None:
        return
    taken = await connection.execute(_QUERIES["take_keys"], [before.namespace], [key], [before.job_id])
    if taken != "INSERT 0 1":
        raise KeyTaken(f"another job in {before.namespace!r} already has the key {key!r}", field="key")
