"""The clock of a job that fires after a finish: set by the call that ends its last live run, in its transaction."""

from __future__ import annotations

import pytest
from tests.store.factories import NOW, SECOND, Maker

from onbeat.domain.states import JobState
from onbeat.store.contract import Store
from onbeat.store.values import AfterFinish, FirePlan, JobChange

FIVE = AfterFinish(5 * SECOND)


async def test_finish_sets_the_clock_rounded_up(make: Maker) -> None:
    job = await make.job(after_finish=FIVE)
    key, token = await make.running(job, NOW)
    await make.fire(FirePlan(next_fire_at=None))  # the clock that was due is gone, the run is live
    assert (await make.reread(job)).next_fire_at is None
    await make.finish(key, token, now=NOW + SECOND + 1)
    assert (await make.reread(job)).next_fire_at == NOW + 7 * SECOND


async def test_clock_is_set_by_the_last_of_several_live_runs(store: Store, make: Maker) -> None:
    job = await make.job(after_finish=FIVE, next_fire_at=NOW + SECOND)
    key, token = await make.running(job, NOW + 1)
    waiting = await make.waiting(job, NOW + 2)
    assert (await make.reread(job)).next_fire_at is None
    await make.finish(key, token)
    assert (await make.reread(job)).next_fire_at is None
    await store.leases.cancel(waiting, now=NOW + SECOND)
    assert (await make.reread(job)).next_fire_at == NOW + 6 * SECOND


async def test_plan_without_a_clock_and_a_live_run_leaves_one(make: Maker) -> None:
    job = await make.job(after_finish=FIVE)
    await make.fire(FirePlan(next_fire_at=None))
    assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND


async def test_revived_run_takes_the_clock_away(store: Store, make: Maker) -> None:
    job = await make.job(after_finish=FIVE, next_fire_at=NOW + SECOND)
    key, token = await make.running(job, NOW + 1)
    await store.leases.cancel(key, now=NOW)
    await store.leases.release([(key, token)], now=NOW)
    assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND
    await store.leases.revive(key, now=NOW, late_after=NOW)
    assert (await make.reread(job)).next_fire_at is None


async def test_instant_after_the_end_completes_the_job(make: Maker) -> None:
    job = await make.job(after_finish=AfterFinish(5 * SECOND, until=NOW + 4 * SECOND))
    await make.fire(FirePlan(next_fire_at=None))
    after = await make.reread(job)
    assert (after.state, after.next_fire_at) == (JobState.COMPLETED, None)


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.DELETED, JobState.ERROR])
async def test_job_that_is_not_active_gets_no_clock(store: Store, make: Maker, state: JobState) -> None:
    job = await make.job(after_finish=FIVE)
    key, token = await make.running(job, NOW)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=state, next_fire_at=None))
    await make.finish(key, token)
    assert (await make.reread(job)).next_fire_at is None


async def test_other_kind_of_job_gets_no_clock_from_the_end_of_a_run(store: Store, make: Maker) -> None:
    plain, former = await make.job(), await make.job(after_finish=FIVE)
    await store.jobs.change(
        former.job_id, now=NOW, decide=lambda _job: JobChange(definition='{"version": "other"}', max_running=1)
    )
    for job in (plain, former):
        key, token = await make.running(job, NOW)
        await make.fire(FirePlan(next_fire_at=None))
        await make.finish(key, token)
        assert (await make.reread(job)).next_fire_at is None
