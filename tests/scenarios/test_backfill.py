"""Backfills over real SQLite: what becomes a run, what stays, at what rate, across restarts, edits and pauses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.accounting import recorded_instants
from tests.support.receiver import receiving
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.cli.main import run
from onbeat.clock import ManualClock
from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.blackout import BlackoutRules
from onbeat.domain.errors import BackfillNotFound, RequestError, StateConflict
from onbeat.domain.ids import format_job_id
from onbeat.domain.model import AfterFinishSchedule, MisfirePolicy
from onbeat.services.backfills import BackfillPreview, BackfillRequest
from onbeat.store.values import Page, RunFilter, StoredJob

SKIP = MisfirePolicy("skip")


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


def asked(first: int, end: int, **changes: Any) -> BackfillRequest:
    return BackfillRequest(START + first * SECOND, START + end * SECOND, **changes)


async def spans(scheduler: Scheduler, job: StoredJob) -> list[tuple[int, int, int, str]]:
    """`(first, last, count, state or trigger)` of every record, in seconds from START."""
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1_000))
    return sorted(
        (
            (run.key.scheduled_at - START) // SECOND,
            ((run.until or run.key.scheduled_at) - START) // SECOND,
            run.count,
            run.trigger.value if run.reason is None and run.state != "missed" else run.state.value,
        )
        for run in found
    )


async def after_an_outage(scheduler: Scheduler, **changes: Any) -> StoredJob:
    """A job that missed the seconds 1 to 100, fires each second, and is up to date at second 101."""
    job = await scheduler.job(every(1), misfire=SKIP, grace_s=0, **changes)
    scheduler.clock.advance(100.5)
    await scheduler.settle()
    assert await spans(scheduler, job) == [(1, 100, 100, "missed")]
    return await scheduler.jobs.get(job.job_id)


async def test_a_range_inside_a_mark_becomes_runs_and_the_mark_stays_truthful(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler, max_running=5)
        request = asked(40, 43, rate_per_s=50)
        assert await scheduler.backfills.preview(job, request) == BackfillPreview(3, 0, 3, 0, 0, 3)
        begun = await scheduler.backfills.begin(job, request)
        await scheduler.backfill_until(job, begun.number)
        assert await spans(scheduler, job) == [
            (1, 39, 39, "missed"),
            *[(second, second, 1, "backfill") for second in (40, 41, 42)],
            (43, 100, 58, "missed"),
        ]
        assert await scheduler.backfills.preview(job, request) == BackfillPreview(3, 3, 0, 0, 0, 0)
        again = await scheduler.backfills.begin(await scheduler.jobs.get(job.job_id), request)
        await scheduler.backfill_until(job, again.number)
        assert (await scheduler.backfills.get(job.job_id, again.number)).created == 0
    assert recorded_instants(data, format_job_id(job.job_id)) == [START + s * SECOND for s in range(1, 101)]


async def test_the_newest_come_first_up_to_the_number_asked_for(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        begun = await scheduler.backfills.begin(job, asked(1, 100, order=BackfillOrder.NEWEST, rate_per_s=2, most=3))
        await scheduler.backfills.advance()
        assert await spans(scheduler, job) == [
            (1, 97, 97, "missed"),
            (98, 98, 1, "backfill"),
            (99, 99, 1, "backfill"),
            (100, 100, 1, "missed"),
        ]
        await scheduler.backfills.advance()  # not before a second has passed
        assert (await scheduler.backfills.get(job.job_id, begun.number)).created == 2
        scheduler.clock.advance(1)
        await scheduler.backfills.advance()
        found = await scheduler.backfills.get(job.job_id, begun.number)
        assert (found.state, found.created) == (BackfillState.DONE, 3)
        assert (await spans(scheduler, job))[:2] == [(1, 96, 96, "missed"), (97, 97, 1, "backfill")]


async def test_instants_from_before_the_job_was_made_can_be_run(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(10))
        assert await scheduler.backfills.preview(job, asked(-25, 0)) == BackfillPreview(2, 0, 0, 0, 0, 2)
        begun = await scheduler.backfills.begin(job, asked(-25, 0))
        await scheduler.backfill_until(job, begun.number)
        assert await spans(scheduler, job) == [(-20, -20, 1, "backfill"), (-10, -10, 1, "backfill")]


async def test_blackouts_hold_backfilled_instants_back(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        rules = BlackoutRules(from_at=START + 11 * SECOND, until_at=START + 14 * SECOND)
        await scheduler.blackouts.put("default", "b", rules)
        request = asked(10, 15, rate_per_s=50)
        assert await scheduler.backfills.preview(job, request) == BackfillPreview(5, 0, 5, 0, 3, 2)
        begun = await scheduler.backfills.begin(job, request)
        await scheduler.backfill_until(job, begun.number)
        assert [row[:3] for row in await spans(scheduler, job)] == [
            (1, 9, 9), (10, 10, 1), (11, 13, 3), (14, 14, 1), (15, 100, 86),
        ]  # fmt: skip


async def test_a_mark_of_a_former_schedule_gives_only_what_it_planned(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(10), misfire=SKIP, grace_s=0)
        scheduler.clock.advance(100.5)
        await scheduler.settle()
        job = await scheduler.edit(job, every(4), misfire=SKIP, grace_s=0)
        preview = await scheduler.backfills.preview(job, asked(10, 50))
        assert preview == BackfillPreview(10, 0, 10, 8, 0, 2)  # 20 and 40 are instants of both
        begun = await scheduler.backfills.begin(job, asked(10, 50, rate_per_s=50))
        await scheduler.backfill_until(job, begun.number)
        assert await spans(scheduler, job) == [
            (10, 10, 1, "missed"),
            (20, 20, 1, "backfill"),
            (30, 30, 1, "missed"),
            (40, 40, 1, "backfill"),
            (50, 100, 6, "missed"),
        ]


async def test_a_mark_that_does_not_add_up_is_left_alone(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(10), misfire=SKIP, grace_s=0)
        scheduler.clock.advance(100.5)
        await scheduler.settle()
        await scheduler.edit(job, every(5), misfire=SKIP, grace_s=0)
        await scheduler.store.runs.prune(ended_before=0, limit=100)  # forgets the former definition
        job = await scheduler.jobs.get(job.job_id)
        preview = await scheduler.backfills.preview(job, asked(10, 50))
        assert (preview.in_marks, preview.unaccountable, preview.to_create) == (8, 8, 0)
        begun = await scheduler.backfills.begin(job, asked(10, 50))
        await scheduler.backfill_until(job, begun.number)
        assert await spans(scheduler, job) == [(10, 100, 10, "missed")]


async def test_backfilled_runs_wait_in_line_behind_live_ones(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        await scheduler.backfills.begin(job, asked(1, 4, rate_per_s=50))
        await scheduler.backfills.advance()
        scheduler.clock.advance(0.5)
        await scheduler.dispatch.fire_due()
        (live,) = await scheduler.claim()
        assert live.key.scheduled_at == START + 101 * SECOND
        await scheduler.end([live])
        (made_up,) = await scheduler.claim()
        assert made_up.key.scheduled_at == START + SECOND


async def test_a_restart_goes_on_where_it_was(data: str) -> None:
    clock = ManualClock(START)
    async with scheduling(data, clock=clock) as scheduler:
        job = await after_an_outage(scheduler)
        begun = await scheduler.backfills.begin(job, asked(1, 31, rate_per_s=10))
        await scheduler.backfills.advance()
    clock.advance(60)
    async with scheduling(data, clock=clock) as scheduler:
        assert (await scheduler.backfills.get(job.job_id, begun.number)).created == 10
        await scheduler.backfill_until(job, begun.number)
        found = await scheduler.backfills.get(job.job_id, begun.number)
        assert (found.created, found.looked_at, found.state) == (30, 30, BackfillState.DONE)
        await scheduler.settle()
        made = [row for row in await spans(scheduler, job) if row[3] == "backfill"]
        assert [first for first, *_ in made] == list(range(1, 31))


async def test_a_pause_holds_a_backfill_and_the_deletion_of_the_job_ends_it(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        begun = await scheduler.backfills.begin(job, asked(1, 31))
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        await scheduler.backfills.advance()
        found = await scheduler.backfills.get(job.job_id, begun.number)
        assert (found.state, found.created) == (BackfillState.RUNNING, 0)
        await scheduler.jobs.resume(job.job_id)
        scheduler.clock.advance(5)
        await scheduler.backfills.advance()
        assert (await scheduler.backfills.get(job.job_id, begun.number)).created == 1
        await scheduler.jobs.delete(job.job_id, if_version=None)
        scheduler.clock.advance(5)
        await scheduler.backfills.advance()
        found = await scheduler.backfills.get(job.job_id, begun.number)
        assert (found.state, found.reason) == (BackfillState.CANCELLED, "the job was deleted")


async def test_a_cancelled_backfill_creates_nothing_more(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        begun = await scheduler.backfills.begin(job, asked(1, 31))
        await scheduler.backfills.advance()
        await scheduler.backfills.cancel(job.job_id, begun.number)
        scheduler.clock.advance(10)
        assert await scheduler.backfills.advance() is None
        assert (await scheduler.backfills.get(job.job_id, begun.number)).created == 1
        with pytest.raises(BackfillNotFound):
            await scheduler.backfills.cancel(job.job_id, 9)


async def test_what_cannot_be_backfilled_is_refused(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        for bad in (asked(5, 5), asked(6, 5), asked(1, 102), asked(-200_000, 0)):
            with pytest.raises(RequestError):
                await scheduler.backfills.begin(job, bad)
        await scheduler.backfills.begin(job, asked(1, 5))
        with pytest.raises(StateConflict, match="another"):
            await scheduler.backfills.begin(job, asked(1, 5))
        paused = await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        with pytest.raises(StateConflict, match="paused"):
            await scheduler.backfills.preview(paused, asked(1, 5))
        following = await scheduler.job(AfterFinishSchedule(every_s=5), name="after")
        with pytest.raises(StateConflict, match="every_after_finish"):
            await scheduler.backfills.preview(following, asked(1, 5))


async def test_instants_that_are_due_and_not_recorded_are_left_to_the_dispatcher(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await after_an_outage(scheduler)
        scheduler.clock.advance(10)
        assert (await scheduler.backfills.preview(job, asked(100, 110))).instants == 1
        with pytest.raises(RequestError):
            await scheduler.backfills.begin(job, asked(102, 110))


async def test_a_server_that_is_restarted_midway_creates_and_delivers_each_once(
    start_server: StartServer, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with receiving() as receiver:
        async with start_server() as server, httpx.AsyncClient(base_url=server.url) as http:
            assert await server.wait_ready()
            body = {"key": "hourly", "name": "hourly", "schedules": [{"cron": "0 * * * *"}]}
            job = (await http.post("/v1/jobs", json=body | {"target": {"url": receiver.url}})).json()
            created_at = datetime.fromisoformat(job["created_at"])
            words = ["jobs", "backfill", "hourly", "--rate", "10", "--from", _text(created_at - timedelta(hours=30))]
            words += ["--to", _text(created_at)]
            assert await asyncio.to_thread(run, [*words, "--dry-run", "--server", server.url]) == 0
            assert "to create" in capsys.readouterr().out
            assert await asyncio.to_thread(run, [*words, "--server", server.url]) == 0
            await receiver.wait_for(lambda calls: len(calls) >= 5)
            assert await server.stop() == 0
        async with start_server() as server, httpx.AsyncClient(base_url=server.url) as http:
            assert await server.wait_ready()
            place = f"/v1/jobs/{job['id']}/backfills/1"
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls}) >= 30)
            async with asyncio.timeout(10):
                while (found := (await http.get(place)).json())["state"] != "done":
                    await asyncio.sleep(0.05)
            assert (found["created"], found["looked_at"], found["instants"]) == (30, 30, 30)
            assert await server.stop() == 0
        assert len(receiver.calls) == 30


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
