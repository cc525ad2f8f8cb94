"""A fire becomes a run, on SQLite. Implements the contract's Fires.

A batch is recorded with few statements for all its jobs. Where that meets a run that is recorded already, or a plan
that a rule of the database refuses, it is rolled back and done again job by job, each under its own savepoint: then
one bad job is parked and costs the others nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import apsw
from msgspec.json import encode

from onbeat.domain.states import JobState
from onbeat.store.planned import PLANNING_LASTS_S, Decide, PlannedFire, Tally, plan_fire, reason_of
from onbeat.store.rows import Row, decode_rows, lane_hold, run_view, stored_job
from onbeat.store.sqlite.after_finish import set_clocks_after, withhold_clock
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.recording import insert_run, park, record_alone, record_together
from onbeat.store.sqlite.rounds import Rounds
from onbeat.store.sqlite.writer import BatchRefusedError, Writer
from onbeat.store.values import DueJob, FiredBatch, LaneHold, NewRun, RunView

_QUERIES = load_queries("fires")
_JOBS = load_queries("jobs")
_RUNS = load_queries("runs")


class SqliteFires:
    """Fires of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots
        self._rounds = Rounds(slots)  # the writer's thread uses it

    async def record_due(
        self,
        *,
        now: int,
        limit: int,
        decide: Decide,
        latest: int = 0,
        only: int | None = None,
        slots: Sequence[int] | None = None,
        in_any_order: bool = False,
    ) -> FiredBatch:
        within = _slot_list(slots)
        in_rounds = in_any_order and slots is None and only is None

        def read(connection: apsw.Connection) -> list[Row]:
            if only is not None:
                return connection.execute(_QUERIES["due_job"], (only % self._slots, only, now)).fetchall()
            if in_rounds:
                return self._read_part(connection, now=now, limit=limit)
            return _read_due(connection, now=now, within=within, limit=limit, latest=latest)

        def write(connection: apsw.Connection, one_by_one: bool) -> FiredBatch:
            rows = read(connection)
            batch = self._record(connection, rows, decide=decide, one_by_one=one_by_one, within=within, now=now)
            if in_rounds and batch.jobs:
                self._rounds.since = rows[batch.jobs - 1][9]
            return batch

        return await self._writer.submit_batch(write)

    async def insert_run(
        self, job_id: int, *, now: int, decide: Callable[[DueJob], tuple[NewRun, ...]]
    ) -> list[RunView] | None:
        slot = job_id % self._slots

        def write(connection: apsw.Connection) -> list[RunView] | None:
            row = connection.execute(_JOBS["get_job"], (job_id,)).fetchone()
            if row is None:
                return None
            job = stored_job(row)
            holds, waiting = read_lanes(connection, job_id, slot=slot)
            held = job.state in (JobState.PAUSED, JobState.DELETED)
            written = [
                run
                for run in decide(DueJob(job, now, holds, waiting))
                if insert_run(connection, job, run, slot=slot, held=held, now=now)
            ]
            withhold_clock(connection, job_id, slot=slot, now=now)
            return [
                run_view(view)
                for run in written
                for view in connection.execute(_RUNS["get_live_view"], (slot, job_id, run.scheduled_at))
            ]

        return await self._writer.submit(write)

    async def next_due_at(self, *, slots: Sequence[int] | None = None) -> int | None:
        within = _slot_list(slots)
        return await self._readers.read(lambda connection: connection.execute(_QUERIES["next_due_at"], (within,)).get)

    async def recovery_places(self) -> list[tuple[int, int]]:
        def read(connection: apsw.Connection) -> list[tuple[int, int]]:
            return [(second, count) for second, count in connection.execute(_QUERIES["recovery_places"])]

        return await self._readers.read(read)

    def _read_part(self, connection: apsw.Connection, *, now: int, limit: int) -> list[Row]:
        """Due clocks of the part of the slots whose turn it is, or of the next one of which any are due."""
        rounds = self._rounds
        for _ in range(rounds.parts + 1):  # the last one may have been begun in its middle
            bindings = (rounds.since, rounds.until(now), _slot_list(rounds.part), limit)
            rows = decode_rows(connection.execute(_QUERIES["due_jobs"], bindings).get)
            if rows:
                return rows
            rounds.next_part()
        return []

    def _record(
        self,
        connection: apsw.Connection,
        rows: list[Row],
        *,
        decide: Decide,
        one_by_one: bool,
        within: str | None,
        now: int,
    ) -> FiredBatch:
        fires: list[PlannedFire] = []
        parked: list[tuple[int, str]] = []
        must_end = time.monotonic() + PLANNING_LASTS_S
        looked_at = 0
        for row in rows:
            if looked_at and time.monotonic() >= must_end:
                break
            looked_at += 1
            fire = self._plan(connection, row, decide, parked=parked, now=now)
            if fire is not None:
                fires.append(fire)
        tally = Tally()
        if one_by_one:
            for fire in fires:
                self._record_or_park(connection, fire, tally, decide=decide, parked=parked, now=now)
        else:
            self._record_together(connection, fires, tally, now=now)
        without_clock = [fire.due.job.job_id for fire in fires if fire.plan.next_fire_at is None]
        if without_clock:  # a run that was recorded before cannot set the clock with its end
            set_clocks_after(connection, without_clock, slots=self._slots, now=now)
        if tally.freed:
            tally.pending += pass_lanes_on(connection, tally.freed, slots=self._slots, now=now)
        return tally.batch(
            jobs=looked_at,
            parked=parked,
            next_due_at=connection.execute(_QUERIES["next_due_at"], (within,)).get,
        )

    def _plan(
        self, connection: apsw.Connection, row: Row, decide: Decide, *, parked: list[tuple[int, str]], now: int
    ) -> PlannedFire | None:
        """Decide about one due clock. None: it is gone, with its job parked or not active."""
        due_at, job_id, is_busy = row[9], row[15], row[16]
        slot = job_id % self._slots
        if row[6] != JobState.ACTIVE:
            connection.execute(_JOBS["drop_clock"], (slot, job_id))
            return None
        holds, waiting = read_lanes(connection, job_id, slot=slot) if is_busy else ((), None)
        try:
            return plan_fire(DueJob(stored_job(row), due_at, holds, waiting), decide, slot=slot)
        except Exception as error:
            _park(connection, job_id, error, slot=slot, parked=parked, now=now)
            return None

    def _record_together(
        self, connection: apsw.Connection, fires: list[PlannedFire], tally: Tally, *, now: int
    ) -> None:
        try:
            is_recorded = record_together(connection, fires, tally, slots=self._slots, now=now)
        except apsw.ConstraintError as error:
            raise BatchRefusedError from error
        if not is_recorded:
            raise BatchRefusedError

    def _record_or_park(
        self,
        connection: apsw.Connection,
        fire: PlannedFire,
        tally: Tally,
        *,
        decide: Decide,
        parked: list[tuple[int, str]],
        now: int,
    ) -> None:
        own = Tally()
        try:
            with connection:
                record_alone(connection, fire, own, decide=decide, slots=self._slots, now=now)
        except apsw.ConstraintError as error:
            _park(connection, fire.due.job.job_id, error, slot=fire.slot, parked=parked, now=now)
            return
        tally.add(own)


def _slot_list(slots: Sequence[int] | None) -> str | None:
    """Slots as a query takes them: a JSON array, or NULL for all."""
    return None if slots is None else encode(list(slots)).decode()


def _read_due(connection: apsw.Connection, *, now: int, within: str | None, limit: int, latest: int) -> list[Row]:
    """The clocks of one batch: the latest, then the earliest that are not among them."""
    rows: list[Row] = []
    if latest:
        rows = decode_rows(connection.execute(_QUERIES["latest_due_jobs"], (now, within, min(latest, limit))).get)
    taken = {row[15] for row in rows}
    earliest = decode_rows(connection.execute(_QUERIES["due_jobs"], (0, now, within, limit - len(rows))).get)
    return rows + [row for row in earliest if row[15] not in taken]


def read_lanes(connection: apsw.Connection, job_id: int, *, slot: int) -> tuple[tuple[LaneHold, ...], int | None]:
    """The lanes of a job that are held, and the newest scheduled instant that waits for one."""
    holds = tuple(lane_hold(row) for row in connection.execute(_QUERIES["lane_holds"], (slot, job_id)))
    return holds, connection.execute(_QUERIES["newest_waiting"], (slot, job_id)).get


def _park(
    connection: apsw.Connection,
    job_id: int,
    error: Exception,
    *,
    slot: int,
    parked: list[tuple[int, str]],
    now: int,
) -> None:
    reason = reason_of(error)
    park(connection, job_id, slot=slot, reason=reason, now=now)
    parked.append((job_id, reason))
