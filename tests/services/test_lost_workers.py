"""Lanes are free again whatever became of the worker, the job or its limits: nothing but the runs' rows counts."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import LEASE_S, SECOND, Scheduler, every, scheduling

from onbeat.domain.ids import RunKey
from onbeat.domain.model import RetryPolicy
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.services.assignment import Assignment
from onbeat.store.values import NodeInfo, Page, RunFilter, StoredJob

HOUR = 3_600


@pytest.fixture
async def scheduler(data: str) -> AsyncIterator[Scheduler]:
    async with scheduling(data) as opened:
        yield opened


async def keys(scheduler: Scheduler, job: StoredJob, *states: RunState) -> list[RunKey]:
    """Runs of a job in these states, newest first."""
    where = RunFilter(job_id=job.job_id, states=frozenset(states))
    return [run.key for run in await scheduler.store.runs.find(where, Page(limit=100))]


async def fire_next(scheduler: Scheduler, every_s: int = HOUR) -> None:
    """Turn the clock to the next instant of the job's grid."""
    grid = every_s * SECOND
    scheduler.clock.set((scheduler.clock.now() // grid + 1) * grid)
    await scheduler.dispatch.fire_due()


async def outlive_the_lease(scheduler: Scheduler) -> None:
    """Whoever held runs has been silent for too long."""
    scheduler.clock.advance(LEASE_S + 1)
    await scheduler.reap.expire_leases()


@pytest.mark.parametrize(
    ("attempts", "state", "counted"), [(5, RunState.PENDING, 1), (1, RunState.FAILED, 1)], ids=["some left", "used up"]
)
async def test_runs_of_a_worker_that_is_forgotten_first_are_taken_back(
    scheduler: Scheduler, attempts: int, state: RunState, counted: int
) -> None:
    now = scheduler.clock.now()
    await scheduler.store.nodes.beat(NodeInfo("dead", "worker", started_at=now, seen_at=now))
    for _ in range(3):
        await scheduler.job(every(HOUR), retry=RetryPolicy(max_attempts=attempts))
    await fire_next(scheduler)
    held = await scheduler.leasing_for("dead").claim(queue=None, limit=3, wait_s=0)
    assert len(held) == 3
    scheduler.clock.advance(LEASE_S + 1)
    await scheduler.store.nodes.prune(seen_before=scheduler.clock.now())
    assert await scheduler.store.nodes.find(seen_after=0) == []
    assert await scheduler.reap.expire_leases() == 3
    runs = [await scheduler.runs.get(lost.key) for lost in held]
    assert [(run.state, run.attempt) for run in runs] == [(state, counted)] * 3


async def test_a_job_with_one_lane_survives_twenty_deaths_of_its_worker(scheduler: Scheduler) -> None:
    choose = random.Random(3)
    job = await scheduler.job(every(HOUR), max_running=1, retry=RetryPolicy(max_attempts=1))
    for number in range(20):
        await fire_next(scheduler)
        worker = scheduler.leasing_for(f"worker {number}")
        (held,) = await worker.claim(queue=None, limit=10, wait_s=0)
        for _ in range(choose.randrange(4)):  # how long it lived: so many heartbeats
            scheduler.clock.advance(choose.uniform(0.1, LEASE_S - 1))
            await worker.extend([(held.key, held.token)])
        if choose.random() < 0.5:  # others are fired meanwhile, and wait
            await scheduler.runs.trigger(job.job_id, payload=None)
        await outlive_the_lease(scheduler)
        assert await keys(scheduler, job, RunState.RUNNING) == []
        await scheduler.settle()
    await fire_next(scheduler)
    assert len(await scheduler.claim()) == 1
    assert len(await keys(scheduler, job, RunState.FAILED)) == 20


async def held_run(scheduler: Scheduler) -> tuple[StoredJob, Assignment]:
    job = await scheduler.job(every(HOUR), max_running=1, retry=RetryPolicy(initial_s=1.0, backoff="fixed"))
    await fire_next(scheduler)
    (held,) = await scheduler.claim()
    return job, held


async def test_a_job_deleted_while_its_worker_dies_leaves_nothing_running(scheduler: Scheduler) -> None:
    job, held = await held_run(scheduler)
    await scheduler.jobs.delete(job.job_id, if_version=None)
    await outlive_the_lease(scheduler)
    assert (await scheduler.runs.get(held.key)).state not in (RunState.PENDING, RunState.RUNNING)
    assert await keys(scheduler, job, RunState.PENDING, RunState.RUNNING) == []


async def test_a_job_paused_while_its_worker_dies_goes_on_when_it_is_resumed(scheduler: Scheduler) -> None:
    job, held = await held_run(scheduler)
    await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
    await outlive_the_lease(scheduler)
    scheduler.clock.advance(HOUR)
    assert await scheduler.claim() == []
    await scheduler.jobs.resume(job.job_id)
    (again,) = await scheduler.claim()
    assert (again.key, again.attempt) == (held.key, 2)
    await scheduler.end([again])
    await fire_next(scheduler)
    (following,) = await scheduler.claim()
    assert following.key != held.key


async def test_a_lower_limit_stops_nobody_and_lets_nobody_in_until_there_is_room(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(HOUR), overlap="queue", max_running=5)
    for _ in range(5):
        await scheduler.runs.trigger(job.job_id, payload=None)
        scheduler.clock.advance(1)
    running = await scheduler.claim()
    assert len(running) == 5
    await scheduler.edit(job, every(HOUR), overlap="queue", max_running=1)
    await scheduler.runs.trigger(job.job_id, payload=None)
    statuses = await scheduler.leasing.extend([(held.key, held.token) for held in running])
    assert {str(status) for status in statuses} == {"live"}
    for held in running:
        assert await scheduler.claim() == []
        await scheduler.end([held])
    (waited,) = await scheduler.claim()
    await scheduler.runs.trigger(job.job_id, payload=None)
    assert await scheduler.claim() == []
    await scheduler.end([waited])
    assert len(await scheduler.claim()) == 1


async def test_a_waiting_run_that_is_cancelled_takes_no_lane_with_it(scheduler: Scheduler) -> None:
    job, held = await held_run(scheduler)
    waiting = await scheduler.runs.trigger(job.job_id, payload=None)
    await scheduler.runs.cancel(waiting.key)
    await scheduler.end([held])
    assert await scheduler.claim() == []
    await fire_next(scheduler)
    (following,) = await scheduler.claim()
    assert following.key.scheduled_at == held.key.scheduled_at + HOUR * SECOND


@pytest.mark.parametrize("overlap", ["queue", "skip", "replace"])
async def test_a_receiver_that_never_answers_holds_up_no_later_minute(scheduler: Scheduler, overlap: str) -> None:
    """A limit of 30 s on each attempt, a fire each minute, one lane: each minute has its run, and each ends."""
    job = await scheduler.job(
        every(60), overlap=overlap, max_running=1, timeout_s=30.0, retry=RetryPolicy(max_attempts=1)
    )
    for _ in range(5):
        await fire_next(scheduler, 60)
        (held,) = await scheduler.claim()
        scheduler.clock.advance(15)
        await scheduler.leasing.extend([(held.key, held.token)])
        scheduler.clock.advance(15)
        await scheduler.end([held], OutcomeKind.NO_ANSWER)
    ended = [key.scheduled_at // SECOND for key in await keys(scheduler, job, RunState.TIMED_OUT, RunState.FAILED)]
    assert [later - earlier for earlier, later in zip(ended[1:], ended[:-1], strict=True)] == [60] * 4
