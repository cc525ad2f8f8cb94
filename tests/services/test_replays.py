"""Many failed runs brought back at once: in which order they start, how fast, and who goes first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.scheduler import RECOVERY_PER_S, SECOND, Scheduler, every, scheduling

from onbeat.domain.errors import StateConflict
from onbeat.domain.ids import RunKey
from onbeat.domain.model import RetryPolicy
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.values import RunView, StoredJob

YEARLY = every(365 * 86_400)


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    async with scheduling(tmp_path / "onbeat.db") as opened:
        yield opened


async def failed_runs(scheduler: Scheduler, job: StoredJob, count: int) -> list[RunKey]:
    """Runs by hand that all failed, oldest first."""
    keys = []
    for _ in range(count):
        keys.append((await scheduler.runs.trigger(job.job_id, payload=None)).key)
        await scheduler.end(await scheduler.claim(), OutcomeKind.UNSENDABLE)
        scheduler.clock.advance(0.001)
    return keys


async def replay(scheduler: Scheduler, keys: list[RunKey]) -> list[bool]:
    return await asyncio.gather(*(scheduler.runs.replay(key) for key in keys))


async def views(scheduler: Scheduler, keys: list[RunKey]) -> list[RunView]:
    return [await scheduler.runs.get(key) for key in keys]


async def test_they_start_oldest_first_at_the_recovery_rate_over_all_jobs_together(scheduler: Scheduler) -> None:
    jobs = [await scheduler.job(YEARLY, max_running=100) for _ in range(3)]
    keys = sorted(
        [key for job in jobs for key in await failed_runs(scheduler, job, 70)], key=lambda key: key.scheduled_at
    )
    assert await replay(scheduler, keys) == [True] * 210
    ready = [run.ready_at or 0 for run in await views(scheduler, keys)]
    assert ready == sorted(ready)
    assert max(Counter(at // SECOND for at in ready).values()) == RECOVERY_PER_S
    assert ready[0] >= scheduler.clock.now()
    assert ready[-1] - ready[0] < 210 / RECOVERY_PER_S * SECOND


async def test_the_rate_holds_over_a_restart(tmp_path: Path) -> None:
    async with scheduling(tmp_path / "onbeat.db") as scheduler:
        job = await scheduler.job(YEARLY, max_running=100)
        keys = await failed_runs(scheduler, job, 100)
        await replay(scheduler, keys[:50])
        clock = scheduler.clock
    async with scheduling(tmp_path / "onbeat.db", clock=clock) as scheduler:
        await scheduler.dispatch.fire_due()
        await replay(scheduler, keys[50:])
        ready = [run.ready_at or 0 for run in await views(scheduler, keys)]
        assert max(Counter(at // SECOND for at in ready).values()) <= RECOVERY_PER_S


async def test_a_fire_of_the_job_goes_before_its_runs_that_wait_for_their_place(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(3_600))
    keys = await failed_runs(scheduler, job, 5)
    await replay(scheduler, keys)
    scheduler.clock.advance(3_600 - scheduler.clock.now() // SECOND % 3_600)
    await scheduler.dispatch.fire_due()
    order: list[RunKey] = []
    while held := await scheduler.claim():
        assert len(held) == 1
        order.append(held[0].key)
        await scheduler.end(held)
    assert order[0].scheduled_at % (3_600 * SECOND) == 0
    assert order[1:] == keys
    assert {run.state for run in await views(scheduler, keys)} == {RunState.SUCCEEDED}


async def test_live_runs_of_other_jobs_are_claimed_first(scheduler: Scheduler) -> None:
    old = await scheduler.job(YEARLY, max_running=100)
    keys = await failed_runs(scheduler, old, 20)
    await replay(scheduler, keys)
    fresh = await scheduler.job(YEARLY)
    scheduler.clock.advance(60)
    live = (await scheduler.runs.trigger(fresh.job_id, payload=None)).key
    (first,) = await scheduler.claim(limit=1)
    assert first.key == live


async def test_attempts_are_numbered_on_and_each_run_has_its_retries_again(scheduler: Scheduler) -> None:
    job = await scheduler.job(YEARLY, retry=RetryPolicy(max_attempts=2, backoff="fixed"))
    (key,) = await failed_runs(scheduler, job, 1)
    scheduler.clock.advance(30 * 86_400)  # older than any max_age_s
    await replay(scheduler, [key])
    for attempt in (2, 3):
        (held,) = await scheduler.claim()
        assert (held.key, held.attempt) == (key, attempt)
        await scheduler.end([held], OutcomeKind.REFUSED)
        scheduler.clock.advance(5)
    assert (await scheduler.runs.get(key)).state == RunState.FAILED


async def test_a_run_that_is_back_already_is_left_alone(scheduler: Scheduler) -> None:
    job = await scheduler.job(YEARLY)
    (key,) = await failed_runs(scheduler, job, 1)
    assert await replay(scheduler, [key]) == [True]
    before = await scheduler.runs.get(key)
    assert await replay(scheduler, [key]) == [False]
    assert await scheduler.runs.get(key) == before


@pytest.mark.parametrize("call", ["retry", "replay"])
async def test_a_run_of_a_paused_job_stays_where_it_is_and_says_so(scheduler: Scheduler, call: str) -> None:
    job = await scheduler.job(YEARLY)
    (key,) = await failed_runs(scheduler, job, 1)
    await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
    with pytest.raises(StateConflict, match="the job is paused") as refused:
        await getattr(scheduler.runs, call)(key)
    assert refused.value.remedy == "resume it first"
    await scheduler.jobs.resume(job.job_id)
    await getattr(scheduler.runs, call)(key)
    assert (await scheduler.runs.get(key)).state == RunState.PENDING


@pytest.mark.parametrize("call", ["retry", "replay"])
async def test_a_run_of_a_deleted_job_never_runs_again(scheduler: Scheduler, call: str) -> None:
    job = await scheduler.job(YEARLY)
    (key,) = await failed_runs(scheduler, job, 1)
    await scheduler.jobs.delete(job.job_id, if_version=None)
    with pytest.raises(StateConflict, match="the run's job is gone"):
        await getattr(scheduler.runs, call)(key)
    assert (await scheduler.runs.get(key)).state == RunState.FAILED
