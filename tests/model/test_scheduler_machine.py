"""Random lives of a scheduler, judged by one sentence: every planned instant is recorded exactly once.

Hypothesis draws jobs, edits, pauses, also of jobs by themselves, deletions, manual runs, outages, deaths of workers and
of the whole process, and attempts that succeed, fail or are never heard of again. The services and the store are the
product's own; only the clock is turned by hand. A small model keeps, per job, which timetable held over which stretch
of time; from that it knows which instants must have a record, which must not, and how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.support.database import Data, looking_into
from tests.support.postgres import Databases
from tests.support.scheduler import LEASE_S, SECOND, START, Scheduler, every, scheduling

from onbeat.clock import ManualClock
from onbeat.domain.backfill import BackfillOrder
from onbeat.domain.errors import OnbeatError
from onbeat.domain.model import AutoPausePolicy, MisfirePolicy, RetryPolicy, decode_definition
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState
from onbeat.domain.timetable import Timetable, compile_timetable
from onbeat.services.assignment import Assignment
from onbeat.services.backfills import BackfillRequest
from onbeat.store.values import Finish, FinishResult, StoredJob

EVERY_S = st.sampled_from([1, 2, 5, 60])
OVERLAPS = st.sampled_from(["queue", "skip", "allow", "replace"])
MISFIRES = st.sampled_from([MisfirePolicy("skip"), MisfirePolicy("run_latest"), MisfirePolicy("catch_up", max=3)])
AUTO_PAUSES = st.sampled_from([None, AutoPausePolicy(failures=1), AutoPausePolicy(failures=2, failing_s=10)])
OUTCOMES = st.sampled_from([OutcomeKind.SUCCEEDED, OutcomeKind.NO_ANSWER, OutcomeKind.UNSENDABLE, OutcomeKind.REFUSED])


@dataclass
class Known:
    """What the model knows of a job."""

    job_id: int
    timetable: Timetable
    since: int  # instants later than this belong to `timetable`
    settled: set[int] = field(default_factory=set)  # instants of former stretches that must be recorded
    state: JobState = JobState.ACTIVE

    def close_stretch(self, now: int) -> None:
        """The timetable stops holding: what it planned until now is owed, what comes later is not."""
        self.settled |= set(_instants(self.timetable, self.since, now))
        self.since = now


def _instants(timetable: Timetable, after: int, until: int) -> list[int]:
    found: list[int] = []
    instant = timetable.next_after(after)
    while instant is not None and instant <= until:
        found.append(instant)
        instant = timetable.next_after(instant)
    return found


class SchedulerMachine(RuleBasedStateMachine):
    """The product and the model, side by side."""

    jobs = Bundle("jobs")
    held = Bundle("held")
    stale = Bundle("stale")

    def __init__(self) -> None:
        super().__init__()
        self.owned = contextlib.ExitStack()
        self.data = self.make_database()
        self.look = self.owned.enter_context(looking_into(self.data))
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock(START + 500_000)
        self.known: dict[int, Known] = {}
        self.stack: contextlib.AsyncExitStack | None = None
        self.scheduler: Scheduler

    def make_database(self) -> Data:
        """An empty one, which goes with `owned`."""
        folder = self.owned.enter_context(tempfile.TemporaryDirectory(prefix="onbeat-machine-"))
        return Path(folder) / "onbeat.sqlite3"

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def start(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.scheduler = await self.stack.enter_async_context(scheduling(self.data, clock=self.clock))

    def teardown(self) -> None:
        if self.stack is not None:
            self.do(self.stack.aclose())
        self.loop.close()
        self.owned.close()

    # ------------------------------------------------------------ people

    @rule(
        target=jobs,
        every_s=EVERY_S,
        overlap=OVERLAPS,
        misfire=MISFIRES,
        lanes=st.integers(1, 3),
        grace_s=st.integers(0, 40),
        auto_pause=AUTO_PAUSES,
    )
    def create(
        self,
        every_s: int,
        overlap: str,
        misfire: MisfirePolicy,
        lanes: int,
        grace_s: int,
        auto_pause: AutoPausePolicy | None,
    ) -> int:
        job: StoredJob = self.do(
            self.scheduler.job(
                every(every_s),
                overlap=overlap,
                misfire=misfire,
                max_running=lanes,
                grace_s=grace_s,
                retry=RetryPolicy(max_attempts=3, initial_s=1, factor=2),
                auto_pause=auto_pause,
            )
        )
        self.known[job.job_id] = Known(job.job_id, self._timetable(job), self.clock.now())
        return job.job_id

    @rule(job_id=jobs, every_s=EVERY_S, overlap=OVERLAPS)
    def edit(self, job_id: int, every_s: int, overlap: str) -> None:
        known = self.known[job_id]
        job = self._attempt(self.scheduler.edit(self._stored(job_id), every(every_s), overlap=overlap, max_running=1))
        if job is None:
            return
        timetable = self._timetable(job)
        if timetable is not known.timetable:  # compiled timetables are shared: another one means other schedules
            known.close_stretch(self.clock.now())
            known.timetable = timetable

    @rule(job_id=jobs, cancel=st.booleans())
    def pause(self, job_id: int, cancel: bool) -> None:
        known = self.known[job_id]
        if (
            self._attempt(self.scheduler.jobs.pause(job_id, note=None, cancel=cancel))
            and known.state == JobState.ACTIVE
        ):
            known.close_stretch(self.clock.now())
            known.state = JobState.PAUSED

    @rule(job_id=jobs, replay=st.booleans())
    def resume(self, job_id: int, replay: bool) -> None:
        known = self.known[job_id]
        resuming = self.scheduler.resumptions.resume(job_id) if replay else self.scheduler.jobs.resume(job_id)
        if self._attempt(resuming) and known.state == JobState.PAUSED:
            known.close_stretch(self.clock.now())  # the instants of the pause: owed as skipped(paused)
            known.state = JobState.ACTIVE

    @rule(job_id=jobs)
    def delete(self, job_id: int) -> None:
        known = self.known[job_id]
        if known.state == JobState.DELETED:
            return
        self.do(self.scheduler.jobs.delete(job_id, if_version=None))
        known.close_stretch(self.clock.now())
        known.state = JobState.DELETED

    @rule(job_id=jobs)
    def trigger(self, job_id: int) -> None:
        self._attempt(self.scheduler.runs.trigger(job_id, payload=None))

    @rule(
        job_id=jobs,
        past_s=st.integers(2, 90),
        length_s=st.integers(1, 60),
        newest=st.booleans(),
        rate=st.integers(1, 50),
        most=st.integers(1, 40),
    )
    def backfill(self, job_id: int, past_s: int, length_s: int, newest: bool, rate: int, most: int) -> None:
        """Instants of the past become runs: those that were owed, in place of their marks, and some that never were."""
        start = self.clock.now() - past_s * SECOND
        asked = BackfillRequest(
            start,
            min(start + length_s * SECOND, self.clock.now()),
            BackfillOrder.NEWEST if newest else BackfillOrder.OLDEST,
            rate,
            most,
        )
        job = self._stored(job_id)
        preview = self._attempt(self.scheduler.backfills.preview(job, asked))
        begun = self._attempt(self.scheduler.backfills.begin(job, asked))
        if begun is None:  # another one is going on, or the job cannot have one
            return
        assert preview.instants == begun.instants
        self.backfills_go_on()

    @rule()
    def backfills_go_on(self) -> None:
        """One batch; what is left comes at its rate."""
        self.do(self.scheduler.backfills.advance())
        for known in self.known.values():
            self._learn_backfilled(known)

    def _learn_backfilled(self, known: Known) -> None:
        rows = self.look("select scheduled_at from runs where job_id = ? and trigger = 'backfill'", known.job_id)
        for (instant,) in rows:
            if instant <= known.since:  # never owed: before the job, or between two stretches
                known.settled.add(instant)

    # ------------------------------------------------------------ the machinery

    @rule()
    def dispatch(self) -> None:
        while self.do(self.scheduler.dispatch.fire_due()).full:
            pass

    @rule(target=held, limit=st.integers(1, 5))
    def claim(self, limit: int) -> list[Assignment]:
        assignments: list[Assignment] = self.do(self.scheduler.claim(limit=limit))
        return assignments

    @rule(target=stale, assignments=consumes(held), kind=OUTCOMES)
    def finish(self, assignments: list[Assignment], kind: OutcomeKind) -> list[Assignment]:
        self.do(self.scheduler.end(assignments, kind))
        self._learn_paused()
        return assignments

    @rule(target=stale, assignments=consumes(held))
    def give_back(self, assignments: list[Assignment]) -> list[Assignment]:
        self.do(self.scheduler.leasing.release([(run.key, run.token) for run in assignments]))
        return assignments

    @rule(target=stale, assignments=consumes(held))
    def worker_dies(self, assignments: list[Assignment]) -> list[Assignment]:
        """Its leases end, and somebody takes the runs back."""
        self.clock.advance(LEASE_S + 1)
        self.do(self.scheduler.reap.expire_leases())
        self._learn_paused()
        return assignments

    def _learn_paused(self) -> None:
        """Jobs that paused by themselves: what was due and not dispatched belongs to the pause."""
        for known in self.known.values():
            job = self._stored(known.job_id)
            if job.state == JobState.PAUSED and known.state == JobState.ACTIVE:
                assert job.paused_at is not None
                known.close_stretch(job.paused_at)
                known.state = JobState.PAUSED

    @rule(assignments=stale)
    def a_stale_worker_reports(self, assignments: list[Assignment]) -> None:
        """It changes nothing: the rows before and after are the same."""
        before = self._rows()
        outcome = Outcome(OutcomeKind.SUCCEEDED, self.clock.now(), 1, 200)
        items = [Finish(run.key, run.token, outcome) for run in assignments]
        for answer in self.do(self.scheduler.leasing.finish(items)):
            assert answer.result in (FinishResult.LEASE_LOST, FinishResult.RUN_TERMINAL, FinishResult.REPEATED)
        assert self._rows() == before

    @rule()
    def restart(self) -> None:
        """The process dies and another opens the file."""
        assert self.stack is not None
        self.do(self.stack.aclose())
        self.do(self._open())

    @rule(seconds=st.sampled_from([0.3, 1, 2.7, 10, 31, 65, 600]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # ------------------------------------------------------------ the sentence

    @invariant()
    def every_planned_instant_is_recorded_exactly_once(self) -> None:
        if self.stack is None:
            return
        clocks = dict(self.look("select job_id, next_fire_at from clocks"))
        for known in self.known.values():
            recorded = self._recorded(known)
            twice = [instant for instant, count in Counter(recorded).items() if count > 1]
            assert twice == []
            owed = set(known.settled)
            if known.state == JobState.ACTIVE:
                # What is due and not yet dispatched is still ahead of the clock; nothing else may be missing.
                assert known.job_id in clocks
                owed |= set(_instants(known.timetable, known.since, clocks[known.job_id] - 1))
            else:
                assert known.job_id not in clocks
            assert set(recorded) == owed
        counts = self.do(self.scheduler.store.counts())
        states = dict(self.look("select state, count(*) from live_runs group by state"))
        assert counts.pending == states.get("pending", 0)
        assert counts.running == states.get("running", 0)
        jobs = dict(self.look("select state, count(*) from jobs group by state"))
        assert {state: count for state, count in counts.jobs_by_state.items() if count} == jobs
        streaks = self.look(
            "select jobs.job_id from failing_jobs join jobs using (job_id) where state = 'active' and failures > 1"
        )
        assert streaks == []  # each of them should have paused its job
        lanes = self.look(
            "select job_id, lane from live_runs where lane is not null group by job_id, lane having count(*) > 1"
        )
        assert lanes == []

    def _recorded(self, known: Known) -> list[int]:
        recorded: list[int] = []
        rows = self.look(
            "select scheduled_at, until, count from runs where job_id = ? and trigger <> 'manual'", known.job_id
        )
        for first, until, count in rows:
            if until is None:
                recorded.append(first)
                continue
            # The range was planned by the timetable of its time: each of the owed instants inside belongs to it.
            inside = [instant for instant in self._all_planned(known) if first <= instant <= until]
            assert len(inside) == count
            recorded.extend(inside)
        return recorded

    def _all_planned(self, known: Known) -> list[int]:
        return sorted(known.settled | set(_instants(known.timetable, known.since, self.clock.now())))

    def _stored(self, job_id: int) -> StoredJob:
        job: StoredJob = self.do(self.scheduler.store.jobs.get(job_id))
        return job

    def _timetable(self, job: StoredJob) -> Timetable:
        return compile_timetable(decode_definition(job.definition).schedules, job_id=job.job_id)

    def _attempt(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a person asks for may be refused; then nothing has changed."""
        try:
            return self.do(work)
        except OnbeatError:
            return None

    def _rows(self) -> list[Any]:
        return [
            *self.look("select * from live_runs order by slot, job_id, scheduled_at"),
            *self.look("select * from ended_runs order by slot, job_id, scheduled_at"),
        ]


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
def test_the_machine_on_postgresql(databases: Databases) -> None:
    class PostgresMachine(SchedulerMachine):
        def make_database(self) -> Data:
            return self.owned.enter_context(databases.fresh())

    run_state_machine_as_test(
        PostgresMachine,
        settings=settings(
            max_examples=15, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
