"""Blackouts over real SQLite: what is recorded while they last, after them, and after an outage."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.accounting import recorded_instants
from tests.support.scheduler import SECOND, START, Scheduler, draft, every, scheduling

from onbeat.domain.blackout import BlackoutRules
from onbeat.domain.errors import BlackoutNotFound
from onbeat.domain.ids import format_job_id
from onbeat.domain.model import MisfirePolicy
from onbeat.domain.states import JobState
from onbeat.store.values import Page, RunFilter


def window(first: int, end: int, tag: str | None = None) -> BlackoutRules:
    """From second `first` to before second `end`, counted from START."""
    return BlackoutRules(tag=tag, from_at=START + first * SECOND, until_at=START + end * SECOND)


async def put(scheduler: Scheduler, rules: BlackoutRules, name: str = "b") -> None:
    await scheduler.blackouts.put("default", name, rules)


async def spans(scheduler: Scheduler, job: Any) -> list[tuple[int, int, int, str]]:
    """`(first, last, count, state or reason)` of every record, in seconds from START."""
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1_000))
    return sorted(
        (
            (run.key.scheduled_at - START) // SECOND,
            ((run.until or run.key.scheduled_at) - START) // SECOND,
            run.count,
            run.reason or run.state.value,
        )
        for run in found
    )


async def tick(scheduler: Scheduler, seconds: int) -> None:
    for _ in range(seconds):
        scheduler.clock.advance(1)
        await scheduler.settle()


async def test_fires_of_a_window_are_one_row_and_the_others_run(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, window(3, 7))
        job = await scheduler.job()
        await tick(scheduler, 8)
        assert await spans(scheduler, job) == [
            (1, 1, 1, "succeeded"),
            (2, 2, 1, "succeeded"),
            (3, 6, 4, "blackout"),
            (7, 7, 1, "succeeded"),
            (8, 8, 1, "succeeded"),
        ]


async def test_tag_chooses_the_jobs_and_a_namespace_keeps_to_itself(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, window(0, 100, tag="db"))
        await scheduler.blackouts.put("elsewhere", "b", window(0, 100))
        (tagged,) = await scheduler.jobs.create_many([draft_with_tags("db", "other")], namespace="default")
        plain = await scheduler.job()
        await tick(scheduler, 2)
        assert await spans(scheduler, tagged) == [(1, 2, 2, "blackout")]
        assert [state for *_, state in await spans(scheduler, plain)] == ["succeeded", "succeeded"]


def draft_with_tags(*tags: str) -> Any:
    from dataclasses import replace

    return replace(draft(every(1)), tags=tags)


async def test_blackout_that_is_deleted_or_created_midway_holds_from_then_on(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job()
        await tick(scheduler, 2)
        await put(scheduler, window(0, 100))
        await tick(scheduler, 2)
        await scheduler.blackouts.delete("default", "b")
        await tick(scheduler, 2)
        assert await spans(scheduler, job) == [
            (1, 1, 1, "succeeded"),
            (2, 2, 1, "succeeded"),
            (3, 4, 2, "blackout"),
            (5, 5, 1, "succeeded"),
            (6, 6, 1, "succeeded"),
        ]
        with pytest.raises(BlackoutNotFound):
            await scheduler.blackouts.delete("default", "b")


async def test_outage_over_a_window_is_told_apart_and_catch_up_stays_outside(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, window(80, 1_000))
        job = await scheduler.job(misfire=MisfirePolicy("catch_up", max=3, spacing_s=0), max_running=10, grace_s=5)
        scheduler.clock.advance(500)
        await scheduler.settle()
        assert await spans(scheduler, job) == [
            (1, 76, 76, "missed"),
            (77, 77, 1, "succeeded"),
            (78, 78, 1, "pending"),  # the recovery rate spaces them
            (79, 79, 1, "pending"),
            (80, 500, 421, "blackout"),
        ]


async def test_each_instant_has_one_record_after_an_outage_over_many_windows(data: str) -> None:
    data = data
    async with scheduling(data) as scheduler:
        await put(scheduler, BlackoutRules(cron="15 * * * *", duration_s=600))
        job = await scheduler.job(every(30))
        scheduler.clock.advance(5 * 86_400)
        await scheduler.settle()
        found = await spans(scheduler, job)
        assert len(found) < 300
        assert {state for *_, state in found} <= {"blackout", "missed", "succeeded"}
    instants = recorded_instants(data, format_job_id(job.job_id))
    assert instants == [START + second * SECOND for second in range(30, 5 * 86_400 + 1, 30)]


async def test_a_run_by_hand_is_not_held_back(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, window(0, 100))
        job = await scheduler.job(every(3_600))
        run = await scheduler.runs.trigger(job.job_id, payload=None)
        await scheduler.settle()
        assert (await scheduler.runs.get(run.key)).state.value == "succeeded"
        assert scheduler.almanac.blackout_at(START, namespace="default", tags=()) == "b"
        assert scheduler.almanac.blackout_at(START + 100 * SECOND, namespace="default", tags=()) is None


async def test_one_shot_in_a_window_is_skipped_and_its_job_completed(data: str) -> None:
    from onbeat.domain.model import AtSchedule

    async with scheduling(data) as scheduler:
        await put(scheduler, window(0, 100))
        job = await scheduler.job(AtSchedule(START + 5 * SECOND))
        await tick(scheduler, 6)
        assert await spans(scheduler, job) == [(5, 5, 1, "blackout")]
        assert (await scheduler.jobs.get(job.job_id)).state == JobState.COMPLETED


async def test_blackouts_are_there_again_after_a_restart(data: str) -> None:
    async with scheduling(data) as scheduler:
        await put(scheduler, window(0, 100))
        job = await scheduler.job()
    async with scheduling(data) as scheduler:
        await scheduler.almanac.load(now=START)
        await tick(scheduler, 2)
        assert await spans(scheduler, job) == [(1, 2, 2, "blackout")]
