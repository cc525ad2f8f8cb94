"""When a run is tried again, through the services over a real data file and a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.domain.ids import RunKey
from onbeat.domain.model import RetryPolicy
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.store.values import Finish, RunView

HOUR = 3_600


@pytest.fixture
async def scheduler(data: str) -> AsyncIterator[Scheduler]:
    async with scheduling(data) as opened:
        yield opened


async def fire(scheduler: Scheduler, retry: RetryPolicy) -> RunKey:
    """A job that fires once an hour, at its first instant."""
    job = await scheduler.job(every(HOUR), retry=retry)
    scheduler.clock.set(START + HOUR * SECOND)
    await scheduler.dispatch.fire_due()
    return RunKey(job.job_id, START + HOUR * SECOND)


async def attempt(scheduler: Scheduler, status: int, *, retry_after_s: float | None = None) -> RunView:
    """Deliver what is ready, with that answer."""
    (held,) = await scheduler.claim()
    outcome = Outcome(
        OutcomeKind.HTTP_STATUS,
        scheduler.clock.now(),
        1_000,
        status,
        error=f"the receiver answered {status}",
        retry_after_s=retry_after_s,
    )
    await scheduler.leasing.finish([Finish(held.key, held.token, outcome)])
    return await scheduler.runs.get(held.key)


async def test_a_table_of_waits_is_walked_and_its_last_entry_repeats(scheduler: Scheduler) -> None:
    key = await fire(scheduler, RetryPolicy(backoff="table", table_s=(1, 30, 600), max_attempts=6))
    waits = []
    for _ in range(5):
        run = await attempt(scheduler, 503)
        assert run.ready_at is not None
        waits.append((run.ready_at - scheduler.clock.now()) / SECOND)
        scheduler.clock.set(run.ready_at)
    assert waits == [1, 30, 600, 600, 600]
    assert (await attempt(scheduler, 503)).state == RunState.FAILED
    assert len(await scheduler.runs.attempts(key)) == 6


async def test_a_receiver_that_says_when_may_put_a_run_off_more_often_than_it_has_attempts(
    scheduler: Scheduler,
) -> None:
    await fire(scheduler, RetryPolicy(max_attempts=2))
    for number in range(1, 11):
        run = await attempt(scheduler, 429, retry_after_s=60)
        assert (run.state, run.attempt, run.ready_at) == (
            RunState.PENDING, number, scheduler.clock.now() + 60 * SECOND,
        )  # fmt: skip
        scheduler.clock.advance(60)
    assert (await attempt(scheduler, 500)).state == RunState.PENDING
    scheduler.clock.advance(60)
    assert (await attempt(scheduler, 500)).state == RunState.FAILED


async def test_a_receiver_that_puts_a_run_off_for_ever_is_given_up_after_max_age(scheduler: Scheduler) -> None:
    await fire(scheduler, RetryPolicy(max_age_s=2 * HOUR))
    run = await attempt(scheduler, 503, retry_after_s=99_999)
    assert run.ready_at == scheduler.clock.now() + HOUR * SECOND
    scheduler.clock.advance(HOUR + 1)
    run = await attempt(scheduler, 503, retry_after_s=99_999)
    assert run.state == RunState.FAILED
    assert run.error == "the receiver answered 503; max_age would pass before the next attempt"


async def test_a_retry_that_would_meet_the_next_fire_is_given_up_and_says_so(scheduler: Scheduler) -> None:
    await fire(scheduler, RetryPolicy(backoff="table", table_s=(HOUR - 1, 1), expires_before_next=True))
    run = await attempt(scheduler, 500)
    assert run.ready_at == START + (2 * HOUR - 1) * SECOND
    scheduler.clock.set(run.ready_at)
    run = await attempt(scheduler, 500)
    assert run.state == RunState.FAILED
    assert run.error == "the receiver answered 500; the next planned instant comes before the next attempt"


async def test_a_status_that_means_done_ends_the_run_as_succeeded_and_shows_the_answer(scheduler: Scheduler) -> None:
    key = await fire(scheduler, RetryPolicy(statuses={"409": "succeed"}))
    run = await attempt(scheduler, 409)
    assert (run.state, run.status, run.error) == (RunState.SUCCEEDED, 409, None)
    assert [seen.status for seen in await scheduler.runs.attempts(key)] == [409]


async def test_gone_pauses_the_job_with_the_reason(scheduler: Scheduler) -> None:
    key = await fire(scheduler, RetryPolicy())
    assert (await attempt(scheduler, 410)).state == RunState.FAILED
    job = await scheduler.jobs.get(key.job_id)
    assert (job.state, job.reason, job.next_fire_at) == (JobState.PAUSED, "the receiver answered 410 Gone", None)


async def test_a_run_that_is_brought_back_has_its_retries_again_however_old_it_is(scheduler: Scheduler) -> None:
    key = await fire(scheduler, RetryPolicy(max_attempts=2, backoff="fixed", max_age_s=60))
    await attempt(scheduler, 500)
    scheduler.clock.advance(1)
    assert (await attempt(scheduler, 500)).state == RunState.FAILED
    scheduler.clock.advance(600)
    await scheduler.runs.retry(key)
    assert (await attempt(scheduler, 500)).state == RunState.PENDING
    scheduler.clock.advance(1)
    assert (await attempt(scheduler, 500)).state == RunState.FAILED
    assert [seen.attempt for seen in await scheduler.runs.attempts(key)] == [1, 2, 3, 4]
