"""Waking after an outage or a pause: no burst, nothing lost, live work first. Cases B01, B03, B05, B07, B09."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import pytest
from tests.support.accounting import recorded_instants
from tests.support.scheduler import RECOVERY_PER_S, SECOND, Scheduler, draft, every, scheduling

from onbeat.clock import ManualClock
from onbeat.domain.blackout import BlackoutRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.ids import format_job_id
from onbeat.domain.instants import parse_instant, resolve_local
from onbeat.domain.model import AtSchedule, CronSchedule, MisfirePolicy
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.services import dispatch as dispatch_module
from onbeat.store.values import Page, RunFilter, RunView, StoredJob

CATCH_UP = MisfirePolicy(policy="catch_up", max=3)


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


def at(text: str) -> int:
    return parse_instant(f"2027-03-{text}Z", field="test")


def clock_at(text: str) -> ManualClock:
    return ManualClock(at(text))


def cron(expression: str) -> CronSchedule:
    return CronSchedule(expression=expression)


async def runs_of(scheduler: Scheduler, job: StoredJob) -> list[RunView]:
    """Every record of a job, oldest first."""
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1_000))
    return found[::-1]


async def fire(scheduler: Scheduler) -> None:
    """Record everything that is due now."""
    while (await scheduler.dispatch.fire_due()).full:
        pass


async def test_a_minutely_job_wakes_after_101_minutes_and_after_three_years(data: str) -> None:
    async with scheduling(data, clock=clock_at("01T08:29:30")) as scheduler:
        minutely = await scheduler.job(cron("* * * * *"), grace_s=60)
        scheduler.clock.set(at("01T10:21:10"))
        await fire(scheduler)
        missed, run = await runs_of(scheduler, minutely)
        assert (missed.state, missed.count, missed.until) == (RunState.MISSED, 111, at("01T10:20:00"))
        assert (run.state, run.key.scheduled_at, run.trigger) == (
            RunState.PENDING,
            at("01T10:21:00"),
            Trigger.SCHEDULE,
        )
        assert (await scheduler.jobs.get(minutely.job_id)).next_fire_at == at("01T10:22:00")
        scheduler.clock.advance(3 * 365 * 86_400)
        await fire(scheduler)
        kinds = [(view.state, view.count) for view in await runs_of(scheduler, minutely)][2:]
        # 1.5 million instants: one row, and the newest, which is inside grace, takes over from the run of 10:21.
        assert kinds[0] == (RunState.MISSED, 3 * 365 * 1_440 - 1)
        assert kinds[1][0] == RunState.PENDING


@pytest.mark.parametrize("restarts", [0, 2])
async def test_a_catch_up_runs_the_latest_three_of_each_job_at_the_recovery_rate_and_no_live_run_waits(
    data: str, restarts: int
) -> None:
    clock = clock_at("01T02:01:00")
    async with scheduling(data, clock=clock) as scheduler:
        jobs = [await scheduler.job(cron("*/5 * * * *"), misfire=CATCH_UP, name=f"job {n}") for n in range(200)]
        clock.set(at("01T10:01:00"))
        await fire(scheduler)
    for _ in range(restarts):
        async with scheduling(data, clock=clock) as scheduler:
            await fire(scheduler)
    async with scheduling(data, clock=clock) as scheduler:
        starts: Counter[int] = Counter()
        for job in jobs:
            missed, *caught_up = await runs_of(scheduler, job)
            assert (missed.state, missed.count) == (RunState.MISSED, 93)
            assert [run.key.scheduled_at for run in caught_up] == [
                at("01T09:50:00"),
                at("01T09:55:00"),
                at("01T10:00:00"),
            ]
            assert {run.trigger for run in caught_up} == {Trigger.CATCH_UP}
            starts.update((run.ready_at or 0) // SECOND for run in caught_up)
        assert sum(starts.values()) == 600
        assert max(starts.values()) == RECOVERY_PER_S
        assert max(starts) - at("01T10:01:00") // SECOND < 600 // RECOVERY_PER_S
        clock.set(at("01T10:05:00"))
        await fire(scheduler)  # nobody has worked meanwhile: fresh runs pass those that have not begun
        claimed = await scheduler.claim(limit=200)
        assert {held.key.scheduled_at for held in claimed} == {at("01T10:05:00")}
        assert {held.trigger for held in claimed} == {Trigger.SCHEDULE}
        await scheduler.end(claimed)
        await scheduler.settle()
        for job in jobs:
            assert len(await runs_of(scheduler, job)) == 5
    assert len(recorded_instants(data, format_job_id(jobs[0].job_id))) == 97


async def test_the_recovery_rate_holds_over_a_restart_between_two_outages(data: str) -> None:
    clock = clock_at("01T00:00:30")
    async with scheduling(data, clock=clock) as scheduler:
        first = [await scheduler.job(cron("* * * * *"), misfire=CATCH_UP, name=f"a {n}") for n in range(100)]
        clock.advance(600)
        await fire(scheduler)
        second = [
            await scheduler.job(cron("* * * * * *"), misfire=CATCH_UP, grace_s=0, name=f"b {n}") for n in range(50)
        ]
    clock.advance(2)
    async with scheduling(data, clock=clock) as scheduler:
        await fire(scheduler)
        starts: Counter[int] = Counter()
        for job in first + second:
            recovering = [run for run in await runs_of(scheduler, job) if run.trigger == Trigger.CATCH_UP]
            starts.update((run.ready_at or 0) // SECOND for run in recovering)
        assert max(starts.values()) <= RECOVERY_PER_S


async def test_fresh_fires_are_recorded_at_once_while_a_backlog_is(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 5)
    async with scheduling(data) as scheduler:
        asleep = [await scheduler.job(every(86_400 + number), name=f"asleep {number}") for number in range(100)]
        scheduler.clock.advance(2 * 86_400)
        fresh = await scheduler.job(every(1), name="fresh")
        batches = 0
        scheduler.clock.advance(1)
        while (await scheduler.dispatch.fire_due()).full:
            scheduler.clock.advance(1)
            batches += 1
        instants = [run.key.scheduled_at for run in await runs_of(scheduler, fresh) if run.state != RunState.MISSED]
        assert batches >= 10
        assert len(instants) >= batches - 1  # from the second batch on, when it is known that there is a backlog
        for job in asleep:
            assert (await scheduler.jobs.get(job.job_id)).next_fire_at is not None
            assert [run.state for run in await runs_of(scheduler, job)] == [RunState.MISSED]


async def fall_asleep_and_freeze(scheduler: Scheduler, count: int) -> None:
    """So many jobs have a backlog, and those with the tag `frozen` are held back from now on."""
    asleep = [draft(every(86_400 + number), name=f"asleep {number}") for number in range(count)]
    await scheduler.jobs.create_many(asleep, namespace="default")
    scheduler.clock.advance(2 * 86_400)
    now = scheduler.clock.now()
    frozen = BlackoutRules(from_at=now, until_at=now + 86_400 * SECOND, tag="frozen")
    await scheduler.blackouts.put("default", "freeze", frozen)


async def test_fresh_fires_are_recorded_at_once_beside_a_backlog_though_most_of_them_are_skipped(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a blackout holds back did not come too late to run: it says nothing of those that came due with it."""
    monkeypatch.setattr(dispatch_module, "BATCH", 40)
    async with scheduling(data) as scheduler:
        await fall_asleep_and_freeze(scheduler, 1_600)
        fresh = [
            await scheduler.jobs.create(
                replace(draft(every(1), name=f"fresh {number}"), tags=() if number < 3 else ("frozen",)),
                namespace="default",
            )
            for number in range(30)
        ]
        for second in range(5):
            scheduler.clock.advance(1)
            for _ in range(4):
                assert (await scheduler.dispatch.fire_due()).full
            clocks = [(await scheduler.jobs.get(job.job_id)).next_fire_at or 0 for job in fresh]
            assert second == 0 or min(clocks) > scheduler.clock.now()


async def test_what_is_inside_grace_runs_beside_a_backlog_though_a_blackout_holds_most_of_it_back(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 40)
    async with scheduling(data) as scheduler:
        await fall_asleep_and_freeze(scheduler, 800)
        now = scheduler.clock.now()
        due = [
            await scheduler.jobs.create(
                replace(draft(AtSchedule(at=now + 5 * SECOND), name=f"due {number}"), tags=tags), namespace="default"
            )
            for number in range(100)
            for tags in [() if number % 10 == 0 else ("frozen",)]
        ]
        scheduler.clock.advance(15)
        for _ in range(8):
            assert (await scheduler.dispatch.fire_due()).full
            scheduler.clock.advance(2)
        for number, job in enumerate(due):
            (run,) = await runs_of(scheduler, job)
            assert run.state == (RunState.PENDING if number % 10 == 0 else RunState.SKIPPED)


async def test_a_backlog_is_recorded_though_fresh_fires_alone_fill_every_batch(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 5)
    async with scheduling(data) as scheduler:
        asleep = await scheduler.job(every(86_400), name="asleep")
        scheduler.clock.advance(86_400 * 2)
        for number in range(50):
            await scheduler.job(every(1), name=f"crowd {number}")
        for _ in range(10):
            scheduler.clock.advance(1)
            assert (await scheduler.dispatch.fire_due()).full
        assert [run.state for run in await runs_of(scheduler, asleep)] == [RunState.MISSED]


@pytest.mark.parametrize("policy", ["skip", "run_latest", "catch_up"])
async def test_a_pause_is_no_outage_whatever_the_policy(
    data: str, policy: Literal["skip", "run_latest", "catch_up"]
) -> None:
    async with scheduling(data, clock=clock_at("01T20:00:00")) as scheduler:
        misfire = MisfirePolicy(policy=policy, max=5)
        nightly = await scheduler.job(cron("0 2 * * *"), misfire=misfire)
        often = await scheduler.job(every(5), misfire=misfire)
        for job in (nightly, often):
            await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.set(at("04T15:00:00"))
        for job in (nightly, often):
            await scheduler.jobs.resume(job.job_id)
        await fire(scheduler)
        assert (await scheduler.jobs.get(nightly.job_id)).next_fire_at == at("05T02:00:00")
        for job, count in ((nightly, 3), (often, (2 * 86_400 + 19 * 3_600) // 5)):
            (skipped,) = await runs_of(scheduler, job)
            assert (skipped.state, skipped.reason, skipped.count) == (RunState.SKIPPED, "paused", count)


@pytest.mark.parametrize(
    ("resumed", "states"),
    [("01T02:00:30", [RunState.SKIPPED]), ("01T01:59:59", [RunState.PENDING])],
)
async def test_a_mark_runs_exactly_where_the_pause_ended_before_it(
    data: str, resumed: str, states: list[RunState]
) -> None:
    async with scheduling(data, clock=clock_at("01T01:59:30")) as scheduler:
        job = await scheduler.job(cron("0 2 * * *"), misfire=CATCH_UP)
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.set(at(resumed))
        await scheduler.jobs.resume(job.job_id)
        scheduler.clock.set(at("01T02:00:30"))
        await fire(scheduler)
        assert [run.state for run in await runs_of(scheduler, job)] == states


async def test_saving_a_job_many_times_around_its_marks_loses_and_adds_none(data: str) -> None:
    async with scheduling(data, clock=clock_at("01T00:00:30")) as scheduler:
        job = await scheduler.job(cron("*/1 * * * *"))
        shown = job.next_fire_at or 0
        for number in range(10 * 60):
            scheduler.clock.advance(1)
            edited = await scheduler.edit(job, cron("*/1 * * * *"), name=f"name {number % 3}")
            assert (edited.next_fire_at or 0) >= shown
            shown = edited.next_fire_at or 0
            if number % 7 == 0:
                await scheduler.settle()
        await scheduler.settle()
        runs = await runs_of(scheduler, job)
        assert [run.key.scheduled_at for run in runs] == [at(f"01T00:{minute:02}:00") for minute in range(1, 11)]
        assert {run.state for run in runs} == {RunState.SUCCEEDED}


async def test_one_shots_end_however_they_are_written_and_restarts_do_not_repeat_them(data: str) -> None:
    clock = clock_at("01T12:00:00")
    now = clock.now()
    hole = resolve_local("2027-03-14T02:30:00", timezone="America/New_York", field="test")
    twice = resolve_local("2027-11-07T01:30:00", timezone="America/New_York", field="test")
    far = parse_instant("9999-12-31T23:59:59Z", field="test")
    async with scheduling(data, clock=clock) as scheduler:
        with pytest.raises(DefinitionError, match="past"):
            await scheduler.job(AtSchedule(at=now - 3_600 * SECOND))
        late = await scheduler.job(AtSchedule(at=now - 10 * SECOND), name="late")
        shots = [
            await scheduler.job(AtSchedule(at=instant), name=str(instant))
            for instant in (now + 30 * 86_400 * SECOND, hole, twice, far)
        ]
        await scheduler.settle()
        assert [run.state for run in await runs_of(scheduler, late)] == [RunState.SUCCEEDED]
    for instant in sorted([now + 30 * 86_400 * SECOND, hole, twice]):
        clock.set(instant + 5 * SECOND)
        for _ in range(5):
            async with scheduling(data, clock=clock) as scheduler:
                await scheduler.settle()
    async with scheduling(data, clock=clock) as scheduler:
        for job in (late, *shots[:3]):
            assert (await scheduler.jobs.get(job.job_id)).state == JobState.COMPLETED
            assert [run.state for run in await runs_of(scheduler, job)] == [RunState.SUCCEEDED]
        waiting = await scheduler.jobs.get(shots[3].job_id)
        assert (waiting.state, waiting.next_fire_at, await runs_of(scheduler, waiting)) == (JobState.ACTIVE, far, [])


async def test_a_one_shot_that_came_due_in_an_outage_ends_as_missed_and_the_job_as_completed(data: str) -> None:
    clock = clock_at("01T12:00:00")
    async with scheduling(data, clock=clock) as scheduler:
        job = await scheduler.job(AtSchedule(at=clock.now() + 60 * SECOND))
    clock.advance(3_600)
    async with scheduling(data, clock=clock) as scheduler:
        await scheduler.settle()
        assert (await scheduler.jobs.get(job.job_id)).state == JobState.COMPLETED
        assert [run.state for run in await runs_of(scheduler, job)] == [RunState.MISSED]
