"""A fire becomes a run, on PostgreSQL. Implements the contract's Fires.

A batch is recorded with few statements for all its jobs. Where the database refuses one of its plans, it is rolled back
and done again job by job, each under its own savepoint: then one bad job is parked and costs the others nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import asyncpg
import msgspec

from onbeat.domain.errors import OnbeatError
from onbeat.domain.states import JobState
from onbeat.store.hints import Hint, hint_of_runs
from onbeat.store.planned import PLANNING_LASTS_S, Decide, PlannedFire, Tally, joined_batch, plan_fire, reason_of
from onbeat.store.postgres.after_finish import set_clocks_after
from onbeat.store.postgres.clock_floor import MOST_SHARES, ClockFloor
from onbeat.store.postgres.database import Connection, Database, savepoint
from onbeat.store.postgres.insertion import REFUSED, Call, Insertions
from onbeat.store.postgres.job_states import NewState, drop_clocks, set_job_states
from onbeat.store.postgres.lanes import pass_lanes_on
from onbeat.store.postgres.locks import Lanes, find_held_elsewhere, lock_lanes
from onbeat.store.postgres.looks import Look, SlotLooks
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.recording import record_fires
from onbeat.store.rows import Row, stored_job
from onbeat.store.values import DueJob, FiredBatch, NewRun, RunView

_QUERIES = load_queries("fires")

WAITS_AGAIN_AFTER_S: Final = 5.0
"""A batch that has waited for a lane in vain is recorded without its job, and so are those that follow for so long: a
transaction that somebody has left open, or whose node stands still, holds up the job whose run it has and no other.
"""


class PostgresFires:
    """Fires of one database."""

    def __init__(self, *, database: Database, slots: int, looks: SlotLooks | None = None) -> None:
        """`looks`: into one slot at a time. None: into all that are asked for at once."""
        self._database = database
        self._slots = slots
        self._looks = looks
        self._floor = ClockFloor(most_shares=MOST_SHARES if looks is None else slots)
        self._insertions = Insertions(database=database, slots=slots)
        self._latest_taken_of = -1  # the slot, by one that had no share for each
        self._waits_from = float("-inf")  # when batches wait for the lanes of jobs again

    async def record_due(
        self,
        *,
        now: int,
        limit: int,
        decide: Decide,
        latest: int = 0,
        only: int | None = None,
        slots: Sequence[int] | None = None,
        in_any_order: bool = False,  # the earliest first costs no more than another order
    ) -> FiredBatch:
        if self._looks is None:
            return await self._record(now=now, limit=limit, decide=decide, latest=latest, only=only, slots=slots)
        return await self._record_by_slot(
            self._looks, now=now, limit=limit, decide=decide, latest=latest, only=only, slots=slots
        )

    async def _record_by_slot(
        self,
        looks: SlotLooks,
        *,
        now: int,
        limit: int,
        decide: Decide,
        latest: int,
        only: int | None,
        slots: Sequence[int] | None,
    ) -> FiredBatch:
        """One transaction after the other, each of one slot, until `limit` clocks were looked at.

        While there is a backlog (`latest`) each slot gets its share of the limit, so that what came due last in one
        does not wait for what is left over in another. Where all of a small limit is for what came due last, and there
        is no share for each, slots have their turns: those without a backlog would come last as long as there is one.
        """
        await self.next_due_at(slots=slots)
        due = looks.due(now=now, among=slots) if only is None else [only % self._slots]
        is_in_turn = only is None and latest == limit < len(due)
        if is_in_turn:
            due.sort(key=lambda slot: (slot <= self._latest_taken_of, slot))
        parts: list[FiredBatch] = []
        left = limit
        for number, slot in enumerate(due):
            share = -(-left // (len(due) - number)) if latest else left
            if is_in_turn:
                self._latest_taken_of = slot
            try:
                part = await self._record(
                    now=now, limit=share, decide=decide, latest=share * latest // limit, only=only,
                    slots=[slot], slot_look=looks.look(slot),
                )  # fmt: skip
            except OnbeatError:
                if not parts:
                    raise
                break  # what was recorded must be told; the next call meets the error again, if it is still there
            parts.append(part)
            left -= part.jobs
            if left <= 0:
                break
        next_due_at = now if looks.has_changed(among=slots) else looks.earliest(among=slots)
        return joined_batch(parts, next_due_at=next_due_at)

    async def _record(
        self,
        *,
        now: int,
        limit: int,
        decide: Decide,
        latest: int,
        only: int | None,
        slots: Sequence[int] | None,
        slot_look: Look | None = None,
    ) -> FiredBatch:
        """One batch, in one transaction."""
        floor = self._floor.of(slots, now=now)

        async def write(connection: Connection, *, one_by_one: bool) -> _Recorded:
            look = _Look(floor, now=now, slots=slots)
            if only is not None:
                clocks = await _rows(connection, _QUERIES["lock_due_job"], only % self._slots, only, now)
            else:
                clocks = await look.lock_due(connection, limit=limit, latest=latest)
            batch = _Batch(
                connection, decide=decide, slots=self._slots, now=now, waits=time.monotonic() >= self._waits_from
            )
            try:
                if clocks:
                    await batch.record(clocks, one_by_one=one_by_one)
            except asyncpg.LockNotAvailableError:
                self._waits_from = time.monotonic() + WAITS_AGAIN_AFTER_S
                raise  # the transaction is tried again
            next_due_at = await look.next_due_at(connection)
            if slot_look is not None:
                slot_look.found(next_due_at)
            fired = batch.tally.batch(jobs=batch.looked_at, parked=batch.parked, next_due_at=next_due_at)
            # A lane that was passed on makes its run ready at `now` or later.
            ready_at = min([now, *batch.tally.ready_ats]) if fired.pending else None
            return _Recorded(fired, look.floor, ready_at)

        try:
            recorded = await self._database.prompt.write(
                lambda connection: write(connection, one_by_one=False), hint=_Recorded.hint, look=slot_look
            )
        except _BatchRefusedError:
            recorded = await self._database.prompt.write(
                lambda connection: write(connection, one_by_one=True), hint=_Recorded.hint, look=slot_look
            )
        self._floor.note(slots, began_at=recorded.began_at, earliest=recorded.batch.next_due_at, now=now)
        return recorded.batch

    async def insert_run(
        self, job_id: int, *, now: int, decide: Callable[[DueJob], tuple[NewRun, ...]]
    ) -> list[RunView] | None:
        return await self._insertions.do(job_id, Call(now, decide))

    async def next_due_at(self, *, slots: Sequence[int] | None = None) -> int | None:
        if self._looks is None:
            return await self._next_due_at(slots)
        for slot in self._looks.unknown(among=slots):
            await self._next_due_at([slot], slot_look=self._looks.look(slot))
        return self._looks.earliest(among=slots)

    async def _next_due_at(self, slots: Sequence[int] | None, *, slot_look: Look | None = None) -> int | None:
        look = _Look(self._floor.of(slots), now=None, slots=slots)

        async def read(connection: Connection) -> int | None:
            found = await look.next_due_at(connection)
            if slot_look is not None:
                slot_look.found(found)
            return found

        found = await self._database.prompt.read(read, look=slot_look)
        self._floor.note(slots, began_at=look.floor, earliest=found)
        return found

    async def recovery_places(self) -> list[tuple[int, int]]:
        async def read(connection: Connection) -> list[tuple[int, int]]:
            return [(row[0], row[1]) for row in await connection.fetch(_QUERIES["recovery_places"])]

        return await self._database.prompt.read(read)


class _Recorded(msgspec.Struct, frozen=True, gc=False):
    """One transaction of `record_due`."""

    batch: FiredBatch
    began_at: int  # the floor
    ready_at: int | None  # of the runs that became claimable, at or before the first

    def hint(self) -> Hint | None:
        """What others are to hear of it."""
        return hint_of_runs(ready_at=self.ready_at, stopped=self.batch.cancelled)


class _BatchRefusedError(Exception):
    """The database refused a plan of the batch."""


class _Look:
    """One look for clocks of some slots that are due, from the floor on, or from the beginning if none is there."""

    def __init__(self, floor: int, *, now: int | None, slots: Sequence[int] | None) -> None:
        self.floor = floor
        self._now = now
        self._slots = slots

    async def lock_due(self, connection: Connection, *, limit: int, latest: int) -> list[Row]:
        """The clocks of one batch: the latest, then the earliest that are not among them."""
        clocks: list[Row] = []
        if latest:
            clocks = await self._lock(connection, _QUERIES["lock_latest_due"], limit=min(latest, limit))
        taken = {clock[1] for clock in clocks}
        earliest = await self._lock(connection, _QUERIES["lock_due"], limit=limit - len(clocks))
        clocks += [clock for clock in earliest if clock[1] not in taken]
        if not clocks and self.floor:
            self.floor = 0
            return await self.lock_due(connection, limit=limit, latest=latest)
        return clocks

    async def next_due_at(self, connection: Connection) -> int | None:
        """The earliest clock, and so that of the next look."""
        found: int | None = await connection.fetchval(_QUERIES["next_due_at"], self.floor, self._slots)
        if found is None and self.floor:
            self.floor = 0
            return await self.next_due_at(connection)
        return found

    async def _lock(self, connection: Connection, statement: str, *, limit: int) -> list[Row]:
        return await _rows(connection, statement, self.floor, self._now, self._slots, limit)


class _Batch:
    """One transaction's due clocks, which it holds, and what becomes of them."""

    def __init__(self, connection: Connection, *, decide: Decide, slots: int, now: int, waits: bool) -> None:
        """`waits`: for lanes that another transaction has. Else their jobs are left for another batch."""
        self._connection = connection
        self._waits = waits
        self._decide = decide
        self._slots = slots
        self._now = now
        self._stopped: list[int] = []  # jobs whose clocks are to be removed
        self._newest_live: dict[int, int] = {}
        self.tally = Tally()
        self.parked: list[tuple[int, str]] = []
        self.looked_at = 0

    async def record(self, clocks: Sequence[Row], *, one_by_one: bool) -> None:
        """Read, decide, write."""
        columns = [[clock[column] for clock in clocks] for column in range(3)]
        jobs = {row[0]: tuple(row) for row in await self._connection.fetch(_QUERIES["jobs_of_clocks"], *columns)}
        self._newest_live = {job_id: row[15] for job_id, row in jobs.items() if row[15] is not None}
        busy = list(self._newest_live)
        if busy and not self._waits:
            elsewhere = await find_held_elsewhere(self._connection, busy, slots=self._slots)
            clocks = [clock for clock in clocks if clock[1] not in elsewhere]
            busy = [job_id for job_id in busy if job_id not in elsewhere]
        lanes = await lock_lanes(self._connection, busy, slots=self._slots) if busy else {}
        fires = self._plan(clocks, jobs, lanes)
        if one_by_one:
            for fire in fires:
                await self._record_or_park(fire)
        else:
            try:
                await self._record(fires, self.tally)
            except REFUSED as error:
                raise _BatchRefusedError from error
        await self._settle(fires)

    def _plan(self, clocks: Sequence[Row], jobs: dict[int, Row], lanes: dict[int, Lanes]) -> list[PlannedFire]:
        fires: list[PlannedFire] = []
        must_end = time.monotonic() + PLANNING_LASTS_S
        for slot, job_id, due_at in clocks:
            if self.looked_at and time.monotonic() >= must_end:
                break
            self.looked_at += 1
            row = jobs.get(job_id)
            if row is None or row[6] != JobState.ACTIVE:
                self._stopped.append(job_id)
                continue
            holds, waiting = lanes.get(job_id, ((), None))
            try:
                fires.append(plan_fire(DueJob(stored_job(row), due_at, holds, waiting), self._decide, slot=slot))
            except Exception as error:
                self.parked.append((job_id, reason_of(error)))
        return fires

    async def _record(self, fires: Sequence[PlannedFire], tally: Tally) -> None:
        await record_fires(
            self._connection,
            fires,
            tally,
            decide=self._decide,
            newest_live=self._newest_live,
            slots=self._slots,
            now=self._now,
        )

    async def _record_or_park(self, fire: PlannedFire) -> None:
        own = Tally()
        try:
            async with savepoint(self._connection):
                await self._record([fire], own)
        except REFUSED as error:
            self.parked.append((fire.due.job.job_id, reason_of(error)))
        else:
            self.tally.add(own)

    async def _settle(self, fires: Sequence[PlannedFire]) -> None:
        """What concerns few jobs of a batch: those parked, those without a clock, and lanes that became free."""
        if self.parked:
            states = [NewState(job_id, JobState.ERROR, reason) for job_id, reason in self.parked]
            await set_job_states(self._connection, states, slots=self._slots, now=self._now)
        if stopped := self._stopped + [job_id for job_id, _reason in self.parked]:
            await drop_clocks(self._connection, stopped, slots=self._slots)
        without_clock = [fire.due.job.job_id for fire in fires if fire.plan.next_fire_at is None]
        if without_clock:  # a run that was recorded before cannot set the clock with its end
            await set_clocks_after(self._connection, without_clock, slots=self._slots, now=self._now)
        if freed := self.tally.freed:
            self.tally.pending += await pass_lanes_on(self._connection, freed, slots=self._slots, now=self._now)


async def _rows(connection: Connection, statement: str, *bindings: object) -> list[Row]:
    return [tuple(row) for row in await connection.fetch(statement, *bindings)]
