"""Completion by callback, through the services over a real data file and a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.scheduler import PUBLIC_URL, Scheduler, every, scheduling

from onbeat.domain.callback import callback_token
from onbeat.domain.errors import LeaseLost, RunTerminal
from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.model import RetryPolicy
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.values import Completion, FinishResult, LeaseStatus, Progress

HOUR = 3_600


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    async with scheduling(tmp_path / "onbeat.db") as opened:
        yield opened


async def begin(scheduler: Scheduler, **changes: Any) -> tuple[RunKey, bytes]:
    """A run that its handler has accepted, and the handler's token."""
    job = await scheduler.job(every(HOUR), completion="callback", retry=RetryPolicy(backoff="fixed"), **changes)
    run = await scheduler.runs.trigger(job.job_id, payload=None)
    return run.key, await accept(scheduler)


async def accept(scheduler: Scheduler) -> bytes:
    (held,) = await scheduler.claim()
    assert held.callback_url == f"{PUBLIC_URL}/v1/runs/{format_run_id(held.key)}"
    await scheduler.end([held], OutcomeKind.ACCEPTED)
    return callback_token(held.token)


async def state(scheduler: Scheduler, key: RunKey) -> RunState:
    return (await scheduler.runs.get(key)).state


async def test_a_run_goes_on_for_hours_until_its_handler_reports(scheduler: Scheduler) -> None:
    key, token = await begin(scheduler)
    scheduler.clock.advance(20 * HOUR)
    await scheduler.reap.expire_leases()
    assert await state(scheduler, key) == RunState.RUNNING
    for result in (FinishResult.ENDED, FinishResult.REPEATED):
        assert (await scheduler.callbacks.complete(Completion(key, token))).result == result
    assert await state(scheduler, key) == RunState.SUCCEEDED


async def test_a_lost_callback_ends_as_timed_out(scheduler: Scheduler) -> None:
    key, token = await begin(scheduler, max_run_time_s=2 * HOUR)
    scheduler.clock.advance(2 * HOUR)
    await scheduler.reap.expire_leases()
    run = await scheduler.runs.get(key)
    assert (run.state, run.error) == (RunState.TIMED_OUT, "max_run_time passed")
    with pytest.raises(RunTerminal):
        await scheduler.callbacks.complete(Completion(key, token))


async def test_a_failure_follows_the_rules_for_retries(scheduler: Scheduler) -> None:
    key, token = await begin(scheduler)
    for _ in range(4):
        answer = await scheduler.callbacks.complete(Completion(key, token, error="no rows"))
        assert answer.result == FinishResult.WILL_RETRY
        scheduler.clock.advance(1)
        former, token = token, await accept(scheduler)
        with pytest.raises(LeaseLost):
            await scheduler.callbacks.report(Progress(key, former))
    assert (await scheduler.callbacks.complete(Completion(key, token, error="no rows"))).state == RunState.FAILED
    assert {attempt.kind for attempt in await scheduler.runs.attempts(key)} == {"handler_error"}


async def test_a_handler_that_must_report_and_falls_silent_loses_the_run_to_another_attempt(
    scheduler: Scheduler,
) -> None:
    key, token = await begin(scheduler, callback_heartbeat_s=60)
    for _ in range(3):
        scheduler.clock.advance(59)
        assert await scheduler.callbacks.report(Progress(key, token)) == LeaseStatus.LIVE
        assert await scheduler.reap.expire_leases() == 0
    scheduler.clock.advance(61)
    assert await scheduler.reap.expire_leases() == 1
    assert await state(scheduler, key) == RunState.PENDING
    second = await accept(scheduler)
    with pytest.raises(LeaseLost):
        await scheduler.callbacks.complete(Completion(key, token))
    await scheduler.callbacks.complete(Completion(key, second))
    assert [attempt.kind for attempt in await scheduler.runs.attempts(key)] == ["lease_lost", "succeeded"]


async def test_at_most_once_is_not_sent_again_when_its_handler_falls_silent(scheduler: Scheduler) -> None:
    key, _token = await begin(scheduler, callback_heartbeat_s=60, delivery="at_most_once")
    scheduler.clock.advance(61)
    await scheduler.reap.expire_leases()
    assert await state(scheduler, key) == RunState.UNKNOWN


async def test_a_cancelled_run_ends_with_the_next_look_at_leases(scheduler: Scheduler) -> None:
    key, token = await begin(scheduler)
    await scheduler.runs.cancel(key)
    assert await scheduler.callbacks.report(Progress(key, token)) == LeaseStatus.CANCEL
    assert await scheduler.reap.expire_leases() == 1
    run = await scheduler.runs.get(key)
    assert (run.state, run.error) == (RunState.CANCELLED, "cancelled while its handler held it")


async def test_a_restart_changes_nothing_for_a_handler(tmp_path: Path) -> None:
    async with scheduling(tmp_path / "again.db") as first:
        key, token = await begin(first)
    async with scheduling(tmp_path / "again.db", clock=first.clock) as second:
        second.clock.advance(HOUR)
        await second.reap.expire_leases()
        assert (await second.callbacks.complete(Completion(key, token))).state == RunState.SUCCEEDED


async def test_a_pause_is_bounded_by_the_end_of_the_run(scheduler: Scheduler) -> None:
    key, _token = await begin(scheduler)
    paused = await scheduler.jobs.pause(key.job_id, note=None, cancel=False)
    bound = await scheduler.runs.side_effects_end_at(paused, asked_to_stop=False)
    assert bound == (await scheduler.runs.get(key)).deadline_at
