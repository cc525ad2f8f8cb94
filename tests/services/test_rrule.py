"""A job with a recurrence rule, from its creation to its end, over the real store."""

from __future__ import annotations

from tests.support.scheduler import SECOND, START, Scheduler, scheduling

from onbeat.domain.model import RruleSchedule
from onbeat.domain.states import JobState
from onbeat.store.values import StoredJob

HOUR = 3_600 * SECOND

# START is Friday 2027-01-15T08:00:00Z: ten o'clock in Kyiv.
TWO_FRIDAYS = RruleSchedule(rule="FREQ=WEEKLY;BYDAY=FR;COUNT=2", dtstart="2027-01-11T10:30:00", timezone="Europe/Kyiv")


async def state_of(scheduler: Scheduler, job: StoredJob) -> tuple[JobState, int | None]:
    stored = await scheduler.jobs.get(job.job_id)
    return stored.state, stored.next_fire_at


async def test_job_fires_at_the_instants_of_its_rule_and_is_completed(data: str) -> None:
    first, second = START + HOUR // 2, START + HOUR // 2 + 7 * 24 * HOUR
    async with scheduling(data) as scheduler:
        job = await scheduler.job(TWO_FRIDAYS)
        assert await state_of(scheduler, job) == (JobState.ACTIVE, first)
        for expected in (first, second):
            scheduler.clock.advance((expected - scheduler.clock.now()) / SECOND)
            await scheduler.dispatch.fire_due()
            (held,) = await scheduler.claim()
            assert held.key.scheduled_at == expected
            await scheduler.end([held])
        assert await state_of(scheduler, job) == (JobState.COMPLETED, None)


async def test_edit_of_something_else_leaves_the_rule_where_it_is(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(TWO_FRIDAYS)
        scheduler.clock.advance(86_400)
        await scheduler.dispatch.fire_due()
        before = await state_of(scheduler, job)
        await scheduler.edit(job, TWO_FRIDAYS, name="another name")
        assert await state_of(scheduler, job) == before
        assert before == (JobState.ACTIVE, START + HOUR // 2 + 7 * 24 * HOUR)
