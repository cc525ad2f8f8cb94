"""Random histories of leases against a small model: the invariants of the lease, whatever the order of events.

I1 one row per fire, I2 one live holder, I3 only the current token ends an attempt, I4 what has ended stays as it
ended, I5 attempts are counted, I8 a job holds no more lanes than it may. The model knows the rules, not the tables.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.store.factories import LEASE_US, NOW, SECOND, Maker, new_run, outcome
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.open import open_store
from onbeat.store.values import (
    EndRun,
    Finish,
    FinishResult,
    JobChange,
    Lease,
    LeaseStatus,
    Page,
    RetryRun,
    RunFilter,
    StoredJob,
)

Value = TypeVar("Value")
MAX_RUN_US = 300 * SECOND
JOBS = 2


@dataclass
class ModelRun:
    """What must be true of one run."""

    state: RunState
    attempt: int = 0
    lane: bool = False
    ready_at: int = 0
    token: bytes | None = None
    lease_until: int = 0
    deadline_at: int | None = None
    cancel_requested: bool = False
    finished: set[bytes] = field(default_factory=set)


class LeaseMachine(RuleBasedStateMachine):
    """The store and the model go through the same events."""

    fresh: Callable[[], AbstractContextManager[str]]
    """Makes the database of one history."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = ExitStack()
        self.now = NOW
        self.runs: dict[RunKey, ModelRun] = {}
        self.tokens: list[tuple[RunKey, bytes]] = []
        self.limits: dict[int, int] = {}
        self.jobs: list[StoredJob] = []

    def wait(self, work: Coroutine[Any, Any, Value]) -> Value:
        return self.loop.run_until_complete(work)

    @initialize(limits=st.lists(st.integers(1, 2), min_size=JOBS, max_size=JOBS))
    def open(self, limits: list[int]) -> None:
        self.store = self.wait(open_store(self.stack.enter_context(type(self).fresh())))
        self.make = Maker(self.store)
        for number, limit in enumerate(limits):
            job = self.wait(self.make.job(job_id=number, max_running=limit))
            self.jobs.append(job)
            self.limits[job.job_id] = limit

    def teardown(self) -> None:
        if self.jobs:
            self.wait(self.store.close())
        self.stack.close()
        self.loop.close()

    def held(self, job_id: int) -> int:
        return sum(run.lane for key, run in self.runs.items() if key.job_id == job_id)

    def leave(self, key: RunKey) -> None:
        """The model's promotion: oldest waiting run first (all are schedule-triggered here)."""
        self.runs[key].lane = False
        self.promote(key.job_id)

    def promote(self, job_id: int) -> None:
        while self.held(job_id) < self.limits[job_id]:
            waiting = [
                key
                for key, run in self.runs.items()
                if key.job_id == job_id and run.state is RunState.PENDING and not run.lane
            ]
            if not waiting:
                return
            chosen = self.runs[min(waiting, key=lambda key: key.scheduled_at)]
            chosen.lane, chosen.ready_at = True, max(chosen.ready_at, self.now)

    @rule(seconds=st.sampled_from([1, 5, 31, 301]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(which=st.integers(0, JOBS - 1))
    def record(self, which: int) -> None:
        job = self.jobs[which]
        scheduled_at = NOW + len(self.runs) * SECOND
        free = self.held(job.job_id) < self.limits[job.job_id]
        views = self.wait(self.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1000)))
        lane = next(lane for lane in range(3) if lane not in {view.lane for view in views}) if free else None
        run = new_run(scheduled_at, lane=lane, ready_at=self.now, max_run_us=MAX_RUN_US)
        self.wait(self.make.runs(job, run, now=self.now))
        self.runs[RunKey(job.job_id, scheduled_at)] = ModelRun(RunState.PENDING, lane=free, ready_at=self.now)

    @rule(count=st.integers(1, 3))
    def claim(self, count: int) -> None:
        leases = [Lease(os.urandom(16), "w", self.now + LEASE_US) for _ in range(count)]
        claimed = self.wait(self.store.leases.claim(leases, now=self.now, queue=None))
        ready = [
            key
            for key, run in self.runs.items()
            if run.state is RunState.PENDING and run.lane and run.ready_at <= self.now
        ]
        assert len(claimed) == min(count, len(ready))
        for leased in claimed:
            run = self.runs[leased.key]
            assert leased.key in ready
            run.state, run.attempt, run.token = RunState.RUNNING, run.attempt + 1, leased.token
            run.deadline_at = run.deadline_at or self.now + MAX_RUN_US
            run.lease_until = min(self.now + LEASE_US, run.deadline_at)
            assert (leased.attempt, leased.lease_until) == (run.attempt, run.lease_until)
            self.tokens.append((leased.key, leased.token))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), kind=st.sampled_from(["success", "end", "retry"]))
    def finish(self, data: st.DataObject, kind: str) -> None:
        key, token = data.draw(st.sampled_from(self.tokens))
        run = self.runs[key]
        result = outcome() if kind == "success" else outcome(OutcomeKind.NO_ANSWER)
        verdict = RetryRun(self.now + SECOND) if kind == "retry" else EndRun(RunState.FAILED)
        (answer,) = self.wait(
            self.store.leases.finish([Finish(key, token, result)], now=self.now, decide=lambda *_: verdict)
        )
        if run.state is RunState.RUNNING and run.token == token:
            run.finished.add(token)
            run.token = None
            if kind == "retry" and not run.cancel_requested:
                assert answer.result is FinishResult.WILL_RETRY
                run.state, run.ready_at = RunState.PENDING, self.now + SECOND
                return
            assert answer.result is FinishResult.ENDED
            if kind == "success" and not run.cancel_requested:
                run.state = RunState.SUCCEEDED
            else:
                run.state = RunState.CANCELLED if kind == "retry" else RunState.FAILED
            self.leave(key)
        elif token in run.finished:
            assert answer.result is FinishResult.REPEATED
        elif run.state in (RunState.PENDING, RunState.RUNNING):
            assert answer.result is FinishResult.LEASE_LOST
        else:
            assert answer.result is FinishResult.RUN_TERMINAL

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        key, token = data.draw(st.sampled_from(self.tokens))
        run = self.runs[key]
        (status,) = self.wait(self.store.leases.extend([(key, token)], now=self.now, until=self.now + LEASE_US))
        if run.token == token and run.lease_until >= self.now:
            assert run.deadline_at is not None
            run.lease_until = min(self.now + LEASE_US, run.deadline_at)
            assert status is (LeaseStatus.CANCEL if run.cancel_requested else LeaseStatus.LIVE)
        else:
            assert status is LeaseStatus.LEASE_LOST

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        key, token = data.draw(st.sampled_from(self.tokens))
        run = self.runs[key]
        count = self.wait(self.store.leases.release([(key, token)], now=self.now))
        assert count == int(run.token == token)
        if count:
            run.token = None
            if run.cancel_requested:
                run.state = RunState.CANCELLED
                self.leave(key)
            else:
                run.state, run.attempt, run.ready_at = RunState.PENDING, run.attempt - 1, self.now

    @rule(retries=st.booleans())
    def expire(self, retries: bool) -> None:
        verdict = RetryRun(self.now) if retries else EndRun(RunState.FAILED)
        answers = self.wait(self.store.leases.expire(now=self.now, limit=1000, decide=lambda *_: verdict))
        overdue = {
            key
            for key, run in self.runs.items()
            if run.deadline_at is not None
            and (
                (run.state is RunState.RUNNING and (run.lease_until < self.now or run.deadline_at <= self.now))
                or (run.state is RunState.PENDING and run.deadline_at <= self.now)
            )
        }
        assert {answer.key for answer in answers} == overdue
        left: list[RunKey] = []
        for key in overdue:
            run = self.runs[key]
            run.token = None
            if not retries:
                run.state = RunState.FAILED
            elif run.deadline_at is not None and run.deadline_at <= self.now:
                run.state = RunState.TIMED_OUT
            elif run.cancel_requested:
                run.state = RunState.CANCELLED
            else:
                run.state, run.ready_at = RunState.PENDING, self.now
                continue
            run.lane = False
            left.append(key)
        for job_id in {key.job_id for key in left}:
            self.promote(job_id)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.runs)))
        run = self.runs[key]
        state = self.wait(self.store.leases.cancel(key, now=self.now))
        if run.state is RunState.RUNNING:
            run.cancel_requested = True
        elif run.state is RunState.PENDING:
            run.state = RunState.CANCELLED
            if run.lane:
                self.leave(key)
        assert state is run.state

    @rule(which=st.integers(0, JOBS - 1), limit=st.integers(1, 3))
    def change_limit(self, which: int, limit: int) -> None:
        job_id = self.jobs[which].job_id
        change = JobChange(definition=f'{{"max_running": {limit}}}', max_running=limit)
        self.wait(self.store.jobs.change(job_id, now=self.now, decide=lambda _job: change))
        self.limits[job_id] = limit
        self.promote(job_id)

    @invariant()
    def store_and_model_agree(self) -> None:
        if not self.jobs:
            return
        views = self.wait(self.store.runs.find(RunFilter(), Page(limit=1000)))
        assert len(views) == len(self.runs)
        for view in views:
            run = self.runs[view.key]
            assert (view.state, view.attempt) == (run.state, run.attempt)
            if view.state in (RunState.PENDING, RunState.RUNNING):
                assert (view.lane is not None) == run.lane
                assert view.cancel_requested == (run.cancel_requested and view.state is RunState.RUNNING)


@contextmanager
def data_file() -> Iterator[str]:
    """A data file that lasts as long as the block."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"{directory}/onbeat.db"


def check_leases(open_fresh: Callable[[], AbstractContextManager[str]], *, examples: int) -> None:
    class Machine(LeaseMachine):
        fresh = staticmethod(open_fresh)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_leases_agree_with_the_model_on_sqlite() -> None:
    check_leases(data_file, examples=25)


def test_leases_agree_with_the_model_on_postgres(databases: Databases) -> None:
    check_leases(databases.fresh, examples=10)
