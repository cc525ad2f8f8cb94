"""Jobs that pause by themselves, and what comes back with them, under a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.store.factories import FAILURE, Maker, fail, new_lease, new_run
from tests.support.scheduler import SECOND, START, Scheduler, draft, every, scheduling

from onbeat.domain.callback import callback_token
from onbeat.domain.errors import StateConflict
from onbeat.domain.ids import RunKey, format_job_id, format_run_id
from onbeat.domain.model import AutoPausePolicy, RetryPolicy, decode_definition
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.services.backfills import BackfillRequest
from onbeat.services.job_rules import EveryDraft
from onbeat.services.jobs import Change
from onbeat.services.resumptions import MOST_REPLAYED
from onbeat.store.values import Completion, Finish, Page, RunFilter, StoredJob
from onbeat.telemetry import Metrics

HOUR = 3_600
ONCE = RetryPolicy(max_attempts=1)
REFUSED, SUCCEEDED = OutcomeKind.REFUSED, OutcomeKind.SUCCEEDED


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    async with scheduling(tmp_path / "onbeat.db") as opened:
        yield opened


async def counting(
    scheduler: Scheduler, failures: int | None = None, failing_s: int | None = None, **changes: Any
) -> StoredJob:
    """A job that fires once an hour and pauses by itself."""
    changes = {"retry": ONCE, "auto_pause": AutoPausePolicy(failures, failing_s)} | changes
    return await scheduler.job(every(HOUR), **changes)


async def hours(scheduler: Scheduler, *outcomes: OutcomeKind) -> None:
    """So many hours pass, and the attempt of each ends like that."""
    for outcome in outcomes:
        scheduler.clock.advance(HOUR)
        await scheduler.dispatch.fire_due()
        await scheduler.end(await scheduler.claim(), outcome)


async def state(scheduler: Scheduler, job: StoredJob) -> tuple[JobState, str | None]:
    found = await scheduler.jobs.get(job.job_id)
    return found.state, found.reason


async def outcomes(scheduler: Scheduler, job: StoredJob) -> list[str]:
    """What became of the job's instants, oldest first."""
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1_000))
    return [run.state.value for run in reversed(found)]


async def test_a_job_pauses_with_its_nth_failed_run_and_a_success_starts_the_count_anew(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=3)
    await hours(scheduler, REFUSED, REFUSED, SUCCEEDED, REFUSED, REFUSED)
    assert await state(scheduler, job) == (JobState.ACTIVE, None)
    await hours(scheduler, REFUSED)
    assert await state(scheduler, job) == (JobState.PAUSED, "auto_pause: 3 failed runs in a row")
    await hours(scheduler, SUCCEEDED)  # nobody has anything to do
    assert await outcomes(scheduler, job) == ["failed"] * 2 + ["succeeded"] + ["failed"] * 3


async def test_a_job_pauses_when_it_has_been_failing_for_as_long_as_it_says(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failing_s=3 * HOUR)
    await hours(scheduler, SUCCEEDED, REFUSED, REFUSED, REFUSED)
    assert (await state(scheduler, job))[0] == JobState.ACTIVE
    await hours(scheduler, REFUSED)
    reason = "auto_pause: failing for 10800 s, 4 failed runs in a row"
    assert await state(scheduler, job) == (JobState.PAUSED, reason)


async def test_without_a_policy_a_job_fails_on_for_ever(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(HOUR), retry=ONCE)
    await hours(scheduler, *[REFUSED] * 30)
    assert (await state(scheduler, job))[0] == JobState.ACTIVE


async def test_runs_count_and_not_their_attempts(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=2, retry=RetryPolicy(max_attempts=3, backoff="fixed", initial_s=1))
    await hours(scheduler, REFUSED)
    for _ in range(2):
        assert (await state(scheduler, job))[0] == JobState.ACTIVE
        scheduler.clock.advance(1)
        await scheduler.end(await scheduler.claim(), REFUSED)
    assert await outcomes(scheduler, job) == ["failed"]
    assert (await state(scheduler, job))[0] == JobState.ACTIVE


async def test_what_is_cancelled_skipped_or_missed_neither_lengthens_the_streak_nor_ends_it(
    scheduler: Scheduler,
) -> None:
    job = await counting(scheduler, failures=2, overlap="skip")
    await hours(scheduler, REFUSED)
    cancelled = await scheduler.runs.trigger(job.job_id, payload=None)
    scheduler.clock.advance(HOUR)
    await scheduler.dispatch.fire_due()  # skipped: the other one is in its way
    await scheduler.runs.cancel(cancelled.key)
    scheduler.clock.advance(3 * HOUR + 600)
    await scheduler.dispatch.fire_due()
    assert await outcomes(scheduler, job) == ["failed", "cancelled", "skipped", "missed"]
    assert (await state(scheduler, job))[0] == JobState.ACTIVE
    scheduler.clock.advance(HOUR - 600)
    await scheduler.dispatch.fire_due()
    await scheduler.end(await scheduler.claim(), REFUSED)
    assert (await state(scheduler, job))[0] == JobState.PAUSED


@pytest.mark.parametrize("how", ["unknown", "timed_out", "lease_lost", "handler"])
async def test_every_way_to_fail_counts(scheduler: Scheduler, how: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "unknown": {"delivery": "at_most_once"},
        "timed_out": {"max_run_time_s": 20},
        "lease_lost": {},
        "handler": {"completion": "callback"},
    }
    job = await counting(scheduler, failures=1, **changes[how])
    run = await scheduler.runs.trigger(job.job_id, payload=None)
    (held,) = await scheduler.claim()
    if how == "unknown":
        await scheduler.end([held], OutcomeKind.NO_ANSWER)
    elif how == "handler":
        await scheduler.end([held], OutcomeKind.ACCEPTED)
        await scheduler.callbacks.complete(Completion(run.key, callback_token(held.token), error="no"))
    else:
        scheduler.clock.advance(31)
        await scheduler.reap.expire_leases()
    expected = how if how in ("unknown", "timed_out") else "failed"
    assert (await scheduler.runs.get(run.key)).state == expected
    assert await state(scheduler, job) == (JobState.PAUSED, "auto_pause: 1 failed run in a row")


async def test_the_pause_is_told_once_to_the_log_and_to_the_metrics(scheduler: Scheduler) -> None:
    metrics = Metrics()
    scheduler.endings.listen(metrics.observe_endings)
    job = await counting(scheduler, failures=2)
    with capture_logs() as logs:
        await hours(scheduler, REFUSED, REFUSED)
    run = RunKey(job.job_id, START + 2 * HOUR * SECOND)
    assert [line for line in logs if line["event"] == "job_paused"] == [
        {
            "event": "job_paused",
            "log_level": "warning",
            "job_id": format_job_id(job.job_id),
            "run_id": format_run_id(run),
            "reason": "auto_pause: 2 failed runs in a row",
        }
    ]
    assert b"onbeat_jobs_paused_total 1.0\n" in metrics.render()


async def test_resuming_starts_the_count_anew(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=2)
    await hours(scheduler, REFUSED, REFUSED)
    await scheduler.jobs.resume(job.job_id)
    await hours(scheduler, REFUSED)
    assert (await state(scheduler, job))[0] == JobState.ACTIVE
    await hours(scheduler, REFUSED)
    assert (await state(scheduler, job))[0] == JobState.PAUSED


async def test_the_policy_of_the_runs_own_definition_holds(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=1)
    scheduler.clock.advance(HOUR)
    await scheduler.dispatch.fire_due()
    await scheduler.jobs.update(job.job_id, Change(lambda _stored, _existing: draft(every(HOUR), retry=ONCE)))
    await scheduler.end(await scheduler.claim(), REFUSED)
    assert (await state(scheduler, job))[0] == JobState.PAUSED


async def test_resume_with_replay_brings_back_what_failed_since_the_last_success_oldest_first(
    scheduler: Scheduler,
) -> None:
    job = await counting(scheduler, failures=3)
    await hours(scheduler, REFUSED, SUCCEEDED, REFUSED, REFUSED, REFUSED)
    resumed = await scheduler.resumptions.resume(job.job_id)
    assert (resumed.job.state, resumed.replayed, resumed.left) == (JobState.ACTIVE, 3, 0)
    order = []
    for _ in range(3):
        (held,) = await scheduler.claim()
        assert held.attempt == 2
        order.append((held.key.scheduled_at - START) // (HOUR * SECOND))
        await scheduler.end([held])
        scheduler.clock.advance(1)
    assert order == [3, 4, 5]
    assert await outcomes(scheduler, job) == ["failed"] + ["succeeded"] * 4


async def test_what_fails_again_after_a_replay_pauses_the_job_again(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=2)
    await hours(scheduler, REFUSED, REFUSED)
    await scheduler.resumptions.resume(job.job_id)
    await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
    await scheduler.resumptions.resume(job.job_id)  # nothing has failed since: both wait
    for _ in range(2):
        assert (await state(scheduler, job))[0] == JobState.ACTIVE
        await scheduler.end(await scheduler.claim(), REFUSED)
        scheduler.clock.advance(1)
    assert (await state(scheduler, job))[0] == JobState.PAUSED
    assert await outcomes(scheduler, job) == ["failed", "failed"]


async def test_a_replay_is_bounded_and_says_what_it_left(scheduler: Scheduler) -> None:
    job = await scheduler.job(every(HOUR), retry=ONCE)
    for first in range(START, START + MOST_REPLAYED + 100, 100):
        leases = [new_lease() for _ in range(100)]
        failing = [new_run(first + lane, lane=lane, lease=lease) for lane, lease in enumerate(leases)]
        await Maker(scheduler.store).runs(job, *failing)
        reports = [
            Finish(RunKey(job.job_id, run.scheduled_at), lease.token, FAILURE)
            for run, lease in zip(failing, leases, strict=True)
        ]
        await scheduler.store.leases.finish(reports, now=START, decide=fail())
    await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
    resumed = await scheduler.resumptions.resume(job.job_id)
    assert (resumed.replayed, resumed.left) == (MOST_REPLAYED, 100)
    where = RunFilter(job_id=job.job_id)
    assert [run.key.scheduled_at for run in await scheduler.store.runs.find_revivable(where, Page(limit=1))] == [
        START + MOST_REPLAYED
    ]


async def test_a_run_that_may_have_had_its_effect_does_not_come_back(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=2, delivery="at_most_once")
    await hours(scheduler, OutcomeKind.NO_ANSWER, REFUSED)
    resumed = await scheduler.resumptions.resume(job.job_id)
    assert (resumed.replayed, resumed.left) == (1, 0)
    assert await outcomes(scheduler, job) == ["unknown", "pending"]


async def test_what_comes_back_waits_for_the_end_of_the_pause(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=1)
    await hours(scheduler, REFUSED)
    (failed,) = await scheduler.store.runs.find_revivable(RunFilter(job_id=job.job_id), Page())
    assert await scheduler.runs.replay_held(failed, decode_definition(job.definition))
    scheduler.clock.advance(60)
    assert await scheduler.claim() == []
    await scheduler.resumptions.resume(job.job_id)
    assert [held.key for held in await scheduler.claim()] == [failed.key]


async def test_a_replay_of_a_job_that_goes_on_brings_nothing_back(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=2)
    await hours(scheduler, REFUSED)
    resumed = await scheduler.resumptions.resume(job.job_id)
    assert (resumed.job.state, resumed.replayed, resumed.left) == (JobState.ACTIVE, 0, 0)
    assert await outcomes(scheduler, job) == ["failed"]


async def test_a_job_that_a_wider_pause_holds_is_refused_before_anything_comes_back(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=9)
    await hours(scheduler, REFUSED)
    await scheduler.pauses.pause("default", None, note=None, until=None, cancel=False)
    with pytest.raises(StateConflict, match="held by the pause of everything"):
        await scheduler.resumptions.resume(job.job_id)
    assert await outcomes(scheduler, job) == ["failed"]


async def test_instants_of_the_pause_are_one_row_that_a_backfill_makes_up_for(scheduler: Scheduler) -> None:
    job = await counting(scheduler, failures=1)
    await hours(scheduler, REFUSED, SUCCEEDED, SUCCEEDED)
    paused_at = (await scheduler.jobs.get(job.job_id)).paused_at
    assert paused_at == START + HOUR * SECOND
    resumed = (await scheduler.resumptions.resume(job.job_id)).job
    assert await outcomes(scheduler, job) == ["pending", "skipped"]
    begun = await scheduler.backfills.begin(resumed, BackfillRequest(paused_at, scheduler.clock.now()))
    await scheduler.backfill_until(job, begun.number)
    while claimed := await scheduler.claim():
        await scheduler.end(claimed)
    assert await outcomes(scheduler, job) == ["succeeded", "succeeded", "skipped"]  # the range ends before now


async def test_an_instant_that_is_due_when_the_job_pauses_belongs_to_the_pause(scheduler: Scheduler) -> None:
    job = await scheduler.job(EveryDraft(every_s=1, anchor_at=0), retry=ONCE, auto_pause=AutoPausePolicy(failures=1))
    scheduler.clock.advance(1)
    await scheduler.dispatch.fire_due()
    scheduler.clock.advance(5)
    await scheduler.end(await scheduler.claim(), REFUSED)
    await scheduler.jobs.resume(job.job_id)
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page())
    assert [(run.state, run.count) for run in reversed(found)] == [(RunState.FAILED, 1), (RunState.SKIPPED, 5)]
