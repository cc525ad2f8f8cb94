"""Named calendars and the jobs behind them, on SQLite. Implements the contract's Calendars."""

from __future__ import annotations

from collections.abc import Callable

import apsw
from msgspec.structs import replace

from onbeat.domain.states import JobState
from onbeat.store.planned import reason_of
from onbeat.store.rows import Row, stored_job
from onbeat.store.sqlite.almanac import note_change_of_almanac, read_almanac_revision
from onbeat.store.sqlite.pauses import covering_pause
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.recording import park
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import KEEP, KeepClock, Replanned, StoredCalendar, StoredJob

_QUERIES = load_queries("calendars")
_JOBS = load_queries("jobs")
_PLANNED = frozenset({JobState.ACTIVE, JobState.COMPLETED})

DecideClock = Callable[[StoredJob], int | KeepClock | None]


class SqliteCalendars:
    """Calendars of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredCalendar:
        def write(connection: apsw.Connection) -> StoredCalendar:
            connection.execute(_QUERIES["put_calendar"], (namespace, name, rules, now))
            note_change_of_almanac(connection)
            row: Row = connection.execute(_QUERIES["get_calendar"], (namespace, name)).fetchall()[0]
            return StoredCalendar(*row)

        return await self._writer.submit(write)

    async def get(self, namespace: str, name: str) -> StoredCalendar | None:
        def read(connection: apsw.Connection) -> StoredCalendar | None:
            row = connection.execute(_QUERIES["get_calendar"], (namespace, name)).fetchone()
            return None if row is None else StoredCalendar(*row)

        return await self._readers.read(read)

    async def find(self) -> list[StoredCalendar]:
        return await self._readers.read(
            lambda connection: [StoredCalendar(*row) for row in connection.execute(_QUERIES["find_calendars"])]
        )

    async def delete(self, namespace: str, name: str) -> int | None:
        def write(connection: apsw.Connection) -> int | None:
            users: int = connection.execute(_QUERIES["count_users"], (namespace, name)).get
            if users:
                return users
            connection.execute(_QUERIES["delete_calendar"], (namespace, name))
            return 0 if note_change_of_almanac(connection) else None

        return await self._writer.submit(write)

    async def replan(self, *, now: int, limit: int, revision: int, decide: DecideClock) -> Replanned:
        def write(connection: apsw.Connection) -> Replanned:
            waiting = connection.execute(_QUERIES["calendar_to_replan"]).fetchone()
            if waiting is None:
                return Replanned(jobs=0, parked=(), more=False)
            if revision != read_almanac_revision(connection):
                return Replanned(jobs=0, parked=(), more=True)
            namespace, name, replan_after = waiting
            rows = connection.execute(_QUERIES["jobs_to_replan"], (namespace, name, replan_after, limit)).fetchall()
            parked: list[tuple[int, str]] = []
            for row in rows:
                self._replan_job(connection, stored_job(row), decide, parked=parked, now=now)
            place = rows[-1][0] if len(rows) == limit else None
            connection.execute(_QUERIES["replan_from"], (place, namespace, name))
            more = connection.execute(_QUERIES["calendar_to_replan"]).fetchone() is not None
            return Replanned(jobs=len(rows), parked=tuple(parked), more=more)

        return await self._writer.submit(write)

    def _replan_job(
        self,
        connection: apsw.Connection,
        job: StoredJob,
        decide: DecideClock,
        *,
        parked: list[tuple[int, str]],
        now: int,
    ) -> None:
        if job.state not in _PLANNED:
            return
        slot = job.job_id % self._slots
        recorded_until = connection.execute(_JOBS["recorded_until"], (slot, job.job_id)).get
        try:
            next_fire_at = decide(replace(job, recorded_until=recorded_until))
        except Exception as error:
            reason = reason_of(error)
            park(connection, job.job_id, slot=slot, reason=reason, now=now)
            parked.append((job.job_id, reason))
            return
        if next_fire_at is KEEP:
            return
        state = JobState.COMPLETED if next_fire_at is None else JobState.ACTIVE
        note, paused_at, paused_by = None, None, None
        if state is JobState.ACTIVE and job.state is not state:
            pause = covering_pause(connection, job.namespace, job.tags)
            if pause is not None:
                state, paused_at, (paused_by, note) = JobState.PAUSED, now, pause
        if next_fire_at is None or state is JobState.PAUSED:
            connection.execute(_JOBS["drop_clock"], (slot, job.job_id))
        else:
            connection.execute(_JOBS["put_clock"], (slot, job.job_id, next_fire_at))
        if state is not job.state:
            connection.execute(_JOBS["set_job_state"], (state, note, 0, now, paused_at, paused_by, job.job_id))


def write_uses(connection: apsw.Connection, job_id: int, *, namespace: str, names: tuple[str, ...]) -> None:
    """Say which calendars a job stands behind, in place of what was said before."""
    connection.execute(_QUERIES["drop_uses"], (job_id,))
    for name in names:
        connection.execute(_QUERIES["add_use"], (namespace, name, job_id))
