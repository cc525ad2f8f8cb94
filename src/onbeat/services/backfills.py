"""Backfills: instants of the past that become runs after all, batch after batch.

How far one came stands in its row, which moves in the transaction that writes the runs: a restart goes on there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from onbeat.clock import Clock
from onbeat.domain.backfill import (
    DEFAULT_RATE_PER_S,
    MOST_INSTANTS,
    BackfillOrder,
    BackfillState,
    Span,
    adds_up,
    blacked_out,
    cut_out,
    first_of,
    left_after,
)
from onbeat.domain.errors import BackfillNotFound, DefinitionError, RequestError, StateConflict
from onbeat.domain.ids import format_job_id
from onbeat.domain.misfire import InstantRange
from onbeat.domain.model import SECOND_US, Definition, QueueTarget
from onbeat.domain.overlap import Admitted, Lanes
from onbeat.domain.priority import standing
from onbeat.domain.states import JobState, Trigger
from onbeat.domain.timetable import Timetable, after_finish_of
from onbeat.services.almanac import Almanac
from onbeat.services.definitions import DefinitionCache
from onbeat.services.handoff import Handoff
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import (
    BackfillStep,
    DueBackfill,
    DueJob,
    Mark,
    MarkCut,
    NewBackfill,
    NewRun,
    Recorded,
    StoredBackfill,
    StoredJob,
)

log = structlog.get_logger(__name__)

LOOKED_AT: Final = 500
"""Instants per batch at most, since heartbeats and finishes wait for the thread that looks."""

HELD_BACK_US: Final = 5 * SECOND_US
"""A backfill of a paused job looks again after this."""

Looked = Sequence[tuple[int, Recorded | None]]

_FILLED: Final = frozenset({JobState.ACTIVE, JobState.COMPLETED})


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """What somebody wants made up for: planned instants with `from_at <= t < to_at`."""

    from_at: int
    to_at: int
    order: BackfillOrder = BackfillOrder.OLDEST
    rate_per_s: int = DEFAULT_RATE_PER_S
    most: int = MOST_INSTANTS


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """What a backfill would find now. `in_marks` counts those that a blackout holds back or that stay too."""

    instants: int
    with_runs: int
    in_marks: int
    unaccountable: int  # of `in_marks`: the mark and its timetable no longer agree, so it stays as it is
    blacked_out: int  # have no run, and get none
    to_create: int


class Backfills:
    """Begins backfills, goes on with them, tells how far they are."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        almanac: Almanac,
        definitions: DefinitionCache,
        handoff: Handoff,
        wake: Wake,
    ) -> None:
        self._store = store
        self._clock = clock
        self._almanac = almanac
        self._definitions = definitions
        self._handoff = handoff
        self._wake = wake

    async def preview(self, job: StoredJob, request: BackfillRequest) -> BackfillPreview:
        """What it would do. Raises as `begin` does, and changes nothing."""
        await self._almanac.refresh(now=self._clock.now())
        span, instants = await asyncio.to_thread(self._check, job, request)
        timetable = self._timetable(job)
        judge = _Judge(self._almanac, self._definitions, job)
        with_runs = in_marks = unaccountable = held_back = free = 0
        while chosen := first_of(timetable, span, order=request.order, number=LOOKED_AT):
            looked = list(zip(chosen, await self._store.backfills.look_up(job.job_id, chosen), strict=True))
            judged = await asyncio.to_thread(judge.judge, looked)
            with_runs += sum(found is not None and found.mark is None for _, found in looked)
            in_marks += sum(found is not None and found.mark is not None for _, found in looked)
            unaccountable += judged.unaccountable
            held_back += judged.blacked_out
            free += len(judged.free)
            span = left_after(span, chosen[-1], order=request.order)
        return BackfillPreview(instants, with_runs, in_marks, unaccountable, held_back, min(free, request.most))

    async def begin(self, job: StoredJob, request: BackfillRequest) -> StoredBackfill:
        """Write it down; the loop does the rest. Raises RequestError, StateConflict."""
        await self._almanac.refresh(now=self._clock.now())
        span, instants = await asyncio.to_thread(self._check, job, request)
        new = NewBackfill(
            job.job_id, span.start, span.end, request.order, request.rate_per_s, most=request.most, instants=instants
        )
        begun = await self._store.backfills.begin(new, now=self._clock.now())
        if begun is None:
            raise StateConflict("another backfill of the job is going on", remedy="wait for its end, or cancel it")
        self._wake.set()
        return begun

    async def get(self, job_id: int, number: int) -> StoredBackfill:
        """Raises BackfillNotFound."""
        found = await self._store.backfills.get(job_id, number)
        if found is None:
            raise BackfillNotFound
        return found

    async def find(self, job_id: int) -> list[StoredBackfill]:
        """Those of a job, newest first."""
        return await self._store.backfills.find(job_id)

    async def cancel(self, job_id: int, number: int) -> StoredBackfill:
        """It creates nothing from now on; runs that it has created stay. Raises BackfillNotFound."""
        found = await self._store.backfills.cancel(job_id, number, now=self._clock.now())
        if found is None:
            raise BackfillNotFound
        return found

    async def advance(self) -> int | None:
        """One batch of the backfill that is due first. Answer: when the next batch of any is due, if there is one."""
        now = self._clock.now()
        await self._almanac.refresh(now=now)
        done = await self._store.backfills.advance(
            now=now, choose=self._choose, decide=lambda due, looked: self._decide(due, looked, now=now)
        )
        if done.backfill is not None and done.backfill.reason is not None:
            log.warning("backfill_given_up", job_id=format_job_id(done.backfill.job_id), reason=done.backfill.reason)
        for queue in {run.queue for run in done.runs if run.lane is not None}:
            self._handoff.wake(queue)
        return done.next_at

    def _check(self, job: StoredJob, request: BackfillRequest) -> tuple[Span, int]:
        """The span to look at, and how many planned instants lie in it."""
        if job.state not in _FILLED:
            remedy = "resume it first" if job.state is JobState.PAUSED else None
            raise StateConflict(f"the job is {job.state}", field="state", remedy=remedy)
        now = self._clock.now()
        if request.from_at >= request.to_at:
            raise RequestError("from does not come before to", field="from", remedy="give an earlier one")
        if request.to_at > now:
            raise RequestError("to lies in the future", field="to", remedy="instants to come fire by themselves")
        if after_finish_of(self._definition(job).schedules) is not None:
            raise StateConflict("the instants of every_after_finish are not known", field="schedules")
        # What is due and not yet recorded is the dispatcher's.
        end = request.to_at if job.next_fire_at is None else min(request.to_at, job.next_fire_at)
        span = Span(request.from_at, end)
        if span.end <= span.start:
            raise RequestError("everything in the range is still to fire by itself", field="from")
        instants = self._timetable(job).count(span.start - 1, span.end - 1)
        if instants > MOST_INSTANTS:
            raise RequestError(
                f"{instants} planned instants lie in the range; one backfill takes {MOST_INSTANTS}",
                field="from",
                remedy="give a shorter range, and the others after it",
            )
        return span, instants

    def _choose(self, found: DueBackfill) -> tuple[int, ...]:
        job, backfill = found.due.job, found.backfill
        if job.state not in _FILLED:
            return ()
        end = backfill.left_to if job.next_fire_at is None else min(backfill.left_to, job.next_fire_at)
        span = Span(backfill.left_from, end)
        return first_of(self._timetable(job), span, order=backfill.order, number=LOOKED_AT)

    def _decide(self, found: DueBackfill, looked: Looked, *, now: int) -> BackfillStep:
        job, backfill = found.due.job, found.backfill
        span = Span(backfill.left_from, backfill.left_to)
        if job.state is JobState.DELETED:
            return BackfillStep(span.start, span.end, now, state=BackfillState.CANCELLED, reason="the job was deleted")
        if job.state not in _FILLED:
            return BackfillStep(span.start, span.end, now + HELD_BACK_US)
        judge = _Judge(self._almanac, self._definitions, job)
        free = judge.judge(looked).free
        left = backfill.most - backfill.created
        taken = free[: min(backfill.rate_per_s, left)]
        if len(taken) < len(free):  # what comes after the last one is the next batch's
            looked = looked[: [instant for instant, _ in looked].index(taken[-1]) + 1] if taken else ()
        if looked:
            span = left_after(span, looked[-1][0], order=backfill.order)
        is_done = len(taken) == left or (len(taken) == len(free) and len(looked) < LOOKED_AT)
        return BackfillStep(
            left_from=span.start,
            left_to=span.end,
            next_at=now + len(taken) * SECOND_US // backfill.rate_per_s,
            looked_at=len(looked),
            runs=_runs(found.due, self._definition(job), taken, rate_per_s=backfill.rate_per_s),
            cuts=judge.cuts(looked, frozenset(taken)),
            state=BackfillState.DONE if is_done else BackfillState.RUNNING,
        )

    def _definition(self, job: StoredJob) -> Definition:
        return self._definitions.get(job.definition)

    def _timetable(self, job: StoredJob) -> Timetable:
        return self._almanac.timetable(job.namespace, self._definition(job).schedules, job_id=job.job_id)


@dataclass(frozen=True, slots=True)
class _Judged:
    free: tuple[int, ...]  # can become runs, in the order in which they were looked at
    unaccountable: int
    blacked_out: int


class _Judge:
    """Decides which instants can become runs. Remembers the marks it has seen."""

    def __init__(self, almanac: Almanac, definitions: DefinitionCache, job: StoredJob) -> None:
        self._almanac = almanac
        self._definitions = definitions
        self._job = job
        self._timetables: dict[tuple[int, int], Timetable | None] = {}

    def judge(self, looked: Looked) -> _Judged:
        """An instant becomes a run if nothing accounts for it, or a mark that can do without it, outside blackouts."""
        without_run = [(instant, found) for instant, found in looked if found is None or found.mark is not None]
        blackouts = self._almanac.blackouts(self._job.namespace, self._job.tags)
        held_back = blacked_out(blackouts, [instant for instant, _ in without_run])
        stuck = {instant for instant, found in without_run if found is not None and not self._can_leave(instant, found)}
        free = tuple([instant for instant, _ in without_run if instant not in stuck and instant not in held_back])
        return _Judged(free, len(stuck), len(held_back))

    def cuts(self, looked: Looked, taken: frozenset[int]) -> tuple[MarkCut, ...]:
        """What becomes of the marks that the taken instants lie in."""
        touched: dict[int, tuple[Recorded, list[int]]] = {}
        for instant, found in looked:
            if instant in taken and found is not None and found.mark is not None:
                touched.setdefault(found.mark.scheduled_at, (found, []))[1].append(instant)
        return tuple([self._cut(found, instants) for found, instants in touched.values()])

    def _cut(self, found: Recorded, instants: list[int]) -> MarkCut:
        mark, timetable = found.mark, self._timetable(found)
        assert mark is not None
        if mark.count == 1 or timetable is None:
            return MarkCut(mark.scheduled_at, ())
        rest = [
            Mark(piece.first, piece.last, piece.count, mark.state, mark.reason, mark.blocked_by)
            for piece in cut_out(timetable, _range(mark), instants)
        ]
        return MarkCut(mark.scheduled_at, tuple(rest))

    def _can_leave(self, instant: int, found: Recorded) -> bool:
        if found.mark is not None and found.mark.count == 1:
            return True
        timetable = self._timetable(found)
        return timetable is not None and timetable.next_after(instant - 1) == instant

    def _timetable(self, found: Recorded) -> Timetable | None:
        """That of a collapsed mark. None: it cannot be had, or says something else than the mark."""
        mark = found.mark
        assert mark is not None
        key = (mark.scheduled_at, mark.until)
        if key not in self._timetables:
            try:
                definition = self._definitions.get(found.definition)
                timetable = self._almanac.timetable(self._job.namespace, definition.schedules, job_id=self._job.job_id)
            except DefinitionError:
                self._timetables[key] = None
            else:
                self._timetables[key] = timetable if adds_up(timetable, _range(mark)) else None
        return self._timetables[key]


def _range(mark: Mark) -> InstantRange:
    return InstantRange(mark.scheduled_at, mark.until, mark.count)


def _runs(due: DueJob, definition: Definition, instants: Sequence[int], *, rate_per_s: int) -> tuple[NewRun, ...]:
    lanes = Lanes(max_running=definition.max_running, policy=definition.overlap, holds=due.holds, waiting=due.waiting)
    runs: list[NewRun] = []
    for number, scheduled_at in enumerate(instants):
        admission = lanes.admit(scheduled_at, Trigger.BACKFILL)
        target = definition.target
        runs.append(
            NewRun(
                scheduled_at=scheduled_at,
                trigger=Trigger.BACKFILL,
                ready_at=due.due_at + number * SECOND_US // rate_per_s,
                late_after=scheduled_at + definition.grace_s * SECOND_US,
                lane=admission.lane if isinstance(admission, Admitted) else None,
                queue=target.queue if isinstance(target, QueueTarget) else None,
                max_run_us=definition.max_run_time_s * SECOND_US,
                priority=standing(definition.priority, Trigger.BACKFILL),
            )
        )
    return tuple(runs)
