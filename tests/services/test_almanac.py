"""Calendars and blackouts in memory: what another node changes is seen before the next decision."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.scheduler import SECOND, START, Scheduler, scheduling
from tests.support.sharing import sharing

from onbeat.domain.blackout import BlackoutRules
from onbeat.domain.calendar import CalendarRules, DateRange, day_of
from onbeat.domain.model import CalendarUse, CronSchedule
from onbeat.domain.states import RunState
from onbeat.store.values import JobFilter, Page, RunFilter

TODAY, TOMORROW = (day_of(START // SECOND // 86_400 + offset) for offset in (0, 1))
CLOSED_TODAY = CalendarRules(dates=(DateRange(TODAY, TODAY),))
CLOSED_TOMORROW = CalendarRules(dates=(DateRange(TOMORROW, TOMORROW),))
NINE = START + 3_600 * SECOND  # START is 08:00 UTC
AT_NINE = CronSchedule("0 9 * * *", "UTC", calendars=CalendarUse(("c",), (), "skip"))
ALL_DAY = BlackoutRules(from_at=START, until_at=START + 86_400 * SECOND)


async def states(scheduler: Scheduler) -> list[RunState]:
    return [run.state for run in await scheduler.store.runs.find(RunFilter(), Page())]


async def test_a_calendar_made_on_one_node_is_known_to_the_next_request_on_another(tmp_path: Path) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=2) as (here, there):
        await there.calendars.put("default", "c", CLOSED_TODAY)
        job = await here.job(AT_NINE)
        assert job.next_fire_at == NINE + 86_400 * SECOND


async def test_a_job_whose_calendar_another_node_has_made_is_dispatched_and_not_parked(tmp_path: Path) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=2) as (here, there):
        await there.calendars.put("default", "c", CLOSED_TOMORROW)
        await there.job(AT_NINE)
        there.clock.set(NINE)
        report = await here.dispatch.fire_due()
        assert (report.batch.runs, report.batch.parked) == (1, ())


async def test_a_blackout_that_another_node_has_set_holds_the_next_batch_back(tmp_path: Path) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=2) as (here, there):
        await here.job()
        await there.blackouts.put("default", "freeze", ALL_DAY)
        here.clock.advance(1)
        await here.dispatch.fire_due()
        assert await states(here) == [RunState.SKIPPED]
        await there.blackouts.delete("default", "freeze")
        here.clock.advance(1)
        await here.dispatch.fire_due()
        assert sorted(await states(here)) == [RunState.PENDING, RunState.SKIPPED]


async def test_clocks_are_planned_anew_by_the_rules_that_stand_there_though_another_node_wrote_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(tmp_path / "onbeat.db", nodes=2) as (here, there):
        await here.calendars.put("default", "c", CLOSED_TODAY)
        await here.job(AT_NINE)
        monkeypatch.setattr(there.calendars, "replan", lambda: asyncio.sleep(0, False))  # it dies before it plans
        await there.calendars.put("default", "c", CLOSED_TOMORROW)
        await here.calendars.replan()
        (job,) = await here.store.jobs.find(JobFilter(), Page())
        assert job.next_fire_at == NINE


async def test_a_process_that_has_the_database_to_itself_asks_for_no_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduling(tmp_path / "onbeat.db") as scheduler:

        async def unexpected() -> int:
            raise AssertionError("asked for the revision")

        monkeypatch.setattr(scheduler.store, "almanac_revision", unexpected)
        await scheduler.job()
        scheduler.clock.advance(1)
        assert (await scheduler.dispatch.fire_due()).batch.runs == 1
