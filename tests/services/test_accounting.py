"""Every planned instant is recorded exactly once, whatever people do and however far the dispatcher is behind."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.support.accounting import recorded_instants
from tests.support.database import look
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.clock import ManualClock
from onbeat.domain.ids import format_job_id
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.overlap import OverlapPolicy
from onbeat.domain.states import JobState
from onbeat.services import dispatch as dispatch_module
from onbeat.store.postgres import fires as postgres_fires
from onbeat.store.sqlite import fires as sqlite_fires
from onbeat.store.values import Finish, JobChange, StoredJob

STEPS = 40


def spans(data: str, job: StoredJob) -> list[tuple[int, int, int, str]]:
    """`(first, last, count, state)` of every record of a job, in seconds from START."""
    rows = look(
        data,
        "select scheduled_at, coalesce(until, scheduled_at), count, state from runs where job_id = ? order by 1",
        job.job_id,
    )
    return [((first - START) // SECOND, (last - START) // SECOND, count, state) for first, last, count, state in rows]


def seconds(first: int, last: int) -> list[int]:
    return [START + second * SECOND for second in range(first, last + 1)]


async def set_clock(scheduler: Scheduler, job: StoredJob, next_fire_at: int) -> None:
    """As a hand would that has the database: no service sets a clock back."""
    change = JobChange(next_fire_at=next_fire_at)
    await scheduler.store.jobs.change(job.job_id, now=scheduler.clock.now(), decide=lambda _job: change)


async def fall_behind(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other jobs that have been due for longer fill every batch of the dispatcher."""
    monkeypatch.setattr(dispatch_module, "BATCH", 1)
    scheduler.clock.set(START - 5 * SECOND)
    for number in range(10):
        await scheduler.job(every(1), name=f"crowd {number}")
    scheduler.clock.set(START)


@pytest.mark.parametrize("behind", [False, True])
async def test_pause_and_resume_lose_no_instant(data: str, monkeypatch: pytest.MonkeyPatch, behind: bool) -> None:
    async with scheduling(data) as scheduler:
        if behind:
            await fall_behind(scheduler, monkeypatch)
        job = await scheduler.job()
        scheduler.clock.advance(3.5)
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(4)
        await scheduler.jobs.resume(job.job_id)
        scheduler.clock.advance(2)
        await scheduler.settle()
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 9)


@pytest.mark.parametrize("behind", [False, True])
async def test_an_edit_lets_what_was_due_under_the_former_schedule_run(
    data: str, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    async with scheduling(data) as scheduler:
        if behind:
            await fall_behind(scheduler, monkeypatch)
        job = await scheduler.job(every(60))
        scheduler.clock.advance(60.5)
        await scheduler.edit(job, every(3600))
        await scheduler.settle()
    assert spans(data, job) == [(60, 60, 1, "succeeded")]


@pytest.mark.parametrize("behind", [False, True])
async def test_a_deleted_job_keeps_a_record_of_what_was_due(
    data: str, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    async with scheduling(data) as scheduler:
        if behind:
            await fall_behind(scheduler, monkeypatch)
        job = await scheduler.job(every(2))
        scheduler.clock.advance(2.5)
        await scheduler.jobs.delete(job.job_id, if_version=None)
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(2, 2)


async def test_an_edit_during_a_pause_divides_it_between_the_two_schedules(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(2))
        await scheduler.jobs.pause(job.job_id, note="by hand", cancel=False)
        scheduler.clock.advance(5)
        edited = await scheduler.edit(job, every(1))
        assert (edited.state, edited.reason, edited.paused_at) == (JobState.PAUSED, "by hand", START + 5 * SECOND)
        scheduler.clock.advance(3)
        await scheduler.jobs.resume(job.job_id)
    assert spans(data, job) == [(2, 4, 2, "skipped"), (6, 8, 3, "skipped")]


async def test_deleting_a_paused_job_accounts_for_the_pause(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(2))
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(5)
        await scheduler.jobs.delete(job.job_id, if_version=None)
    assert spans(data, job) == [(2, 4, 2, "skipped")]


async def test_a_pause_by_410_gone_loses_no_instant_that_was_due(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(1), overlap="allow")
        scheduler.clock.advance(1.5)
        await scheduler.dispatch.fire_due()
        (held,) = await scheduler.claim()
        scheduler.clock.advance(2)  # 2 and 3 are due, and the dispatcher has not looked
        gone = Outcome(OutcomeKind.HTTP_STATUS, scheduler.clock.now(), 1_000, 410)
        await scheduler.leasing.finish([Finish(held.key, held.token, gone)])
        assert (await scheduler.jobs.get(job.job_id)).state == JobState.PAUSED
        scheduler.clock.advance(2)
        await scheduler.jobs.resume(job.job_id)
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 5)
    assert spans(data, job)[-1] == (2, 5, 4, "skipped")


async def test_one_job_that_is_slow_to_plan_ends_the_batch_and_the_rest_follows(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for engine in (sqlite_fires, postgres_fires):
        monkeypatch.setattr(engine, "PLANNING_LASTS_S", 0)
    async with scheduling(data) as scheduler:
        jobs = [await scheduler.job(every(60)) for _ in range(3)]
        scheduler.clock.advance(60)
        reports = [await scheduler.dispatch.fire_due() for _ in jobs]
    assert [(report.batch.jobs, report.full) for report in reports] == [(1, True), (1, True), (1, False)]


@pytest.mark.parametrize("act", ["resume", "edit"])
async def test_a_clock_set_back_before_a_restart_loses_no_instant(data: str, act: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job()
        for _ in range(10):
            scheduler.clock.advance(1)
            await scheduler.settle()
    async with scheduling(data, clock=ManualClock(START + 3 * SECOND)) as scheduler:
        if act == "resume":
            await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
            await scheduler.jobs.resume(job.job_id)
        else:
            await scheduler.edit(job, every(2))
            await scheduler.edit(job, every(1))
        scheduler.clock.advance(100)
        await scheduler.settle()
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 103)


@pytest.mark.parametrize("overlap", ["queue", "skip", "allow", "replace"])
async def test_a_clock_that_shows_instants_again_whose_runs_are_live_leaves_them_as_they_are(
    data: str, overlap: str
) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(1), overlap=overlap, max_running=3)
        for _ in range(3):
            scheduler.clock.advance(1)
            await scheduler.dispatch.fire_due()
        before = look(data, "SELECT scheduled_at, state, lane FROM live_runs ORDER BY scheduled_at")
        look(data, "UPDATE clocks SET next_fire_at = next_fire_at - ?", 2 * SECOND)
        await scheduler.dispatch.fire_due()
        after = await scheduler.jobs.get(job.job_id)
    assert look(data, "SELECT scheduled_at, state, lane FROM live_runs ORDER BY scheduled_at") == before
    assert len(before) == 3
    assert (after.state, after.next_fire_at) == (JobState.ACTIVE, START + 4 * SECOND)


@pytest.mark.parametrize("overlap", ["queue", "skip", "allow", "replace"])
@pytest.mark.parametrize("grace_s", [0, 3])
async def test_clocks_that_are_set_back_lose_no_instant_and_double_none(
    data: str, overlap: OverlapPolicy, grace_s: int
) -> None:
    """As in tests/chaos/test_postgres_cluster.py, whose first large runs lost and doubled instants: marks of several
    instants were checked at their first one only.
    """
    dice = random.Random(f"{overlap} {grace_s}")
    async with scheduling(data) as scheduler:
        jobs = [await scheduler.job(every(1), overlap=overlap, max_running=2, grace_s=grace_s) for _ in range(5)]
        for _ in range(STEPS):
            scheduler.clock.advance(dice.choice((0, 1, 1, 2, 5)))
            while (await scheduler.dispatch.fire_due()).full:
                pass
            held = await scheduler.claim(limit=3)
            await scheduler.end(dice.sample(held, len(held) // 2))
            for job in jobs:
                before = (await scheduler.jobs.get(job.job_id)).next_fire_at
                assert before is not None
                await set_clock(scheduler, job, max(before - dice.choice((0, 0, 2, 4)) * SECOND, START + SECOND))
        await scheduler.settle()
        last = (scheduler.clock.now() - START) // SECOND
        accounts = {job.job_id: Counter(recorded_instants(data, format_job_id(job.job_id))) for job in jobs}
    wrong = {
        (job_id, (instant - START) // SECOND): count[instant]
        for job_id, count in accounts.items()
        for instant in {*count, *seconds(1, last)}
        if count[instant] != 1
    }
    assert wrong == {}
