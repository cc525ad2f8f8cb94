"""A fire becomes a run HERE.

One transaction per batch: the store takes the clocks that are due, planning.py decides in pure Python what becomes of
each, and the store records runs and marks and advances the clocks. A crash anywhere leaves the whole batch or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

import structlog

from onbeat.clock import Clock
from onbeat.domain.ids import format_job_id
from onbeat.domain.model import SECOND_US
from onbeat.domain.rendezvous import Share
from onbeat.services.almanac import Almanac
from onbeat.services.definitions import DefinitionCache
from onbeat.services.handoff import COMES_BACK_WITHIN_S, Handoff, Reservation
from onbeat.services.planning import Planner
from onbeat.services.recovery import Recovery
from onbeat.services.running import RunningHere
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import FiredBatch

log = structlog.get_logger(__name__)

BATCH = 500
"""Clocks per transaction at most, as long as they are on time: large enough that the commit's cost is small, and the
first of many that are due at one moment need not wait for the last.
"""

BATCHES_LATE = 2
"""So many in one transaction once they are late. The rows of a backlog lie all over the file, so a commit writes some
pages for each: more rows to a page and half the commits save a quarter of the CPU. A fresh fire then waits for some
40 ms of others' work, which with more of them would be felt.
"""

LATE_US = SECOND_US // 4
"""A clock that waited longer than this says that others wait behind it."""

TURNS_TO_SEND = 4
"""Turns of the event loop that workers have between two batches while fires are on time: the first of many that are due
at one moment are on their way when the next are recorded. When they are late, the next batch comes first.
"""

BEHIND_US = 2 * SECOND_US
"""A clock that waited longer than this says that the dispatcher is behind."""

HELD_US = 5 * SECOND_US
"""While workers come and go, a fire is recorded when one is there to take it, and only those that wait longer than this
for nobody: that costs a write more, and a node that writes more falls further behind. A sixth of the grace that jobs
have by default, so that there is time to record what many workers will take long to do.
"""

HELD_BESIDE_IDLE_US = SECOND_US // 4
"""The same where what is held may be for workers that have nothing to do: those of a queue without work, since nobody
knows what a fire is for before it is recorded, and those of other nodes, as long as somebody takes what was recorded
for nobody.
"""

FOR_NOBODY = BATCH // 4
"""So many are recorded for nobody beside what workers take, once the oldest has waited for too long."""

MUCH_TAKEN = BATCH // 4
"""From then on a batch waits only for workers that took so much of one lately: of a burst that they would take minutes
for, all is to be recorded within its grace.
"""

SWEEP_AFTER_US = 2 * SECOND_US
"""A fire in a slot of another node that has waited this long is anybody's: that node died, stands still or is behind.
Short of DEAD_AFTER_S, so that what came due at a node's death waits no longer than this and the time between sweeps.
"""

FRESH_SHARE = 0.25
"""Of a batch, what came due last goes before each batch of a backlog that came too late to run."""

LATEST_SHARE = 0.8
"""Of a batch while the dispatcher is behind with what still runs: what came due last goes first, so that fresh fires
start on time and what is inside grace runs. The rest, and one at least, is the oldest, so that nothing waits for ever.
"""


@dataclass(frozen=True, slots=True)
class DispatchReport:
    """What one batch did, for the loop and for metrics."""

    batch: FiredBatch
    full: bool  # there is more that is due now
    was_too_late: bool  # most of it was past grace, and nothing of that runs


class Dispatch:
    """Turns due clocks into runs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        handoff: Handoff,
        definitions: DefinitionCache,
        almanac: Almanac,
        running: RunningHere,
        recovery: Recovery,
        lease_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._handoff = handoff
        self._planner = Planner(definitions=definitions, almanac=almanac, recovery=recovery)
        self._almanac = almanac
        self._running = running
        self._recovery = recovery
        self._lease_us = round(lease_s * SECOND_US)
        self._oldest_due_at: int | None = None  # as the last batch left it
        self._room_was_for_others = False  # those in line took little of the last batch that was made to their measure
        self._has_backlog = False  # more than a batch came too late to run and is not recorded yet
        self._is_backlogs_turn = False
        self._is_marking = True  # most of the last batch does not run, so workers have no part in it
        self._taken = 0  # by workers in line, of a batch lately
        self._share: Share | None = None
        self._filling = asyncio.Lock()
        self.late = Wake()  # a batch was recorded, and has left behind what waits for long

    @property
    def is_alone(self) -> bool:
        """Does no other node serve slots of this database?"""
        return self._share is None

    def serves_any(self, slots: Collection[int]) -> bool:
        """Is one of these its own?"""
        return bool(slots) and (self._share is None or not set(slots).isdisjoint(self._share.own))

    @property
    def _own_slots(self) -> tuple[int, ...] | None:
        """None: all of them."""
        return None if self._share is None else self._share.own

    def serve(self, share: Share | None) -> None:
        """From the next batch on, serve these slots; None: all of them."""
        self._share = share

    async def fire_due(self, *, only: int | None = None) -> DispatchReport:
        """Record one batch of due fires of this node's slots and hand what is ready to workers that wait.

        `only`: of this one job, in whichever slot.
        """
        await self._clock.refresh()
        await self._fill_recovery()
        if only is None and self._is_backlogs_turn:
            self._is_backlogs_turn = False
            return await self._record_backlog()
        await self._handoff.line_up(turns=1 if self._is_late else TURNS_TO_SEND)
        room = 0 if only is not None else await self._wait_for_room()
        now = self._clock.now()
        reservation = self._reserve(now=now)  # in the same turn of the loop: nobody of those in line leaves in between
        late_us = self._late_us(now=now)
        limit = BATCH if only is not None else self._size(room, late_us=late_us)
        report = await self._record(
            reservation,
            now=now,
            limit=limit,
            latest=self._latest(limit, late_us=late_us),
            only=only,
            slots=self._own_slots,
        )
        self._leave(report.batch)
        if only is None:
            self._taken = max(len(report.batch.leased), self._taken // 2)
            self._is_marking = 2 * report.batch.runs < report.batch.jobs
            self._room_was_for_others = limit < BATCH and 2 * len(report.batch.leased) < report.batch.jobs
            # Not what is marked: of fires that a blackout holds back inside grace, others came due with them that run.
            is_left = report.was_too_late and self._late_us(now=now) > BEHIND_US
            self._has_backlog = is_left and (self._has_backlog or report.batch.jobs >= BATCH)
            self._is_backlogs_turn = self._has_backlog
        return report

    async def _record_backlog(self) -> DispatchReport:
        """A batch of what came too late to run. Between two of these, fresh fires have their turn."""
        now = self._clock.now()
        report = await self._record(
            self._reserve(now=now),
            now=now,
            limit=BATCH * BATCHES_LATE,
            latest=0,
            only=None,
            slots=self._own_slots,
            in_any_order=True,
        )
        self._leave(report.batch)
        return report

    async def help_out(self) -> DispatchReport | None:
        """Record a batch beside the one under way, where the oldest that is due has waited for long. None: it has not,
        or the database takes one batch after the other.
        """
        return await self.fire_due() if self._is_late and self._store.is_shared else None

    def _leave(self, batch: FiredBatch) -> None:
        self._oldest_due_at = batch.next_due_at
        if batch.jobs and self._is_late:  # without any, what is left is in other hands
            self.late.set()

    @property
    def _is_late(self) -> bool:
        return self._late_us(now=self._clock.now()) >= LATE_US

    def _late_us(self, *, now: int) -> int:
        """How late the oldest clock is that the last batch left."""
        return 0 if self._oldest_due_at is None else max(now - self._oldest_due_at, 0)

    async def _wait_for_room(self) -> int:
        """How many fires workers take now; where there is no room, after waiting for those that come and go. 0: nobody
        takes any, or nobody is waited for.
        """
        if self._room_was_for_others:
            return 0
        limit_s = (self._held_us - self._late_us(now=self._clock.now())) / SECOND_US
        if limit_s <= 0 and self._taken >= MUCH_TAKEN:
            limit_s = COMES_BACK_WITHIN_S
        return await self._handoff.wait_for_room(limit_s=limit_s)

    def _size(self, room: int, *, late_us: int) -> int:
        """How many fires the next batch records at most: as many as workers take, unless that would hold them up."""
        largest = BATCH if late_us < LATE_US else BATCH * BATCHES_LATE
        if self._has_backlog:
            return max(int(BATCH * FRESH_SHARE), 1)
        if not room or (self._is_marking and late_us > BEHIND_US):
            return largest
        if late_us >= self._held_us:
            room = max(room + FOR_NOBODY, BATCH)
        return min(room, largest)

    def _latest(self, limit: int, *, late_us: int) -> int:
        """How many of a batch are what came due last."""
        if late_us <= BEHIND_US:
            return 0
        return limit if self._has_backlog else int(limit * LATEST_SHARE)

    @property
    def _held_us(self) -> int:
        """How late a fire is at most before it is recorded for nobody while workers come and go."""
        if self._handoff.is_wanted_outside:
            return 0
        if self._handoff.has_idle_queue or not (self.is_alone or self._handoff.is_left):
            return HELD_BESIDE_IDLE_US
        return HELD_US

    async def sweep(self) -> DispatchReport | None:
        """Record one batch of other nodes' slots, if something in them is overdue. None: nothing is.

        Where their own node fires them too, the fence lets each fire through once.
        """
        if self._share is None:
            return None
        now, slots = self._clock.now(), self._share.foreign
        oldest_due_at = await self._store.fires.next_due_at(slots=slots)
        if oldest_due_at is None or oldest_due_at > now - SWEEP_AFTER_US:
            return None
        await self._fill_recovery()
        reservation = self._reserve(now=now)
        return await self._record(reservation, now=now, limit=BATCH, latest=0, only=None, slots=slots)

    async def _fill_recovery(self) -> None:
        async with self._filling:
            if not self._recovery.is_filled:
                self._recovery.fill(await self._store.fires.recovery_places())

    def _reserve(self, *, now: int) -> Reservation:
        """Those who wait for work, set aside for a batch that is recorded at once."""
        return self._handoff.reserve(until=now + self._lease_us)

    async def _record(
        self,
        reservation: Reservation,
        *,
        now: int,
        limit: int,
        latest: int,
        only: int | None,
        slots: tuple[int, ...] | None,
        in_any_order: bool = False,
    ) -> DispatchReport:
        batch: FiredBatch | None = None
        try:
            # After `now`: a job that is due by then was created before, and its calendar before it, though by another
            # node.
            await self._almanac.refresh(now=now)
            decide = self._planner.plan_batch(now=now, reservation=reservation)
            batch = await self._store.fires.record_due(
                now=now,
                limit=limit,
                decide=decide,
                latest=latest,
                only=only,
                slots=slots,
                in_any_order=in_any_order,
            )
        finally:
            orphans = self._handoff.settle(reservation, batch.leased if batch is not None else ())
        self._tell(batch)
        if orphans:
            await self._store.leases.release([(run.key, run.token) for run in orphans], now=self._clock.now())
            for queue in {run.queue for run in orphans}:
                self._handoff.wake(queue)
        return DispatchReport(
            batch=batch,
            full=batch.next_due_at is not None and batch.next_due_at <= now,
            was_too_late=2 * decide.too_late > decide.clocks,
        )

    def _tell(self, batch: FiredBatch) -> None:
        for job_id, reason in batch.parked:
            log.error("job_parked", job_id=format_job_id(job_id), reason=reason)
        if batch.pending:
            self._handoff.wake(None)
        self._running.cancel(batch.cancelled)
