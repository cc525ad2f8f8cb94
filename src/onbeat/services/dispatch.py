"""A fire becomes a run HERE.

One transaction per batch: the store takes the clocks that are due, `_plan` decides in pure Python what becomes of
each, and the store records runs and marks and advances the clocks. A crash anywhere leaves the whole batch or none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from onbeat.clock import Clock
from onbeat.domain.blackout import FireSplit, open_windows, plan_around
from onbeat.domain.ids import RunKey
from onbeat.domain.model import SECOND_US, Definition, QueueTarget
from onbeat.domain.moved_start import MovedStart, moved_start
from onbeat.domain.overlap import Admitted, Lanes, Skipped, Waits
from onbeat.domain.priority import standing
from onbeat.domain.rendezvous import Share
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger
from onbeat.domain.timetable import after_finish_of, calendar_names, only_instant
from onbeat.services.almanac import Almanac
from onbeat.services.definitions import DefinitionCache
from onbeat.services.handoff import Handoff, Reservation
from onbeat.services.recovery import Recovery
from onbeat.services.running import RunningHere
from onbeat.store.contract import Store
from onbeat.store.values import DueJob, FiredBatch, FirePlan, Mark, NewRun

log = structlog.get_logger(__name__)

BATCH = 500
"""Clocks per transaction at most: large enough that the commit's cost vanishes."""

BEHIND_US = 2 * SECOND_US
"""A clock that waited longer than this says that the dispatcher is behind."""

SWEEP_AFTER_US = 2 * SECOND_US
"""A fire in a slot of another node that has waited this long is anybody's: that node died, stands still or is behind.
Short of DEAD_AFTER_S, so that what came due at a node's death waits no longer than this and the time between sweeps.
"""

LATEST_SHARE = 0.8
"""Of a batch while the dispatcher is behind: what came due last goes first, so that fresh fires start on time while a
backlog is recorded and what is still inside grace runs. The rest is the oldest, so that nothing waits for ever."""


@dataclass(frozen=True, slots=True)
class DispatchReport:
    """What one batch did, for the loop and for metrics."""

    batch: FiredBatch
    full: bool  # there is more that is due now


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
        self._definitions = definitions
        self._almanac = almanac
        self._running = running
        self._recovery = recovery
        self._lease_us = round(lease_s * SECOND_US)
        self._oldest_due_at: int | None = None  # as the last batch left it
        self._share: Share | None = None
        self._filling = asyncio.Lock()

    @property
    def is_alone(self) -> bool:
        """Does no other node serve slots of this database?"""
        return self._share is None

    def serve(self, share: Share | None) -> None:
        """From the next batch on, serve these slots; None: all of them."""
        self._share = share

    async def fire_due(self, *, only: int | None = None) -> DispatchReport:
        """Record one batch of due fires of this node's slots and hand what is ready to workers that wait.

        `only`: of this one job, in whichever slot.
        """
        await self._clock.refresh()
        now = self._clock.now()
        is_behind = self._oldest_due_at is not None and self._oldest_due_at < now - BEHIND_US
        report = await self._fire(
            now=now,
            latest=round(BATCH * LATEST_SHARE) if is_behind else 0,
            only=only,
            slots=None if self._share is None else self._share.own,
        )
        self._oldest_due_at = report.batch.next_due_at
        return report

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
        return await self._fire(now=now, latest=0, only=None, slots=slots)

    async def _fire(self, *, now: int, latest: int, only: int | None, slots: tuple[int, ...] | None) -> DispatchReport:
        async with self._filling:
            if not self._recovery.is_filled:
                self._recovery.fill(await self._store.fires.recovery_places())
        # After `now`: a job that is due by then was created before, and its calendar before it, though by another node.
        await self._almanac.refresh(now=now)
        self._recovery.begin(now=now)
        reservation = self._handoff.reserve(until=now + self._lease_us)
        batch: FiredBatch | None = None
        try:
            batch = await self._store.fires.record_due(
                now=now,
                limit=BATCH,
                decide=lambda due: self._plan(due, now=now, reservation=reservation),
                latest=latest,
                only=only,
                slots=slots,
            )
        finally:
            orphans = self._handoff.settle(reservation, batch.leased if batch is not None else ())
        self._tell(batch)
        if orphans:
            await self._store.leases.release([(run.key, run.token) for run in orphans], now=self._clock.now())
            for queue in {run.queue for run in orphans}:
                self._handoff.wake(queue)
        return DispatchReport(batch=batch, full=batch.next_due_at is not None and batch.next_due_at <= now)

    def _tell(self, batch: FiredBatch) -> None:
        for job_id, reason in batch.parked:
            log.error("job_parked", job_id=job_id, reason=reason)
        if batch.pending:
            self._handoff.wake(None)
        self._running.cancel(batch.cancelled)

    def _plan(self, due: DueJob, *, now: int, reservation: Reservation) -> FirePlan:
        definition = self._definitions.get(due.job.job_id, due.job.version, due.job.definition)
        timetable = self._almanac.timetable(due.job.namespace, definition.schedules, job_id=due.job.job_id)
        due_at: int | None = due.due_at
        if calendar_names(definition.schedules):  # one of them may have changed since the clock was set
            due_at = timetable.next_after(due.due_at - 1)
        after_finish = after_finish_of(definition.schedules)
        if after_finish is not None:
            timetable = only_instant(due.due_at)
        if due_at is None or due_at > now:
            return FirePlan(next_fire_at=due_at, state=JobState.COMPLETED if due_at is None else None)
        is_moved = definition.spread_s or definition.jitter_s
        moved = moved_start(definition, job_id=due.job.job_id) if is_moved else None
        blackouts = self._almanac.blackouts(due.job.namespace, due.job.tags)
        split = plan_around(
            timetable,
            open_windows(blackouts, after=due_at - 1, until=now),
            due_at=due_at,
            now=now,
            grace_us=definition.grace_s * SECOND_US,
            policy=definition.misfire,
            moved=moved,
        )
        builder = _PlanBuilder(definition=definition, moved=moved, now=now, reservation=reservation)
        builder.mark(split)
        if split.live or split.catch_up:
            self._admit(split, due, definition, builder, now=now)
        if after_finish is not None:  # its clock is set where its last run has ended
            return builder.build(next_fire_at=None, state=None)
        completed = split.next_fire_at is None
        return builder.build(next_fire_at=split.next_fire_at, state=JobState.COMPLETED if completed else None)

    def _admit(self, split: FireSplit, due: DueJob, definition: Definition, builder: _PlanBuilder, *, now: int) -> None:
        lanes = Lanes(
            max_running=definition.max_running, policy=definition.overlap, holds=due.holds, waiting=due.waiting
        )
        # Live fires choose their lanes first: a fresh run is never blocked by its own job's catch-up.
        for scheduled_at in split.live:
            builder.admit(lanes, scheduled_at, Trigger.SCHEDULE, ready_at=max(now, builder.start_of(scheduled_at)))
        for number, scheduled_at in enumerate(split.catch_up):
            earliest = now + number * definition.misfire.spacing_s * SECOND_US
            ready_at = self._recovery.place(RunKey(due.job.job_id, scheduled_at), earliest=earliest)
            builder.admit(lanes, scheduled_at, Trigger.CATCH_UP, ready_at=ready_at)


class _PlanBuilder:
    """Collects what the admissions of one job's fires come to."""

    def __init__(self, *, definition: Definition, moved: MovedStart | None, now: int, reservation: Reservation) -> None:
        self._definition = definition
        self._moved = moved
        self._now = now
        self._reservation = reservation
        self._runs: dict[int, NewRun] = {}
        self._replaced: list[Mark] = []
        self._cancelled: list[int] = []
        self.marks: list[Mark] = []

    def start_of(self, scheduled_at: int) -> int:
        """When a fire is to start: its planned instant, unless the job's starts are moved."""
        return scheduled_at if self._moved is None else self._moved.start_of(scheduled_at)

    def mark(self, split: FireSplit) -> None:
        """Note the instants that nobody dispatched in time and those that a blackout holds back."""
        self.marks += [Mark(missed.first, missed.last, missed.count, RunState.MISSED) for missed in split.missed]
        self.marks += [
            Mark(found.first, found.last, found.count, RunState.SKIPPED, SkipReason.BLACKOUT)
            for found in split.blacked_out
        ]

    def admit(self, lanes: Lanes, scheduled_at: int, trigger: Trigger, *, ready_at: int) -> None:
        """Put one fire to the overlap rule and note what follows."""
        match lanes.admit(scheduled_at, trigger):
            case Skipped(blocked_by):
                self._skip(scheduled_at, blocked_by)
            case Waits(blocked_by, replaces, cancels):
                self._replace(replaces, blocked_by)
                if cancels is not None and cancels not in self._runs:
                    self._cancelled.append(cancels)
                self._add(scheduled_at, trigger, ready_at=ready_at, lane=None)
            case Admitted(lane, place, replaces, displaces):
                self._replace(replaces, scheduled_at)
                starts_at = ready_at if place is None else place
                self._add(scheduled_at, trigger, ready_at=starts_at, lane=lane, displaces=displaces)

    def build(self, *, next_fire_at: int | None, state: JobState | None) -> FirePlan:
        """The whole plan."""
        return FirePlan(
            next_fire_at=next_fire_at,
            runs=tuple(self._runs.values()),
            marks=tuple(sorted(self.marks, key=lambda mark: mark.scheduled_at)),
            replaced=tuple(self._replaced),
            cancelled=tuple(dict.fromkeys(self._cancelled)),
            state=state,
        )

    def _add(
        self, scheduled_at: int, trigger: Trigger, *, ready_at: int, lane: int | None, displaces: int | None = None
    ) -> None:
        definition = self._definition
        queue = definition.target.queue if isinstance(definition.target, QueueTarget) else None
        lease = self._reservation.take(queue) if lane is not None and ready_at <= self._now else None
        start = self.start_of(scheduled_at)
        self._runs[scheduled_at] = NewRun(
            scheduled_at=scheduled_at,
            trigger=trigger,
            ready_at=ready_at,
            late_after=start + definition.grace_s * SECOND_US,
            moved_us=start - scheduled_at,
            lane=lane,
            queue=queue,
            lease=lease,
            max_run_us=definition.max_run_time_s * SECOND_US,
            priority=standing(definition.priority, trigger),
            displaces=displaces,
        )

    def _replace(self, scheduled_at: int | None, blocked_by: int) -> None:
        if scheduled_at is None:
            return
        if self._runs.pop(scheduled_at, None) is not None:  # waited in this very plan: it was never written
            self._skip(scheduled_at, blocked_by)
        else:
            self._replaced.append(self._overlap_mark(scheduled_at, blocked_by))

    def _skip(self, scheduled_at: int, blocked_by: int) -> None:
        # Neighbours that the same run blocked become one range; fires come in ascending order, so a run that was
        # recorded in between never lies inside it.
        last = self.marks[-1] if self.marks else None
        if (
            last is not None
            and last.state == RunState.SKIPPED
            and last.blocked_by == blocked_by
            and not any(last.until < recorded < scheduled_at for recorded in self._runs)
            and not any(last.until < mark.scheduled_at < scheduled_at for mark in self.marks)
        ):
            self.marks[-1] = Mark(
                last.scheduled_at, scheduled_at, last.count + 1, last.state, last.reason, last.blocked_by
            )
        else:
            self.marks.append(self._overlap_mark(scheduled_at, blocked_by))

    @staticmethod
    def _overlap_mark(scheduled_at: int, blocked_by: int) -> Mark:
        return Mark(scheduled_at, scheduled_at, 1, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by)
