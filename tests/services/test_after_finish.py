"""Jobs that fire some time after their last run has ended: one clock or one live run, whatever happens."""

from __future__ import annotations

import contextlib
import random

import pytest
from tests.support.database import Look, looking_into
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import AfterFinishSchedule
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.services.assignment import Assignment
from onbeat.store.values import Page, RunFilter, StoredJob

FIVE = AfterFinishSchedule(5)


def at(offset: float) -> int:
    return START + round(offset * SECOND)


async def clock_of(scheduler: Scheduler, job: StoredJob) -> float | None:
    """What the job's clock shows, in seconds from START."""
    next_fire_at = (await scheduler.jobs.get(job.job_id)).next_fire_at
    return None if next_fire_at is None else (next_fire_at - START) / SECOND


async def begin(scheduler: Scheduler, job: StoredJob, *, seconds: float = 5) -> Assignment:
    """Let the fire that is `seconds` away start."""
    scheduler.clock.advance(seconds)
    await scheduler.dispatch.fire_due()
    (held,) = await scheduler.claim()
    assert await clock_of(scheduler, job) is None
    return held


async def test_next_fire_comes_so_long_after_the_end_rounded_up(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        assert await clock_of(scheduler, job) == 5
        held = await begin(scheduler, job)
        scheduler.clock.advance(100.25)
        assert (await scheduler.dispatch.fire_due()).batch.runs == 0
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 111
        held = await begin(scheduler, job, seconds=5.75)
        assert held.key.scheduled_at == at(111)


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.UNSENDABLE])
async def test_every_end_of_an_attempt_that_ends_the_run_sets_the_clock(data: str, kind: OutcomeKind) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        held = await begin(scheduler, job)
        await scheduler.end([held], kind)
        assert await clock_of(scheduler, job) == 10


async def test_cancel_sets_the_clock_when_the_run_has_ended(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        held = await begin(scheduler, job)
        await scheduler.runs.cancel(held.key)
        assert await clock_of(scheduler, job) is None  # it was asked to stop
        scheduler.clock.advance(1)
        await scheduler.leasing.release([(held.key, held.token)])
        assert await clock_of(scheduler, job) == 11
        scheduler.clock.advance(5)
        await scheduler.dispatch.fire_due()
        (waiting,) = (await scheduler.store.runs.find(_all(job), _page()))[:1]
        await scheduler.runs.cancel(waiting.key)  # before anybody claimed it
        assert await clock_of(scheduler, job) == 16


async def test_a_worker_that_dies_delays_the_clock_until_its_run_has_ended(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE, max_run_time_s=10)
        await begin(scheduler, job)
        scheduler.clock.advance(10)
        await scheduler.reap.expire_leases()
        assert await clock_of(scheduler, job) == 20


async def test_a_missed_fire_is_an_end(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE, grace_s=1)
        scheduler.clock.advance(1_000)
        await scheduler.dispatch.fire_due()
        assert await clock_of(scheduler, job) == 1_005
        (missed,) = await scheduler.store.runs.find(_all(job), _page())
        assert (missed.state, missed.key.scheduled_at, missed.count) == (RunState.MISSED, at(5), 1)


async def test_a_crash_and_a_restart_find_the_live_run_that_will_set_the_clock(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        held = await begin(scheduler, job)
        clock = scheduler.clock
    async with scheduling(data, clock=clock) as scheduler:
        assert await clock_of(scheduler, job) is None
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 10


async def test_a_pause_ends_in_a_clock_or_waits_for_the_live_run(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(100)
        await scheduler.jobs.resume(job.job_id)
        assert await clock_of(scheduler, job) == 105
        held = await begin(scheduler, job)
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        await scheduler.jobs.resume(job.job_id)
        assert await clock_of(scheduler, job) is None
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        await scheduler.end([held])
        assert await clock_of(scheduler, job) is None
        scheduler.clock.advance(1)
        await scheduler.jobs.resume(job.job_id)
        assert await clock_of(scheduler, job) == 111


async def test_an_edit_keeps_one_clock_or_the_live_run(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        await scheduler.edit(job, FIVE, timeout_s=7.0)
        assert await clock_of(scheduler, job) == 5
        held = await begin(scheduler, job)
        await scheduler.edit(job, AfterFinishSchedule(50))
        assert await clock_of(scheduler, job) is None
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 55
        await scheduler.edit(job, every(60))
        assert await clock_of(scheduler, job) == 60 - START // SECOND % 60
        scheduler.clock.set(at(60 - START // SECOND % 60))
        await scheduler.dispatch.fire_due()
        (held,) = await scheduler.claim()
        await scheduler.edit(job, FIVE)
        assert await clock_of(scheduler, job) is None  # the run of the other schedule is live
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 65 - START // SECOND % 60


async def test_a_deleted_job_gets_no_clock_from_its_last_run(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        held = await begin(scheduler, job)
        await scheduler.jobs.delete(job.job_id, if_version=None)
        await scheduler.end([held])
        assert await scheduler.store.fires.next_due_at() is None


async def test_a_run_by_hand_and_one_brought_back_take_the_clock_away_until_they_end(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(FIVE)
        scheduler.clock.advance(1)
        await scheduler.runs.trigger(job.job_id, payload=None)
        assert await clock_of(scheduler, job) is None
        (held,) = await scheduler.claim()
        await scheduler.end([held], OutcomeKind.UNSENDABLE)
        assert await clock_of(scheduler, job) == 6
        await scheduler.runs.retry(held.key)
        assert await clock_of(scheduler, job) is None
        (held,) = await scheduler.claim()
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 6


async def test_end_at_completes_the_job(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(AfterFinishSchedule(5, start_at=at(2), end_at=at(8)))
        assert await clock_of(scheduler, job) == 2
        held = await begin(scheduler, job, seconds=2)
        await scheduler.end([held])
        assert await clock_of(scheduler, job) == 7
        held = await begin(scheduler, job)
        await scheduler.end([held])
        assert (await scheduler.jobs.get(job.job_id)).state == JobState.COMPLETED
        assert await clock_of(scheduler, job) is None


async def test_what_cannot_be_honoured_is_refused(data: str) -> None:
    async with scheduling(data) as scheduler:
        for schedules, changes, field in (
            ((FIVE, every(60)), {}, "schedules[0]"),
            ((AfterFinishSchedule(0),), {}, "schedules[0].every_after_finish"),
            ((AfterFinishSchedule(5, max_fires=3),), {}, "schedules[0].max_fires"),
            ((FIVE,), {"max_running": 2}, "max_running"),
        ):
            with pytest.raises(DefinitionError) as refusal:
                await scheduler.job(*schedules, **changes)
            assert refusal.value.field == field


@pytest.mark.parametrize("seed", range(12))
async def test_after_any_history_there_is_a_clock_or_a_live_run_and_never_both(data: str, seed: int) -> None:
    draw = random.Random(seed)
    async with scheduling(data) as scheduler, contextlib.AsyncExitStack() as stack:
        look = stack.enter_context(looking_into(data))
        job = await scheduler.job(FIVE, max_run_time_s=20, grace_s=2)
        held: list[Assignment] = []
        for _ in range(120):
            scheduler.clock.advance(draw.choice([0, 0.5, 1, 3, 40]))
            state = (await scheduler.jobs.get(job.job_id)).state
            match draw.randrange(9):
                case 0 | 1 | 2:
                    await scheduler.dispatch.fire_due()
                    held += await scheduler.claim()
                case 3 | 4:
                    await scheduler.end(held, draw.choice([OutcomeKind.SUCCEEDED, OutcomeKind.UNSENDABLE]))
                    held = []
                case 5:
                    await scheduler.reap.expire_leases()
                case 6 if state == JobState.ACTIVE:
                    await scheduler.jobs.pause(job.job_id, note=None, cancel=draw.random() < 0.5)
                case 7 if state == JobState.PAUSED:
                    await scheduler.jobs.resume(job.job_id)
                case 8 if state == JobState.ACTIVE and draw.random() < 0.5:
                    await scheduler.runs.trigger(job.job_id, payload=None)
                case _:
                    await scheduler.edit(
                        job, AfterFinishSchedule(draw.choice([5, 6])), max_run_time_s=20, grace_s=draw.choice([1, 2])
                    )
            check_clock_or_run(look, job, now=scheduler.clock.now())


def check_clock_or_run(look: Look, job: StoredJob, *, now: int) -> None:
    """A clock that is due may stand beside a run by hand: the dispatcher has yet to account for its instant."""
    ((state, clock, live),) = look(
        "select state, (select max(next_fire_at) from clocks where job_id = j.job_id),"
        " (select count(*) from live_runs where job_id = j.job_id) from jobs as j where job_id = ?",
        job.job_id,
    )
    if state == "active":
        assert clock is not None or live
        assert clock is None or clock <= now or not live
    else:
        assert clock is None


def _all(job: StoredJob) -> RunFilter:
    return RunFilter(job_id=job.job_id)


def _page() -> Page:
    return Page(limit=10)
