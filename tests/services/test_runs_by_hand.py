"""Runs that people ask for, or take away, at awkward moments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import SECOND, Scheduler, every, scheduling

from onbeat.domain.states import RunState


@pytest.fixture
async def scheduler(data: str) -> AsyncIterator[Scheduler]:
    async with scheduling(data) as opened:
        yield opened


async def test_many_runs_are_triggered_while_the_clock_stands_still(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(3600))
    runs = await asyncio.gather(*(scheduler.runs.trigger(job.job_id, payload=None) for _ in range(500)))
    assert len({run.key for run in runs}) == 500
    assert all(run.key.scheduled_at % SECOND for run in runs)


async def test_a_lease_of_a_deleted_job_that_is_given_back_ends_the_run(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(1))
    scheduler.clock.advance(1)
    await scheduler.dispatch.fire_due()
    (held,) = await scheduler.claim()
    await scheduler.jobs.delete(job.job_id, if_version=None)
    assert await scheduler.leasing.release([(held.key, held.token)]) == 1
    assert (await scheduler.runs.get(held.key)).state == RunState.CANCELLED
