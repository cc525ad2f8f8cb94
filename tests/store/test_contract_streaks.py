"""The contract of Leases: streaks of failed runs, and the pause that ends one."""

from __future__ import annotations

import itertools

import pytest
from tests.store.factories import FAILURE, LEASE_US, NOW, SECOND, Judge, Maker, outcome

from onbeat.domain.auto_pause import Streak
from onbeat.domain.callback import callback_token
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.store.contract import Store
from onbeat.store.values import (
    AcceptRun,
    Completion,
    EndRun,
    Finish,
    FinishResult,
    JobChange,
    StoredJob,
    Verdict,
)

_numbers = itertools.count(1)
DAY = 86_400 * SECOND
LATER = NOW + 60 * SECOND
TWO = Streak(2, NOW - SECOND)
COUNTED = EndRun(RunState.FAILED, streak=TWO)
PAUSING = EndRun(RunState.FAILED, pauses_job="too many", streak=TWO)


async def streak_of(make: Maker, job: StoredJob) -> Streak | None:
    """What is kept, as the decision about another run of the job sees it."""
    key, token = await make.running(job, NOW + 10 * DAY + next(_numbers), lane=7)
    judge = Judge(EndRun(RunState.CANCELLED))
    await make.finish(key, token, FAILURE, decide=judge)
    ((run, _definition),) = judge.seen
    return run.streak


async def failed(make: Maker, job: StoredJob, scheduled_at: int = NOW, *, verdict: Verdict = COUNTED) -> None:
    key, token = await make.running(job, scheduled_at)
    await make.finish(key, token, FAILURE, decide=Judge(verdict))


async def test_a_streak_is_kept_for_its_job_alone_and_seen_by_the_next_decision(make: Maker) -> None:
    job, other = await make.job(), await make.job()
    assert await streak_of(make, job) is None
    await failed(make, job)
    assert await streak_of(make, job) == TWO
    assert await streak_of(make, other) is None
    await failed(make, job, NOW + 1, verdict=EndRun(RunState.TIMED_OUT, streak=Streak(3, NOW)))
    assert await streak_of(make, job) == Streak(3, NOW)


async def test_an_end_without_a_streak_leaves_what_is_kept(make: Maker) -> None:
    job = await make.job()
    await failed(make, job)
    await failed(make, job, NOW + 1, verdict=EndRun(RunState.CANCELLED))
    assert await streak_of(make, job) == TWO


@pytest.mark.parametrize("how", ["plain", "judged", "handler", "beside another job's"])
async def test_success_drops_the_streak_of_its_job_alone(store: Store, make: Maker, how: str) -> None:
    job, other = await make.job(), await make.job()
    for each in (job, other):
        await failed(make, each)
    key, token = await make.running(job, NOW + 1)
    if how == "plain":
        await make.finish(key, token)
    elif how == "judged":
        await make.finish(key, token, FAILURE, decide=Judge(EndRun(RunState.SUCCEEDED)))
    elif how == "handler":
        await make.finish(key, token, outcome(OutcomeKind.ACCEPTED), decide=Judge(AcceptRun(None)))
        await store.leases.complete(Completion(key, callback_token(token)), now=NOW, decide=Judge(COUNTED))
    else:
        fails, fails_token = await make.running(other, NOW + 1)
        items = [Finish(fails, fails_token, FAILURE), Finish(key, token, outcome())]
        await store.leases.finish(items, now=NOW, decide=Judge(COUNTED))
    assert await streak_of(make, job) is None
    assert await streak_of(make, other) == TWO


@pytest.mark.parametrize("how", ["finish", "lost lease", "overdue retry", "handler"])
async def test_the_end_that_pauses_its_job_says_so_wherever_it_happens(store: Store, make: Maker, how: str) -> None:
    job = await make.job(next_fire_at=LATER)
    if how == "finish":
        key, token = await make.running(job)
        answer = await make.finish(key, token, FAILURE, decide=Judge(PAUSING))
    elif how == "lost lease":
        await make.running(job)
        (answer,) = await store.leases.expire(now=NOW + LEASE_US + 1, limit=10, decide=Judge(PAUSING))
    elif how == "overdue retry":
        await make.retrying(job, ready_at=NOW + 2 * DAY)
        (answer,) = await store.leases.expire(now=NOW + DAY, limit=10, decide=Judge(PAUSING))
    else:
        key, token = await make.running(job)
        await make.finish(key, token, outcome(OutcomeKind.ACCEPTED), decide=Judge(AcceptRun(None)))
        failure = Completion(key, callback_token(token), error="no")
        answer = await store.leases.complete(failure, now=NOW, decide=Judge(PAUSING))
    assert (answer.result, answer.state, answer.paused_job) == (FinishResult.ENDED, RunState.FAILED, "too many")
    after = await make.reread(job)
    assert (after.state, after.reason, after.next_fire_at) == (JobState.PAUSED, "too many", None)
    assert await streak_of(make, job) == TWO


async def test_a_job_that_is_paused_already_keeps_its_pause_and_nobody_is_told_of_another(
    store: Store, make: Maker
) -> None:
    job = await make.job()
    key, token = await make.running(job)
    change = JobChange(state=JobState.PAUSED, reason="holidays", paused_at=NOW)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: change)
    answer = await make.finish(key, token, FAILURE, decide=Judge(PAUSING))
    assert (answer.result, answer.paused_job) == (FinishResult.ENDED, None)
    assert (await make.reread(job)).reason == "holidays"


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (JobChange(state=JobState.ACTIVE), None),
        (JobChange(state=JobState.COMPLETED), None),
        (JobChange(state=JobState.PAUSED, paused_at=NOW), TWO),
        (JobChange(name="another"), TWO),
        (JobChange(definition='"another"', max_running=1), TWO),
    ],
)
async def test_a_change_of_state_but_for_a_pause_drops_the_streak(
    store: Store, make: Maker, change: JobChange, kept: Streak | None
) -> None:
    job = await make.job()
    await failed(make, job, verdict=PAUSING)
    await store.jobs.change(job.job_id, now=LATER, decide=lambda _job: change)
    assert await streak_of(make, job) == kept


async def test_a_deleted_job_gets_no_streak(store: Store, make: Maker) -> None:
    job = await make.job()
    runs = [await make.running(job, NOW + number, lane=number) for number in range(2)]
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED))
    judge = Judge(PAUSING)
    for key, token in runs:
        assert (await make.finish(key, token, FAILURE, decide=judge)).paused_job is None
    assert {run.streak for run, _definition in judge.seen} == {None}
