"""Fires that are decided and not written yet, and what writing them comes to: the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from onbeat.domain.ids import RunKey
from onbeat.domain.recorded import Spans
from onbeat.store.values import DueJob, FiredBatch, FirePlan, JobChange, Lease, LeasedRun, Mark, NewRun, StoredJob

PLANNING_LASTS_S: Final = 0.05
"""Jobs that slept for years under many schedules take tens of ms each: the rest of the batch goes into the next one,
since heartbeats and finishes wait for this thread.
"""

Decide = Callable[[DueJob], FirePlan]
MarksAgain = Callable[[Spans], Sequence[Mark]]
"""The marks that were decided, without the instants that turned out to have a record."""


class PlannedFire(msgspec.Struct, frozen=True, gc=False):
    """A due job and what becomes of it."""

    due: DueJob
    plan: FirePlan
    slot: int


@dataclass(slots=True)
class Tally:
    """What recording has come to so far."""

    leased: list[LeasedRun] = field(default_factory=list)
    runs: int = 0
    pending: int = 0
    marks: int = 0
    conflicts: int = 0
    cancelled: list[RunKey] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)  # jobs in which a lane may have become free
    ready_ats: list[int] = field(default_factory=list)  # of pending runs that were recorded with a lane

    def add(self, other: Tally) -> None:
        """Count what was recorded by itself."""
        self.leased += other.leased
        self.runs += other.runs
        self.pending += other.pending
        self.marks += other.marks
        self.conflicts += other.conflicts
        self.cancelled += other.cancelled
        self.freed += other.freed
        self.ready_ats += other.ready_ats

    def batch(self, *, jobs: int, parked: list[tuple[int, str]], next_due_at: int | None) -> FiredBatch:
        """The contract's answer."""
        return FiredBatch(
            leased=tuple(self.leased),
            jobs=jobs,
            runs=self.runs,
            pending=self.pending,
            marks=self.marks,
            conflicts=self.conflicts,
            cancelled=tuple(self.cancelled),
            parked=tuple(parked),
            next_due_at=next_due_at,
        )


def joined_batch(parts: Sequence[FiredBatch], *, next_due_at: int | None) -> FiredBatch:
    """The contract's answer where several transactions did it."""
    return FiredBatch(
        leased=tuple(run for part in parts for run in part.leased),
        jobs=sum(part.jobs for part in parts),
        runs=sum(part.runs for part in parts),
        pending=sum(part.pending for part in parts),
        marks=sum(part.marks for part in parts),
        conflicts=sum(part.conflicts for part in parts),
        cancelled=tuple(key for part in parts for key in part.cancelled),
        parked=tuple(job for part in parts for job in part.parked),
        next_due_at=next_due_at,
    )


def plan_fire(due: DueJob, decide: Decide, *, slot: int) -> PlannedFire:
    """Decide about one due clock. What this raises parks the job."""
    plan = decide(due)
    if plan.next_fire_at is not None and plan.next_fire_at <= due.due_at:
        raise ValueError(f"its next fire, {plan.next_fire_at}, does not come after {due.due_at}")
    return PlannedFire(due, plan, slot)


def marks_without(before: StoredJob, decide: Callable[[StoredJob], JobChange | None]) -> MarksAgain:
    """How a change of a job decides its marks again."""

    def again(recorded: Spans) -> Sequence[Mark]:
        change = decide(replace(before, recorded=recorded))
        return () if change is None else change.marks

    return again


def reason_of(error: Exception) -> str:
    """What a job is parked with."""
    return str(error) or type(error).__name__


def leased_run(job: StoredJob, run: NewRun, lease: Lease, *, now: int) -> LeasedRun:
    """What the worker gets of a run that was born leased."""
    deadline_at = now + run.max_run_us
    return LeasedRun(
        RunKey(job.job_id, run.scheduled_at), lease.token, 1, run.trigger, job.version, job.namespace, job.name,
        job.key, job.definition, run.payload, run.queue, min(lease.until, deadline_at), now, deadline_at,
        run.late_after,
    )  # fmt: skip
