"""What becomes of the fires of due jobs, decided in pure Python: the decision inside the dispatcher's transaction.

Jobs that plan by the same timetable and rules and are due at the same instant are decided once for all of them, but for
who takes the run and by how much its start is moved: after an outage, and at every full minute, most of a batch is of
that kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from onbeat.domain.blackout import FireSplit, open_windows, plan_around
from onbeat.domain.ids import RunKey
from onbeat.domain.misfire import InstantRange
from onbeat.domain.model import SECOND_US, Definition
from onbeat.domain.moved_start import MovedStart, moved_start
from onbeat.domain.overlap import Admitted, Lanes, Skipped, Waits
from onbeat.domain.priority import standing
from onbeat.domain.recorded import Spans, without_recorded
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger
from onbeat.domain.timetable import Timetable, only_instant
from onbeat.services.almanac import Almanac
from onbeat.services.definitions import DefinitionCache, Planned
from onbeat.services.handoff import Reservation
from onbeat.services.recovery import Places, Recovery
from onbeat.store.values import DueJob, FirePlan, Mark, NewRun


class Planner:
    """Knows what decisions are made from, beside the due job itself."""

    def __init__(self, *, definitions: DefinitionCache, almanac: Almanac, recovery: Recovery) -> None:
        self._definitions = definitions
        self._almanac = almanac
        self._recovery = recovery

    def plan_batch(self, *, now: int, reservation: Reservation) -> BatchDecision:
        """The decision for the jobs of one transaction."""
        return BatchDecision(
            definitions=self._definitions,
            almanac=self._almanac,
            places=self._recovery.begin(now=now),
            reservation=reservation,
            now=now,
        )


@dataclass(slots=True)
class _Decided:
    """What holds for every job with the same instants and rules."""

    split: FireSplit
    is_on_time: bool  # where it was planned
    is_shared: bool
    plan: FirePlan | None = None  # the whole of it, but for leases and starts, where no live run of the job has a say


class BatchDecision:
    """Decides for one job after the other, at one moment."""

    def __init__(
        self,
        *,
        definitions: DefinitionCache,
        almanac: Almanac,
        places: Places,
        reservation: Reservation,
        now: int,
    ) -> None:
        self._definitions = definitions
        self._almanac = almanac
        self._places = places
        self._reservation = reservation
        self._now = now
        self._decided: dict[tuple[Timetable, int, tuple[object, ...]], _Decided] = {}
        self.clocks = 0
        self.too_late = 0
        """Of the clocks, those that were taken up past their grace, and nothing runs."""

    def __call__(self, due: DueJob) -> FirePlan:
        """What becomes of one due clock. Raises DefinitionError where nobody can say."""
        job, now = due.job, self._now
        planned = self._definitions.planned(job.definition)
        definition = planned.definition
        timetable = planned.timetable or self._almanac.timetable(job.namespace, definition.schedules, job_id=job.job_id)
        due_at: int | None = due.due_at
        if planned.calendar_names:  # one of them may have changed since the clock was set
            due_at = timetable.next_after(due.due_at - 1)
        if due_at is None or due_at > now:
            return FirePlan(next_fire_at=due_at, state=JobState.COMPLETED if due_at is None else None)
        is_moved = definition.spread_s or definition.jitter_s
        moved = moved_start(definition, job_id=job.job_id) if is_moved else None
        decided = self._decide(due, planned, timetable, due_at=due_at, moved=moved)
        plan = self._whole(due, planned, decided, moved=moved)
        self.clocks += 1
        self.too_late += not decided.is_on_time and not plan.runs
        return _marking_less(plan, timetable, due.recorded) if due.recorded else plan

    def _whole(self, due: DueJob, planned: Planned, decided: _Decided, *, moved: MovedStart | None) -> FirePlan:
        split = decided.split
        # What is caught up has a place of its own. Marks alone are the same beside live runs too.
        is_common = not split.catch_up and (not split.live or (not due.holds and due.waiting is None))
        # Of a fire on time, and alone, the start can be moved afterwards.
        moves_after = moved is not None and is_common and decided.is_shared and len(split.live) == 1
        is_kept = is_common and (moved is None or moves_after)
        plan = decided.plan if is_kept else None
        if plan is None:
            builder = _PlanBuilder(planned=planned, moved=None if moves_after else moved)
            builder.mark(split)
            self._admit(split, due, planned.definition, builder)
            plan = builder.build(split)
            if is_kept:
                decided.plan = plan
        if moved is not None and moves_after:
            plan = replace(plan, runs=tuple([self._moved(run, moved) for run in plan.runs]))
        return self._with_leases(plan, queue=planned.queue) if plan.runs else plan

    def _moved(self, run: NewRun, moved: MovedStart) -> NewRun:
        """A run that was planned as if its start was not moved."""
        start = moved.start_of(run.scheduled_at)
        moved_us = start - run.scheduled_at
        return replace(run, ready_at=max(self._now, start), late_after=run.late_after + moved_us, moved_us=moved_us)

    def _with_leases(self, plan: FirePlan, *, queue: str | None) -> FirePlan:
        """Its runs that may begin now are given to workers that wait for them."""
        runs = tuple(
            [run if run.lane is None or run.ready_at > self._now else self._leased(run, queue) for run in plan.runs]
        )
        return replace(plan, runs=runs)

    def _leased(self, run: NewRun, queue: str | None) -> NewRun:
        lease = self._reservation.take(queue)
        return run if lease is None else replace(run, queue=queue, lease=lease)

    def _decide(
        self, due: DueJob, planned: Planned, timetable: Timetable, *, due_at: int, moved: MovedStart | None
    ) -> _Decided:
        definition, now = planned.definition, self._now
        blackouts = self._almanac.blackouts(due.job.namespace, due.job.tags)
        windows = open_windows(blackouts, after=due_at - 1, until=now) if blackouts else ()
        if planned.after_finish is not None:
            timetable = only_instant(due.due_at)
        grace_us = definition.grace_s * SECOND_US
        # A fire that is on time where it was planned is so where its start is later: then nothing depends on the start.
        is_on_time = due_at >= now - grace_us
        is_shared = not windows and (moved is None or is_on_time)
        key = (timetable, due_at, planned.rules)
        decided = self._decided.get(key) if is_shared else None
        if decided is None:
            decided = _Decided(
                plan_around(
                    timetable,
                    windows,
                    due_at=due_at,
                    now=now,
                    grace_us=grace_us,
                    policy=definition.misfire,
                    moved=None if is_shared else moved,
                ),
                is_on_time,
                is_shared,
            )
            if is_shared:
                self._decided[key] = decided
        return decided

    def _admit(self, split: FireSplit, due: DueJob, definition: Definition, builder: _PlanBuilder) -> None:
        now = self._now
        lanes = Lanes(
            max_running=definition.max_running, policy=definition.overlap, holds=due.holds, waiting=due.waiting
        )
        # A clock that was set back shows instants whose runs are live: those would meet themselves in their lanes.
        live = {hold.scheduled_at for hold in due.holds} | {due.waiting}
        # Live fires choose their lanes first: a fresh run is never blocked by its own job's catch-up.
        for scheduled_at in split.live:
            if scheduled_at in live:
                continue
            builder.admit(lanes, scheduled_at, Trigger.SCHEDULE, ready_at=max(now, builder.start_of(scheduled_at)))
        for number, scheduled_at in enumerate(split.catch_up):
            if scheduled_at in live:
                continue
            earliest = now + number * definition.misfire.spacing_s * SECOND_US
            ready_at = self._places.place(RunKey(due.job.job_id, scheduled_at), earliest=earliest)
            builder.admit(lanes, scheduled_at, Trigger.CATCH_UP, ready_at=ready_at)


def _marking_less(plan: FirePlan, timetable: Timetable, recorded: Spans) -> FirePlan:
    """The plan with the recorded instants cut out of its marks: the clock was set back behind them."""
    return replace(
        plan,
        marks=tuple(
            [
                replace(mark, scheduled_at=piece.first, until=piece.last, count=piece.count)
                for mark in plan.marks
                for piece in without_recorded(
                    timetable, InstantRange(mark.scheduled_at, mark.until, mark.count), recorded
                )
            ]
        ),
    )


class _PlanBuilder:
    """Collects what the admissions of one job's fires come to."""

    def __init__(self, *, planned: Planned, moved: MovedStart | None) -> None:
        self._planned = planned
        self._moved = moved
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

    def build(self, split: FireSplit) -> FirePlan:
        """The whole plan, without leases."""
        sets_clock = self._planned.after_finish is None  # otherwise the end of the job's last run does
        next_fire_at = split.next_fire_at if sets_clock else None
        return FirePlan(
            next_fire_at=next_fire_at,
            runs=tuple(self._runs.values()),
            marks=tuple(sorted(self.marks, key=lambda mark: mark.scheduled_at)),
            replaced=tuple(self._replaced),
            cancelled=tuple(dict.fromkeys(self._cancelled)),
            state=JobState.COMPLETED if sets_clock and next_fire_at is None else None,
        )

    def _add(
        self, scheduled_at: int, trigger: Trigger, *, ready_at: int, lane: int | None, displaces: int | None = None
    ) -> None:
        definition = self._planned.definition
        start = self.start_of(scheduled_at)
        self._runs[scheduled_at] = NewRun(
            scheduled_at=scheduled_at,
            trigger=trigger,
            ready_at=ready_at,
            late_after=start + definition.grace_s * SECOND_US,
            moved_us=start - scheduled_at,
            lane=lane,
            queue=self._planned.queue,
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
