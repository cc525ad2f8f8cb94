"""Named calendars and the jobs behind them, on PostgreSQL. Implements the contract's Calendars."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from onbeat.domain.states import JobState
from onbeat.store.planned import reason_of
from onbeat.store.postgres.almanac import hold_almanac_revision, raise_almanac_revision
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection, Database, LostRaceError
from onbeat.store.postgres.job_states import NewState, drop_clocks, set_job_states
from onbeat.store.postgres.locks import lock_jobs
from onbeat.store.postgres.pauses import HoldingPauses, hold_pauses
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import KEEP, KeepClock, Replanned, StoredCalendar, StoredJob

_QUERIES = load_queries("calendars")
_JOBS = load_queries("jobs")
_PLANNED = frozenset({JobState.ACTIVE, JobState.COMPLETED})

DecideClock = Callable[[StoredJob], int | KeepClock | None]


class PostgresCalendars:
    """Calendars of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredCalendar:
        async def write(connection: Connection) -> StoredCalendar:
            if await connection.execute(_QUERIES["put_calendar"], namespace, name, rules, now) != "INSERT 0 0":
                await raise_almanac_revision(connection)
            row = await connection.fetchrow(_QUERIES["get_calendar"], namespace, name)
            if row is None:
                raise LostRaceError("the calendar was deleted meanwhile")
            return StoredCalendar(*row)

        return await self._database.write(write)

    async def get(self, namespace: str, name: str) -> StoredCalendar | None:
        async def read(connection: Connection) -> StoredCalendar | None:
            row = await connection.fetchrow(_QUERIES["get_calendar"], namespace, name)
            return None if row is None else StoredCalendar(*row)

        return await self._database.read(read)

    async def find(self) -> list[StoredCalendar]:
        async def read(connection: Connection) -> list[StoredCalendar]:
            return [StoredCalendar(*row) for row in await connection.fetch(_QUERIES["find_calendars"])]

        return await self._database.prompt.read(read)

    async def delete(self, namespace: str, name: str) -> int | None:
        async def write(connection: Connection) -> int | None:
            if await connection.fetchval(_QUERIES["lock_calendar"], namespace, name) is None:
                return None
            users = int(await connection.fetchval(_QUERIES["count_users"], namespace, name))
            if not users:
                await connection.execute(_QUERIES["delete_calendar"], namespace, name)
                await raise_almanac_revision(connection)
            return users

        return await self._database.write(write)

    async def replan(self, *, now: int, limit: int, revision: int, decide: DecideClock) -> Replanned:
        async def write(connection: Connection) -> Replanned:
            waiting = await connection.fetchrow(_QUERIES["calendar_to_replan"])
            if waiting is None:
                return Replanned(jobs=0, parked=(), more=False)
            if revision != await hold_almanac_revision(connection):
                return Replanned(jobs=0, parked=(), more=True)
            namespace, name, replan_after = waiting
            rows = await connection.fetch(_QUERIES["users_to_replan"], namespace, name, replan_after, limit)
            parked: tuple[tuple[int, str], ...] = ()
            if rows:
                # Before the jobs are read, so that a pause that begins meanwhile is either seen or finds them active.
                jobs = await lock_jobs(connection, [row[0] for row in rows], slots=self._slots)
                jobs = await self._with_records(connection, jobs)
                pauses = await hold_pauses(connection, [namespace])
                plan = _plan(jobs, decide, pauses)
                parked = tuple(plan.parked)
                await self._write_plan(connection, plan, now=now)
            place = rows[-1][0] if len(rows) == limit else None
            await connection.execute(_QUERIES["replan_from"], place, namespace, name)
            more = bool(await connection.fetchval(_QUERIES["any_to_replan"]))
            return Replanned(jobs=len(rows), parked=parked, more=more)

        return await self._database.write(write)

    async def _with_records(self, connection: Connection, jobs: Sequence[StoredJob]) -> list[StoredJob]:
        asked = columns(((job.job_id % self._slots, job.job_id) for job in jobs), count=2)
        found = {row[0]: row[1] for row in await connection.fetch(_JOBS["recorded_until_of_jobs"], *asked)}
        return [replace(job, recorded_until=found[job.job_id]) for job in jobs]

    async def _write_plan(self, connection: Connection, plan: _Plan, *, now: int) -> None:
        if plan.clocks:
            clocks = sorted((job_id % self._slots, job_id, next_fire_at) for job_id, next_fire_at in plan.clocks)
            await connection.execute(_QUERIES["put_clocks"], *(list(column) for column in zip(*clocks, strict=True)))
        if plan.stopped:
            await drop_clocks(connection, plan.stopped, slots=self._slots)
        if plan.states:
            await set_job_states(connection, plan.states, slots=self._slots, now=now)
        if plan.paused:
            await set_job_states(connection, plan.paused, slots=self._slots, now=now, paused_at=now)


class _Plan(msgspec.Struct):
    """What becomes of a batch of jobs whose calendar changed."""

    clocks: list[tuple[int, int]] = msgspec.field(default_factory=list)
    stopped: list[int] = msgspec.field(default_factory=list)
    states: list[NewState] = msgspec.field(default_factory=list)
    paused: list[NewState] = msgspec.field(default_factory=list)
    parked: list[tuple[int, str]] = msgspec.field(default_factory=list)


def _plan(jobs: Sequence[StoredJob], decide: DecideClock, pauses: HoldingPauses) -> _Plan:
    plan = _Plan()
    for job in sorted(jobs, key=lambda job: job.job_id):
        if job.state not in _PLANNED:
            continue
        try:
            next_fire_at = decide(job)
        except Exception as error:
            reason = reason_of(error)
            plan.parked.append((job.job_id, reason))
            plan.stopped.append(job.job_id)
            plan.states.append(NewState(job.job_id, JobState.ERROR, reason))
            continue
        if next_fire_at is KEEP:
            continue
        pause = None if job.state is JobState.ACTIVE else pauses.covering(job.namespace, job.tags)
        if next_fire_at is None:
            plan.stopped.append(job.job_id)
            if job.state is not JobState.COMPLETED:
                plan.states.append(NewState(job.job_id, JobState.COMPLETED))
        elif pause is not None:
            tag, note = pause
            plan.stopped.append(job.job_id)
            plan.paused.append(NewState(job.job_id, JobState.PAUSED, note, tag))
        else:
            plan.clocks.append((job.job_id, next_fire_at))
            if job.state is not JobState.ACTIVE:
                plan.states.append(NewState(job.job_id, JobState.ACTIVE))
    return plan


async def write_uses(connection: Connection, uses: Sequence[tuple[str, str, int]]) -> None:
    """Say which jobs stand behind which calendars: `(namespace, name, job_id)`."""
    if not uses:
        return
    namespaces, names, job_ids = (list(column) for column in zip(*uses, strict=True))
    await connection.execute(_QUERIES["keep_calendars"], namespaces, names)
    await connection.execute(_QUERIES["add_uses"], namespaces, names, job_ids)


async def drop_uses(connection: Connection, job_id: int) -> None:
    """A job stands behind no calendar any more."""
    await connection.execute(_QUERIES["drop_uses"], job_id)
