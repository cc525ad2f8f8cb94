"""Jobs and runs in any state, one line each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.store.contract import Store
from onbeat.store.values import (
    DueJob,
    EndRun,
    Finish,
    Finished,
    FirePlan,
    Lease,
    LeasedRun,
    LiveRun,
    NewJob,
    NewRun,
    RetryRun,
    RunView,
    StoredJob,
    Verdict,
)

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
"""The moment at which a test begins."""
LEASE_US = 30 * SECOND

_numbers = itertools.count(1)


def new_job(**changes: Any) -> NewJob:
    """An active job whose clock is due at NOW."""
    number = next(_numbers)
    job = NewJob(
        job_id=number * 7_919_000_017,
        namespace="default",
        key=None,
        name=f"Job {number}",
        tags=(),
        definition='{"version": "first"}',
        max_running=1,
        state=JobState.ACTIVE,
        next_fire_at=NOW,
    )
    return replace(job, **changes)


def new_lease(*, until: int = NOW + LEASE_US, worker: str = "worker-1") -> Lease:
    """A lease with a token of its own."""
    return Lease(token=os.urandom(16), worker=worker, until=until)


def new_run(scheduled_at: int = NOW, **changes: Any) -> NewRun:
    """A scheduled run in lane 0 that is ready at its instant."""
    run = NewRun(
        scheduled_at=scheduled_at,
        trigger=Trigger.SCHEDULE,
        ready_at=scheduled_at,
        late_after=scheduled_at + 30 * SECOND,
        lane=0,
    )
    return replace(run, **changes)


def outcome(kind: OutcomeKind = OutcomeKind.SUCCEEDED, **changes: Any) -> Outcome:
    """The end of an attempt that began at NOW and lasted 1.5 ms."""
    status = 200 if kind is OutcomeKind.SUCCEEDED else None
    return replace(Outcome(kind=kind, started_at=NOW, duration_us=1_500, status=status), **changes)


FAILURE = outcome(OutcomeKind.HTTP_STATUS, status=503, error="the receiver answered 503")


def never(*_arguments: object) -> Verdict:
    """A decision that must not be asked for."""
    raise AssertionError("asked for a decision that nothing calls for")


@dataclass(slots=True)
class Judge:
    """Gives one verdict and remembers what it was asked."""

    verdict: Verdict
    seen: list[tuple[LiveRun, str]] = field(default_factory=list)

    def __call__(self, run: LiveRun, definition: str, _item: Finish | None = None) -> Verdict:
        self.seen.append((run, definition))
        return self.verdict


def fail() -> Judge:
    return Judge(EndRun(RunState.FAILED, "the receiver answered 503"))


def retry(ready_at: int = NOW + SECOND, *, counts: bool = True, spends: bool = True) -> Judge:
    return Judge(RetryRun(ready_at, counts=counts, spends=spends))


class Maker:
    """Makes jobs and runs through the contract only, so that it serves every engine."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def job(self, *, now: int = NOW, **changes: Any) -> StoredJob:
        """A job; fields as in NewJob."""
        (job,) = await self.store.jobs.create([new_job(**changes)], now=now)
        assert job is not None
        return job

    async def runs(self, job: StoredJob, *runs: NewRun, now: int = NOW) -> list[RunView]:
        """Record runs of a job as they are given."""
        written = await self.store.fires.insert_run(job.job_id, now=now, decide=lambda _due: runs)
        assert written is not None
        return written

    async def pending(self, job: StoredJob, scheduled_at: int = NOW, **changes: Any) -> RunKey:
        """A run that waits for a worker."""
        (view,) = await self.runs(job, new_run(scheduled_at, **changes))
        return view.key

    async def waiting(self, job: StoredJob, scheduled_at: int = NOW, **changes: Any) -> RunKey:
        """A run that waits for a lane."""
        return await self.pending(job, scheduled_at, lane=None, **changes)

    async def running(
        self, job: StoredJob, scheduled_at: int = NOW, *, lease: Lease | None = None, **changes: Any
    ) -> tuple[RunKey, bytes]:
        """A run in the hands of a worker, with the token of its lease."""
        lease = lease or new_lease()
        key = await self.pending(job, scheduled_at, lease=lease, **changes)
        return key, lease.token

    async def retrying(self, job: StoredJob, scheduled_at: int = NOW, *, ready_at: int = NOW + SECOND) -> RunKey:
        """A run whose first attempt failed and that waits for its second."""
        key, token = await self.running(job, scheduled_at)
        await self.finish(key, token, FAILURE, decide=retry(ready_at))
        return key

    async def ended(self, job: StoredJob, scheduled_at: int = NOW, *, state: RunState = RunState.SUCCEEDED) -> RunKey:
        """A run that ended at NOW."""
        key, token = await self.running(job, scheduled_at)
        if state is RunState.SUCCEEDED:
            await self.finish(key, token)
        else:
            await self.finish(key, token, FAILURE, decide=Judge(EndRun(state)))
        return key

    async def finish(
        self,
        key: RunKey,
        token: bytes,
        result: Outcome | None = None,
        *,
        now: int = NOW,
        decide: Any = never,
    ) -> Finished:
        """One worker's word about one attempt."""
        (answer,) = await self.store.leases.finish([Finish(key, token, result or outcome())], now=now, decide=decide)
        return answer

    async def claim_one(self, *, now: int = NOW, queue: str | None = None) -> LeasedRun | None:
        """Claim with a single lease."""
        claimed = await self.store.leases.claim([new_lease(until=now + LEASE_US)], now=now, queue=queue)
        return claimed[0] if claimed else None

    async def view(self, key: RunKey) -> RunView:
        """The run, which must exist."""
        view = await self.store.runs.get(key)
        assert view is not None
        return view

    async def reread(self, job: StoredJob) -> StoredJob:
        """The job as it stands, which must exist."""
        found = await self.store.jobs.get(job.job_id)
        assert found is not None
        return found

    async def fire(self, plan: FirePlan, *, now: int = NOW, limit: int = 100) -> Any:
        """Record all due clocks under one plan."""
        return await self.store.fires.record_due(now=now, limit=limit, decide=lambda _due: plan)

    async def due(self, *, now: int = NOW) -> Sequence[DueJob]:
        """What decisions get to see; every clock moves on by an hour."""
        seen: list[DueJob] = []

        def decide(due: DueJob) -> FirePlan:
            seen.append(due)
            return FirePlan(next_fire_at=due.due_at + 3_600 * SECOND)

        await self.store.fires.record_due(now=now, limit=100, decide=decide)
        return seen
