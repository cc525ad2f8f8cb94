"""Jobs whose schedules begin and end, through the running services."""

from __future__ import annotations

import pytest
from tests.support.accounting import recorded_instants
from tests.support.scheduler import SECOND, START, TARGET, Scheduler, scheduling

from onbeat.domain.errors import DefinitionError
from onbeat.domain.ids import RunKey, format_job_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.model import CronSchedule, WebhookTarget, decode_definition
from onbeat.domain.moved_start import moved_start
from onbeat.domain.states import JobState, RunState
from onbeat.services.job_rules import EveryDraft
from onbeat.store.values import StoredJob


def seconds(*offsets: int) -> list[int]:
    return [START + offset * SECOND for offset in offsets]


def bounded(every_s: int, *, first: int | None = None, last: int | None = None) -> EveryDraft:
    """An interval from and until a number of seconds after START."""
    return EveryDraft(
        every_s=every_s,
        anchor_at=None,
        start_at=None if first is None else START + first * SECOND,
        end_at=None if last is None else START + last * SECOND,
    )


async def run_for(scheduler: Scheduler, length_s: int) -> None:
    for _ in range(length_s):
        scheduler.clock.advance(1)
        await scheduler.settle()


async def state_of(scheduler: Scheduler, job: StoredJob) -> JobState:
    return (await scheduler.jobs.get(job.job_id)).state


async def test_a_job_starts_and_ends_with_its_schedule(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(2, first=3, last=7))
        assert job.next_fire_at == START + 3 * SECOND
        await run_for(scheduler, 6)
        assert await state_of(scheduler, job) == JobState.ACTIVE
        await run_for(scheduler, 6)
        assert await state_of(scheduler, job) == JobState.COMPLETED
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(3, 5, 7)


async def test_an_outage_over_the_end_accounts_for_every_instant_and_completes(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(2, first=3, last=99))
        scheduler.clock.advance(1_000_000)
        await scheduler.settle()
        assert await state_of(scheduler, job) == JobState.COMPLETED
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(*range(3, 100, 2))


async def test_an_ended_job_can_be_edited_and_woken_by_a_later_end(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(2, first=3, last=7))
        await run_for(scheduler, 9)
        target = WebhookTarget(url=TARGET.url + "other")
        edited = await scheduler.edit(job, bounded(2, first=3, last=7), target=target)
        assert (edited.state, edited.next_fire_at) == (JobState.COMPLETED, None)
        woken = await scheduler.edit(job, bounded(2, first=3, last=11), target=target)
        assert (woken.state, woken.next_fire_at) == (JobState.ACTIVE, START + 11 * SECOND)
        await run_for(scheduler, 5)
        assert await state_of(scheduler, job) == JobState.COMPLETED
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(3, 5, 7, 11)


async def test_a_limit_counts_planned_instants_and_survives_edits_outages_and_a_restart(data: str) -> None:
    limited = EveryDraft(every_s=2, anchor_at=None, max_fires=5)
    async with scheduling(data) as scheduler:
        job = await scheduler.job(limited, grace_s=1)
        await run_for(scheduler, 3)  # the first
        await scheduler.edit(job, limited, grace_s=1, timeout_s=5.0)
        scheduler.clock.advance(4)  # the second and the third are missed
        await scheduler.runs.trigger(job.job_id, payload=None)  # counts for nothing
        await scheduler.settle()
        clock = scheduler.clock
    async with scheduling(data, clock=clock) as scheduler:
        await run_for(scheduler, 20)
        assert await state_of(scheduler, job) == JobState.COMPLETED
        more = await scheduler.edit(job, EveryDraft(every_s=2, anchor_at=None, max_fires=20))
        assert (more.state, more.next_fire_at) == (JobState.ACTIVE, START + 28 * SECOND)
        await run_for(scheduler, 20)
        assert await state_of(scheduler, job) == JobState.COMPLETED
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(2, 4, 6, 8, 10, *range(28, 41, 2))


async def test_a_limit_that_lies_in_the_past_is_refused(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(EveryDraft(every_s=2, anchor_at=None, max_fires=50))
        await run_for(scheduler, 20)
        with pytest.raises(DefinitionError) as refusal:
            await scheduler.edit(job, EveryDraft(every_s=2, anchor_at=None, max_fires=5))
        assert refusal.value.reason_code == "never_fires"


async def test_jitter_moves_the_start_and_not_the_identity(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(600), jitter_s=60, spread_s=60, grace_s=5)
        definition = decode_definition(job.definition)
        start = moved_start(definition, job_id=job.job_id).start_of(START + 600 * SECOND)
        assert START + 600 * SECOND < start < START + 720 * SECOND
        scheduler.clock.set(START + 600 * SECOND)
        await scheduler.dispatch.fire_due()
        key = RunKey(job.job_id, START + 600 * SECOND)
        run = await scheduler.runs.get(key)
        assert (run.state, run.ready_at, run.moved_us) == (RunState.PENDING, start, start - key.scheduled_at)
        scheduler.clock.set(start - 1)
        assert await scheduler.claim() == []
        scheduler.clock.set(start + 5 * SECOND)  # grace counts from the moved start
        (held,) = await scheduler.claim()
        assert held.starts_at == start
        await scheduler.end([held])
        ended = await scheduler.runs.get(key)
        assert (ended.state, ended.late, ended.moved_us) == (RunState.SUCCEEDED, False, start - key.scheduled_at)


@pytest.mark.parametrize(("behind_us", "state"), [(0, RunState.PENDING), (1, RunState.MISSED)])
async def test_a_fire_is_missed_when_grace_after_its_moved_start_is_over(
    data: str, behind_us: int, state: RunState
) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(600), jitter_s=300, grace_s=5)
        key = RunKey(job.job_id, START + 600 * SECOND)
        start = moved_start(decode_definition(job.definition), job_id=job.job_id).start_of(key.scheduled_at)
        scheduler.clock.set(start + 5 * SECOND + behind_us)
        await scheduler.dispatch.fire_due()
        assert (await scheduler.runs.get(key)).state == state


async def test_a_run_by_hand_is_not_moved(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(600), jitter_s=300, spread_s=300)
        run = await scheduler.runs.trigger(job.job_id, payload=None)
        (held,) = await scheduler.claim()
        assert (held.key, held.starts_at, run.moved_us) == (run.key, None, 0)


async def test_a_fire_that_replaces_one_that_waits_for_its_moved_start_takes_its_place(data: str) -> None:
    """Or a job whose jitter is longer than its interval would never start."""
    async with scheduling(data) as scheduler:
        await scheduler.job(bounded(1), jitter_s=60)
        started = 0
        for _ in range(120):
            scheduler.clock.advance(1)
            await scheduler.dispatch.fire_due()
            held = await scheduler.claim()
            started += len(held)
            await scheduler.end(held)
        assert started > 1


async def test_a_pause_over_the_end_completes_on_resume(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(bounded(2, first=3, last=7))
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(100)
        resumed = await scheduler.jobs.resume(job.job_id)
        assert resumed.state == JobState.COMPLETED
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(3, 5, 7)


async def test_a_schedule_that_leaves_out_the_gap_fires_the_next_day(data: str) -> None:
    async with scheduling(data) as scheduler:
        scheduler.clock.set(parse_instant("2027-03-14T00:00:00Z", field="now"))
        job = await scheduler.job(CronSchedule("30 2 * * *", "America/New_York", "skip"))
        assert job.next_fire_at == parse_instant("2027-03-15T06:30:00Z", field="then")
