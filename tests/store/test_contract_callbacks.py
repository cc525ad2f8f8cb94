"""The contract of Leases: runs that a handler accepted and reports on."""

from __future__ import annotations

import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Judge, Maker, fail, never, outcome, retry

from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind, Response
from onbeat.domain.states import RunState
from onbeat.store.contract import Store
from onbeat.store.values import (
    AcceptRun,
    Completion,
    EndRun,
    FinishResult,
    JobChange,
    LeaseStatus,
    Progress,
)

ACCEPTED = outcome(OutcomeKind.ACCEPTED, status=202)
DAY = 86_400 * SECOND
LATER = NOW + 5 * SECOND
RESULT = Response((("content-type", "application/json"),), b'{"rows":3}')


async def accepted(store: Store, make: Maker, *, until: int | None = None) -> tuple[RunKey, bytes, bytes]:
    """A run in its handler's hands, with the worker's token and the handler's."""
    key, token = await make.running(await make.job(max_running=2))
    answer = await make.finish(key, token, ACCEPTED, decide=Judge(AcceptRun(until)))
    assert (answer.result, answer.state) == (FinishResult.ACCEPTED, RunState.RUNNING)
    return key, token, callback_token(token)


async def test_an_accepted_run_goes_on_until_its_deadline_and_no_worker_extends_it(store: Store, make: Maker) -> None:
    key, token, callback = await accepted(store, make)
    view = await make.view(key)
    assert (view.state, view.accepted_at, view.lease_until, view.status) == (RunState.RUNNING, NOW, NOW + DAY, 202)
    for held in (token, callback):
        assert await store.leases.extend([(key, held)], now=NOW, until=LATER) == [LeaseStatus.LEASE_LOST]
        assert await store.leases.permit([(key, held)], now=NOW) == [LeaseStatus.LEASE_LOST]
    assert (await make.view(key)).lease_until == NOW + DAY
    assert await store.leases.expire(now=NOW + 2 * LEASE_US, limit=10, decide=never) == []
    again = await make.finish(key, token, ACCEPTED, decide=never)
    assert (again.result, again.state) == (FinishResult.REPEATED, RunState.RUNNING)


async def test_an_accepted_run_is_nobodys_to_give_back(store: Store, make: Maker) -> None:
    key, token, callback = await accepted(store, make)
    before = await make.view(key)
    for held in (token, callback):
        assert await store.leases.release([(key, held)], now=LATER) == 0
    assert await make.view(key) == before
    await store.leases.cancel(key, now=LATER)
    assert await store.leases.release([(key, callback)], now=LATER) == 0
    assert (await make.view(key)).state == RunState.RUNNING


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.NO_ANSWER])
async def test_an_accepted_run_is_no_workers_to_finish(store: Store, make: Maker, kind: OutcomeKind) -> None:
    key, _token, callback = await accepted(store, make)
    before = await make.view(key)
    answer = await make.finish(key, callback, outcome(kind), decide=never)
    assert answer.result == FinishResult.LEASE_LOST
    assert await make.view(key) == before
    done = await store.leases.complete(Completion(key, callback), now=LATER, decide=never)
    assert done.result == FinishResult.ENDED


async def test_success_ends_the_run_keeps_the_result_and_is_answered_twice(store: Store, make: Maker) -> None:
    key, token, callback = await accepted(store, make)
    done = Completion(key, callback, result=RESULT)
    answer = await store.leases.complete(done, now=LATER, decide=never)
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.SUCCEEDED)
    view = await make.view(key)
    assert (view.state, view.finished_at, view.duration_us) == (RunState.SUCCEEDED, LATER, 5 * SECOND)
    (attempt,) = await store.runs.attempts(key)
    assert attempt.response is not None
    assert b"eyJyb3dzIjozfQ==" in attempt.response
    again = await store.leases.complete(done, now=LATER + 1, decide=never)
    assert (again.result, again.state) == (FinishResult.REPEATED, RunState.SUCCEEDED)
    late = await make.finish(key, token, ACCEPTED, decide=never)
    assert late.result == FinishResult.REPEATED


async def test_failure_is_judged_and_recorded_and_the_next_attempt_has_another_token(store: Store, make: Maker) -> None:
    key, _token, callback = await accepted(store, make)
    judge = retry(LATER)
    failed = Completion(key, callback, error="no rows")
    answer = await store.leases.complete(failed, now=LATER, decide=judge)
    assert (answer.result, answer.state, answer.ready_at) == (FinishResult.WILL_RETRY, RunState.PENDING, LATER)
    ((run, _),) = judge.seen
    assert (run.attempt, run.accepted_at) == (1, NOW)
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.kind, attempt.error, attempt.duration_us) == ("handler_error", "no rows", 5 * SECOND)
    assert (await store.leases.complete(failed, now=LATER, decide=never)).result == FinishResult.REPEATED
    leased = await make.claim_one(now=LATER)
    assert leased is not None
    assert (await make.view(key)).accepted_at is None
    assert (await store.leases.complete(failed, now=LATER, decide=never)).result == FinishResult.REPEATED
    assert await store.leases.report(Progress(key, callback), now=LATER, decide=never_asked) == LeaseStatus.LEASE_LOST
    assert (await make.view(key)).state == RunState.RUNNING


def never_asked(*_arguments: object) -> int | None:
    """For reports that change nothing."""
    raise AssertionError("asked although nothing changes")


@pytest.mark.parametrize("error", [None, "no rows"])
async def test_a_handler_may_be_quicker_than_the_word_of_its_worker(
    store: Store, make: Maker, error: str | None
) -> None:
    key, token = await make.running(await make.job())
    callback = callback_token(token)
    assert await store.leases.report(Progress(key, callback, 50, "half"), now=NOW, decide=lambda *_: 0) == "live"
    assert ((await make.view(key)).progress_percent, (await make.view(key)).lease_until) == (50, NOW + LEASE_US)
    answer = await store.leases.complete(Completion(key, callback, error=error), now=LATER, decide=retry(LATER))
    assert answer.result == (FinishResult.ENDED if error is None else FinishResult.WILL_RETRY)
    assert (await store.leases.extend([(key, token)], now=LATER, until=LATER)) == [LeaseStatus.LEASE_LOST]
    late = await make.finish(key, token, ACCEPTED, decide=never)
    assert (late.result, late.state) == (FinishResult.REPEATED, answer.state)


async def test_only_the_token_of_the_callback_completes(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    other = callback_token(b"x" * 16)
    for wrong in (token, other, callback_token(callback_token(token)), b""):
        answer = await store.leases.complete(Completion(key, wrong), now=NOW, decide=never)
        assert answer.result == FinishResult.LEASE_LOST
        assert await store.leases.report(Progress(key, wrong), now=NOW, decide=never_asked) == LeaseStatus.LEASE_LOST
    nobody = RunKey(key.job_id, key.scheduled_at + 1)
    assert (await store.leases.complete(Completion(nobody, other), now=NOW, decide=never)).result == "lease_lost"
    await make.finish(key, token, outcome())
    assert (await store.leases.complete(Completion(key, other), now=NOW, decide=never)).result == "run_terminal"
    assert await store.leases.report(Progress(key, other), now=NOW, decide=never_asked) == LeaseStatus.RUN_TERMINAL


async def test_signs_of_life_extend_up_to_the_deadline_and_progress_is_shown(store: Store, make: Maker) -> None:
    key, _token, callback = await accepted(store, make, until=NOW + 60 * SECOND)
    assert (await make.view(key)).lease_until == NOW + 60 * SECOND
    for until, lease_until in ((NOW + 90 * SECOND, NOW + 90 * SECOND), (NOW + 2 * DAY, NOW + DAY), (None, NOW + DAY)):
        said = Progress(key, callback, 12.5, "reading")
        assert await store.leases.report(said, now=LATER, decide=lambda *_, until=until: until) == LeaseStatus.LIVE
        assert (await make.view(key)).lease_until == lease_until
    await store.leases.report(Progress(key, callback), now=LATER + 1, decide=lambda *_: None)
    await store.leases.report(Progress(key, callback, message="writing"), now=LATER + 2, decide=lambda *_: None)
    view = await make.view(key)
    assert (view.progress_percent, view.progress_message, view.progress_at) == (12.5, "writing", LATER + 2)


async def test_a_silent_handler_loses_the_run(store: Store, make: Maker) -> None:
    key, _token, callback = await accepted(store, make, until=NOW + 60 * SECOND)
    late = NOW + 60 * SECOND + 1
    assert await store.leases.report(Progress(key, callback), now=late, decide=never_asked) == LeaseStatus.LEASE_LOST
    (lost,) = await store.leases.expire(now=late, limit=10, decide=retry(late))
    assert lost.result == FinishResult.WILL_RETRY
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.kind, attempt.error) == (
        "lease_lost",
        "the handler accepted the run and did not report in time",
    )
    assert (await store.leases.complete(Completion(key, callback), now=late, decide=never)).result == "lease_lost"


async def test_a_lost_callback_ends_at_the_deadline(store: Store, make: Maker) -> None:
    key, _token, callback = await accepted(store, make)
    (ended,) = await store.leases.expire(now=NOW + DAY, limit=10, decide=Judge(EndRun(RunState.TIMED_OUT)))
    assert ended.state == RunState.TIMED_OUT
    assert [attempt.kind for attempt in await store.runs.attempts(key)] == ["timed_out"]
    answer = await store.leases.complete(Completion(key, callback), now=NOW + DAY, decide=never)
    assert answer.result == FinishResult.RUN_TERMINAL


@pytest.mark.parametrize("how", ["cancel", "change"])
async def test_a_cancelled_run_is_ended_for_its_handler_unless_it_succeeded_meanwhile(
    store: Store, make: Maker, how: str
) -> None:
    runs = [await accepted(store, make) for _ in range(2)]
    for key, _token, callback in runs:
        if how == "cancel":
            assert await store.leases.cancel(key, now=LATER) == RunState.RUNNING
        else:
            await store.jobs.change(key.job_id, now=LATER, decide=lambda _: JobChange(cancels_running=True))
        assert await store.leases.report(Progress(key, callback), now=LATER, decide=never_asked) == LeaseStatus.CANCEL
    succeeded = Completion(runs[1][0], runs[1][2])
    answer = await store.leases.complete(succeeded, now=LATER, decide=Judge(EndRun(RunState.SUCCEEDED)))
    assert answer.state == RunState.SUCCEEDED
    (ended,) = await store.leases.expire(now=LATER, limit=10, decide=Judge(EndRun(RunState.CANCELLED)))
    assert (ended.key, ended.state) == (runs[0][0], RunState.CANCELLED)
    assert [attempt.kind for attempt in await store.runs.attempts(runs[0][0])] == ["cancelled"]


async def test_a_failed_completion_can_end_the_run(store: Store, make: Maker) -> None:
    key, _token, callback = await accepted(store, make)
    job = await store.jobs.get(key.job_id)
    assert job is not None
    waiting = await make.waiting(job, NOW + 1)
    answer = await store.leases.complete(Completion(key, callback, error="no"), now=LATER, decide=fail())
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.FAILED)
    assert (await make.view(waiting)).lane is not None
