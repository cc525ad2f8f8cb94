"""Calendars over real SQLite: what a change does to clocks, and what a lost calendar does to jobs."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from tests.support.database import look
from tests.support.scheduler import SECOND, START, Scheduler, scheduling

from onbeat.domain.calendar import CalendarRules, DateRange, day_of
from onbeat.domain.errors import CalendarInUse, CalendarNotFound, DefinitionError, StoreUnavailable
from onbeat.domain.model import CalendarUse, CronSchedule
from onbeat.domain.states import JobState
from onbeat.services import calendars as calendars_module
from onbeat.store.values import JobFilter, Page, RunFilter

DAY = 86_400 * SECOND
TODAY = START // DAY  # START is a Friday, 08:00 UTC


def closed(*offsets: int) -> CalendarRules:
    """A calendar of days, counted from today."""
    days = [day_of(TODAY + offset) for offset in offsets]
    return CalendarRules(dates=tuple(DateRange(day, day) for day in days))


def daily(roll: Literal["skip", "next_business_day"] = "skip", **use: tuple[str, ...]) -> CronSchedule:
    """Every day at 09:00 UTC, an hour after START."""
    return CronSchedule("0 9 * * *", "UTC", calendars=CalendarUse(use.get("exclude", ()), use.get("only", ()), roll))


def nine(offset: int) -> int:
    return (TODAY + offset) * DAY + 9 * 3_600 * SECOND


async def put(scheduler: Scheduler, rules: CalendarRules, name: str = "c") -> None:
    await scheduler.calendars.put("default", name, rules)


async def records(scheduler: Scheduler, job: Any) -> list[tuple[int, str]]:
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page())
    return sorted((run.key.scheduled_at, run.state.value) for run in found)


async def test_job_fires_on_open_days_only_and_nothing_is_recorded_for_the_others(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(0, 2))
        job = await scheduler.job(daily(exclude=("c",)))
        rolled = await scheduler.job(daily("next_business_day", exclude=("c",)))
        for _ in range(4):
            scheduler.clock.advance(86_400)
            await scheduler.settle()
        assert await records(scheduler, job) == [(nine(1), "missed"), (nine(3), "missed")]
        assert await records(scheduler, rolled) == [(nine(1), "missed"), (nine(3), "missed")]


async def test_change_moves_clocks_and_nothing_else(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        job = await scheduler.job(daily(exclude=("c",)))
        assert job.next_fire_at == nine(0)
        await put(scheduler, closed(0, 1))
        after = await scheduler.jobs.get(job.job_id)
        assert (after.next_fire_at, after.version, after.updated_at) == (nine(2), job.version, job.updated_at)
        await put(scheduler, closed(7))
        assert (await scheduler.jobs.get(job.job_id)).next_fire_at == nine(0)


async def test_change_after_an_instant_never_fires_it(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(0))
        job = await scheduler.job(daily(exclude=("c",)))
        scheduler.clock.set(nine(0) + SECOND)
        await put(scheduler, closed(5))
        assert (await scheduler.jobs.get(job.job_id)).next_fire_at == nine(1)
        await scheduler.settle()
        assert await records(scheduler, job) == []


async def test_change_never_plans_an_instant_that_a_node_with_a_faster_clock_has_recorded(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        job = await scheduler.job(daily(exclude=("c",)))
        scheduler.clock.set(nine(0))
        await scheduler.settle()
        scheduler.clock.set(nine(0) - SECOND // 10)
        await put(scheduler, closed(6))
        assert (await scheduler.jobs.get(job.job_id)).next_fire_at == nine(1)
        assert [at for at, _state in await records(scheduler, job)] == [nine(0)]


async def test_due_instant_that_a_change_takes_away_is_not_fired(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        job = await scheduler.job(daily(exclude=("c",)))
        scheduler.clock.set(nine(0) + SECOND)
        await put(scheduler, closed(0))
        await scheduler.settle()
        assert await records(scheduler, job) == []
        assert (await scheduler.jobs.get(job.job_id)).next_fire_at == nine(1)


async def test_completed_job_goes_on_where_its_calendar_has_days_again(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(0))
        job = await scheduler.job(daily(only=("c",)))
        scheduler.clock.set(nine(0))
        await scheduler.settle()
        assert (await scheduler.jobs.get(job.job_id)).state == JobState.COMPLETED
        await put(scheduler, closed(0, 9))
        after = await scheduler.jobs.get(job.job_id)
        assert (after.state, after.next_fire_at) == (JobState.ACTIVE, nine(9))


async def test_many_jobs_are_planned_again_batch_by_batch(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calendars_module, "REPLAN_BATCH", 3)
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        for _ in range(7):
            await scheduler.job(daily(exclude=("c",)))
        await put(scheduler, closed(0))
        clocks = [job.next_fire_at for job in await scheduler.jobs.find(JobFilter(), Page())]
        assert clocks.count(nine(1)) == 3
    # what is left is done after a crash, by a scheduler that knows of no change
    async with scheduling(data) as scheduler:
        await scheduler.almanac.load(now=START)
        assert await scheduler.calendars.replan()
        assert not await scheduler.calendars.replan()
        assert {job.next_fire_at for job in await scheduler.jobs.find(JobFilter(), Page())} == {nine(1)}


async def test_unknown_calendar_is_refused_when_a_job_is_saved(data: str) -> None:
    async with scheduling(data) as scheduler:
        with pytest.raises(DefinitionError) as caught:
            await scheduler.job(daily(exclude=("nowhere",)))
        assert (caught.value.reason_code, caught.value.field) == ("calendar_unknown", "schedules[0].exclude")
        await scheduler.calendars.put("elsewhere", "nowhere", closed(1))
        with pytest.raises(DefinitionError):
            await scheduler.job(daily(exclude=("nowhere",)))


@pytest.mark.parametrize("harm", ["delete from calendars", "update calendars set rules = '{'"])
async def test_job_whose_calendar_is_lost_is_parked_and_the_others_go_on(data: str, harm: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        job = await scheduler.job(daily(exclude=("c",)))
    look(data, harm)
    async with scheduling(data) as scheduler:
        await scheduler.almanac.load(now=START)
        other = await scheduler.job(CronSchedule("0 9 * * *"))
        scheduler.clock.set(nine(0))
        await scheduler.settle()
        parked = await scheduler.jobs.get(job.job_id)
        assert parked.state == JobState.ERROR
        assert parked.reason is not None
        assert "'c'" in parked.reason
        assert await records(scheduler, other) == [(nine(0), "succeeded")]


async def test_calendar_in_use_cannot_be_deleted(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(5))
        job = await scheduler.job(daily(exclude=("c",)))
        with pytest.raises(CalendarInUse, match="1 job "):
            await scheduler.calendars.delete("default", "c")
        await scheduler.jobs.delete(job.job_id, if_version=None)
        await scheduler.calendars.delete("default", "c")
        with pytest.raises(CalendarNotFound):
            await scheduler.calendars.delete("default", "c")


async def test_pause_over_closed_days_counts_open_ones(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(1, 2))
        job = await scheduler.job(daily(exclude=("c",)))
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(5 * 86_400)
        await scheduler.jobs.resume(job.job_id)
        (mark,) = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page())
        assert (mark.key.scheduled_at, mark.until, mark.count) == (nine(0), nine(4), 3)


async def test_import_replaces_dates_and_keeps_the_other_rules(data: str) -> None:
    text = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261225\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    async with scheduling(data) as scheduler:
        await put(scheduler, CalendarRules("Europe/Berlin", closed(3).dates, (0,)))
        await scheduler.calendars.import_ics("default", "c", text, until=None)
        await scheduler.calendars.import_ics("default", "new", text, until=None)
        rules = scheduler.almanac.calendars("default")["c"].rules
        xmas = DateRange(date(2026, 12, 25), date(2026, 12, 25))
        assert rules == CalendarRules("Europe/Berlin", (xmas,), (0,))
        assert scheduler.almanac.calendars("default")["new"].rules == CalendarRules(dates=(xmas,))


async def test_rules_that_were_saved_and_could_not_be_loaded_are_loaded_by_the_replanner(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, closed(0))
        job = await scheduler.job(daily(exclude=("c",)))

        async def unavailable(*, now: int) -> None:
            raise StoreUnavailable

        with monkeypatch.context() as patched:
            patched.setattr(scheduler.almanac, "load", unavailable)
            with pytest.raises(StoreUnavailable):
                await put(scheduler, closed(5))
        while await scheduler.calendars.replan():
            pass
        assert (await scheduler.jobs.get(job.job_id)).next_fire_at == nine(0)
