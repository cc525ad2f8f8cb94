"""The contract of Leases: finish, expire, cancel, revive, and who gets the lane then."""

from __future__ import annotations

import json

import pytest
from tests.store.factories import (
    FAILURE,
    LEASE_US,
    NOW,
    SECOND,
    Judge,
    Maker,
    fail,
    never,
    new_lease,
    new_run,
    outcome,
    retry,
)

from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind, Response
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.store.contract import Store
from onbeat.store.values import EndRun, Finish, FinishResult, FirePlan, JobChange, LiveRun, Page, RunFilter, Verdict

OTHER = b"\x00" * 16
LATER = NOW + 60 * SECOND


async def test_success_ends_the_run_without_asking(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    answer = await make.finish(key, token, outcome(status=204, response=Response()), now=NOW + 2)
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.SUCCEEDED)
    view = await make.view(key)
    assert (view.state, view.finished_at, view.duration_us, view.status) == (RunState.SUCCEEDED, NOW + 2, 1_500, 204)
    assert (view.outcome, view.attempt, view.worker, view.lease_until) == ("succeeded", 1, "worker-1", None)
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.attempt, attempt.kind, attempt.status, attempt.started_at) == (1, "succeeded", 204, NOW)


async def test_failure_is_judged_from_run_and_definition(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job)
    judge = fail()
    answer = await make.finish(key, token, FAILURE, decide=judge, now=NOW + 2)
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.FAILED)
    ((run, definition),) = judge.seen
    assert definition == job.definition
    assert (run.key, run.state, run.attempt, run.lane) == (key, RunState.RUNNING, 1, 0)
    assert (run.first_started_at, run.attempt_started_at, run.worker) == (NOW, NOW, "worker-1")
    assert (run.lease_until, run.deadline_at) == (NOW + LEASE_US, NOW + 86_400 * SECOND)
    view = await make.view(key)
    assert (view.state, view.outcome, view.status) == (RunState.FAILED, "http_status", 503)
    assert view.error == "the receiver answered 503"
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.kind, attempt.status, attempt.error) == ("http_status", 503, "the receiver answered 503")


async def test_retry_keeps_key_and_lane_and_waits_for_its_moment(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    answer = await make.finish(key, token, FAILURE, decide=retry(LATER))
    assert (answer.result, answer.state, answer.ready_at) == (FinishResult.WILL_RETRY, RunState.PENDING, LATER)
    view = await make.view(key)
    assert (view.state, view.lane, view.ready_at, view.attempt) == (RunState.PENDING, 0, LATER, 1)
    assert (view.outcome, view.status, view.lease_until) == ("http_status", 503, None)
    assert len(await store.runs.attempts(key)) == 1


async def test_retry_that_does_not_count_gives_the_number_back_and_leaves_no_attempt(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    await make.finish(key, token, outcome(OutcomeKind.INTERRUPTED), decide=retry(NOW, counts=False))
    assert (await make.view(key)).attempt == 0
    assert await store.runs.attempts(key) == []
    claimed = await make.claim_one()
    assert claimed is not None
    assert claimed.attempt == 1


async def test_attempts_of_a_run_are_kept_by_number(store: Store, make: Maker) -> None:
    key = await make.retrying(await make.job(), ready_at=NOW)
    claimed = await make.claim_one()
    assert claimed is not None
    await make.finish(key, claimed.token)
    assert [(one.attempt, one.kind) for one in await store.runs.attempts(key)] == [(1, "http_status"), (2, "succeeded")]


async def test_response_of_a_failed_attempt_is_kept_as_json(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    response = Response(headers=(("content-type", "text/\udcff"),), body=b"\x00\xff", truncated=True)
    bad = outcome(OutcomeKind.HTTP_STATUS, status=500, response=response, error="lone \ud800 surrogate")
    await make.finish(key, token, bad, decide=fail())
    (attempt,) = await store.runs.attempts(key)
    assert attempt.response is not None
    assert json.loads(attempt.response) == {"headers": [["content-type", "text/?"]], "body": "AP8=", "truncated": True}
    assert attempt.error == "lone ? surrogate"


async def test_stale_token_changes_nothing(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    answer = await make.finish(key, OTHER, FAILURE)
    assert answer.result is FinishResult.LEASE_LOST
    before = await make.view(key)
    assert before.state is RunState.RUNNING
    assert await store.runs.attempts(key) == []
    assert (await make.finish(key, token)).result is FinishResult.ENDED
    assert (await make.finish(RunKey(1, 1), token)).result is FinishResult.LEASE_LOST


@pytest.mark.parametrize("result", [outcome(), FAILURE])
async def test_same_finish_twice_is_repeated_and_changes_nothing(store: Store, make: Maker, result: object) -> None:
    key, token = await make.running(await make.job())
    await make.finish(key, token, result, decide=fail())  # type: ignore[arg-type]
    before = await make.view(key)
    again = await make.finish(key, token, result, now=LATER)  # type: ignore[arg-type]
    assert (again.result, again.state) == (FinishResult.REPEATED, before.state)
    assert await make.view(key) == before
    assert len(await store.runs.attempts(key)) == 1


async def test_same_finish_twice_is_repeated_whatever_became_of_the_run(store: Store, make: Maker) -> None:
    key, first = await make.running(await make.job())
    await make.finish(key, first, FAILURE, decide=retry(NOW + 5))
    again = await make.finish(key, first, FAILURE)
    assert (again.result, again.state, again.ready_at) == (FinishResult.REPEATED, RunState.PENDING, NOW + 5)
    claimed = await make.claim_one(now=NOW + 5)
    assert claimed is not None
    assert (await make.finish(key, first, FAILURE)).result is FinishResult.REPEATED
    await make.finish(key, claimed.token)
    assert (await make.finish(key, first, FAILURE)).result is FinishResult.REPEATED
    assert (await make.finish(key, claimed.token)).result is FinishResult.REPEATED


async def test_same_run_twice_in_one_batch_is_ended_and_repeated(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    other, other_token = await make.running(await make.job())
    items = [Finish(key, token, outcome()), Finish(other, other_token, outcome()), Finish(key, token, outcome())]
    answers = await store.leases.finish(items, now=NOW, decide=never)
    assert [answer.result for answer in answers] == [FinishResult.ENDED, FinishResult.ENDED, FinishResult.REPEATED]


async def test_finish_answers_a_mixed_batch_in_order(store: Store, make: Maker) -> None:
    good, bad, stale = [await make.running(await make.job()) for _ in range(3)]
    items = [
        Finish(bad[0], bad[1], FAILURE),
        Finish(stale[0], OTHER, outcome()),
        Finish(good[0], good[1], outcome()),
    ]
    answers = await store.leases.finish(items, now=NOW, decide=fail())
    assert [(answer.key, answer.result) for answer in answers] == [
        (bad[0], FinishResult.ENDED),
        (stale[0], FinishResult.LEASE_LOST),
        (good[0], FinishResult.ENDED),
    ]
    assert (await make.view(stale[0])).state is RunState.RUNNING


async def test_run_that_ended_by_another_hand_is_terminal(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    await store.leases.expire(now=LATER, limit=1, decide=fail())
    answer = await make.finish(key, token, now=LATER)
    assert (answer.result, answer.state) == (FinishResult.RUN_TERMINAL, RunState.FAILED)
    assert (await make.view(key)).state is RunState.FAILED


async def test_success_of_a_run_that_was_asked_to_stop_is_judged(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    await store.leases.cancel(key, now=NOW)
    judge = Judge(EndRun(RunState.CANCELLED))
    answer = await make.finish(key, token, decide=judge)
    assert judge.seen[0][0].cancel_requested
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.CANCELLED)
    assert [attempt.kind for attempt in await store.runs.attempts(key)] == ["succeeded"]


async def test_run_that_was_asked_to_stop_is_never_retried(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    await store.leases.cancel(key, now=NOW)
    answer = await make.finish(key, token, FAILURE, decide=retry())
    assert (answer.result, answer.state) == (FinishResult.ENDED, RunState.CANCELLED)


async def test_run_of_a_deleted_job_is_never_retried(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED))
    assert (await make.finish(key, token, FAILURE, decide=retry())).state is RunState.CANCELLED


async def test_decision_that_raises_ends_its_own_run_only(store: Store, make: Maker) -> None:
    bad, good = await make.running(await make.job()), await make.running(await make.job())

    def decide(run: LiveRun, _definition: str, _item: Finish) -> Verdict:
        if run.key == bad[0]:
            raise ValueError("unreadable")
        return EndRun(RunState.TIMED_OUT)

    items = [Finish(*bad, FAILURE), Finish(*good, FAILURE)]
    await store.leases.finish(items, now=NOW, decide=decide)
    assert (await make.view(bad[0])).error == "the outcome cannot be judged: unreadable"
    assert (await make.view(bad[0])).state is RunState.FAILED
    assert (await make.view(good[0])).state is RunState.TIMED_OUT


async def test_verdict_that_pauses_the_job_does_so_in_the_same_transaction(store: Store, make: Maker) -> None:
    job = await make.job(max_running=2, next_fire_at=LATER + 1)
    key, token = await make.running(job)
    await make.pending(job, NOW - 1, lane=1)
    gone = EndRun(RunState.FAILED, "410 Gone", pauses_job="the receiver answered 410 Gone")
    await make.finish(key, token, FAILURE, decide=Judge(gone), now=LATER)
    paused = await make.reread(job)
    assert (paused.state, paused.reason, paused.paused_at) == (
        JobState.PAUSED,
        "the receiver answered 410 Gone",
        LATER,
    )
    assert (paused.next_fire_at, paused.version) == (None, 2)
    assert await store.fires.next_due_at() is None
    assert await make.claim_one(now=LATER) is None


async def test_verdict_that_pauses_the_job_leaves_what_was_due_to_the_pause(store: Store, make: Maker) -> None:
    job = await make.job(next_fire_at=NOW + 5)
    key, token = await make.running(job)
    gone = EndRun(RunState.FAILED, "410 Gone", pauses_job="the receiver answered 410 Gone")
    await make.finish(key, token, FAILURE, decide=Judge(gone), now=LATER)
    assert (await make.reread(job)).paused_at == NOW + 4


@pytest.mark.parametrize("end", ["finish", "cancel", "expire"])
async def test_next_waiting_run_gets_the_lane_wherever_a_run_ends(store: Store, make: Maker, end: str) -> None:
    job = await make.job()
    key, token = await make.running(job)
    manual = await make.waiting(job, NOW + 1, trigger=Trigger.MANUAL)
    newer = await make.waiting(job, NOW + 3)
    older = await make.waiting(job, NOW + 2)
    if end == "finish":
        await make.finish(key, token, now=LATER)
    elif end == "cancel":
        await store.leases.cancel(key, now=NOW)
        await make.finish(key, token, FAILURE, decide=Judge(EndRun(RunState.CANCELLED)), now=LATER)
    else:
        await store.leases.expire(now=LATER, limit=5, decide=fail())
    view = await make.view(older)
    assert (view.lane, view.ready_at) == (0, LATER)
    assert [(await make.view(other)).lane for other in (manual, newer)] == [None, None]
    for expected in (older, newer, manual):
        claimed = await make.claim_one(now=LATER)
        assert claimed is not None
        assert claimed.key == expected
        await make.finish(expected, claimed.token, now=LATER)


async def test_promoted_run_is_not_ready_before_its_own_moment(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job)
    waiting = await make.waiting(job, NOW + 1, ready_at=LATER)
    await make.finish(key, token)
    assert (await make.view(waiting)).ready_at == LATER


async def test_retry_keeps_the_waiting_run_waiting(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.retrying(job)
    waiting = await make.waiting(job, NOW + 1)
    assert (await make.view(waiting)).lane is None


async def test_expired_run_is_pending_again_and_the_lost_attempt_counts(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    edge = NOW + LEASE_US
    assert await store.leases.expire(now=edge, limit=9, decide=never) == []
    judge = retry(edge + 1)
    (answer,) = await store.leases.expire(now=edge + 1, limit=9, decide=judge)
    assert (answer.key, answer.result, answer.ready_at) == (key, FinishResult.WILL_RETRY, edge + 1)
    assert judge.seen[0][0].key == key
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.kind, attempt.worker) == ("lease_lost", "worker-1")
    claimed = await make.claim_one(now=edge + 1)
    assert claimed is not None
    assert claimed.attempt == 2
    assert (await make.finish(key, token)).result is FinishResult.LEASE_LOST


@pytest.mark.order_over_slots
async def test_expire_takes_the_earliest_up_to_its_limit(store: Store, make: Maker) -> None:
    held = [await make.running(await make.job(), lease=new_lease(until=NOW + 9 - number)) for number in range(4)]
    first = await store.leases.expire(now=LATER, limit=2, decide=fail())
    assert [answer.key for answer in first] == [held[3][0], held[2][0]]
    assert len(await store.leases.expire(now=LATER, limit=9, decide=fail())) == 2
    assert await store.leases.expire(now=LATER, limit=9, decide=fail()) == []


async def test_run_past_its_deadline_is_taken_though_heartbeats_go_on(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job(), max_run_us=10 * SECOND)
    deadline = NOW + 10 * SECOND
    await store.leases.extend([(key, token)], now=deadline - 1, until=LATER)
    (answer,) = await store.leases.expire(now=deadline, limit=9, decide=Judge(EndRun(RunState.TIMED_OUT)))
    assert answer.state is RunState.TIMED_OUT
    (attempt,) = await store.runs.attempts(key)
    assert (attempt.kind, attempt.duration_us) == ("timed_out", 10 * SECOND)


async def test_retry_that_waits_past_its_deadline_ends(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job, max_run_us=10 * SECOND)
    await make.finish(key, token, FAILURE, decide=retry(LATER))
    waiting = await make.waiting(job, NOW + 1)
    deadline = NOW + 10 * SECOND
    assert await store.leases.expire(now=deadline - 1, limit=9, decide=never) == []
    (answer,) = await store.leases.expire(now=deadline, limit=9, decide=Judge(EndRun(RunState.TIMED_OUT, "too long")))
    assert (answer.key, answer.state) == (key, RunState.TIMED_OUT)
    view = await make.view(key)
    assert (view.error, view.outcome, view.status) == ("too long", "http_status", 503)
    assert len(await store.runs.attempts(key)) == 1
    assert (await make.view(waiting)).lane == 0


async def test_retry_past_its_deadline_ends_even_against_the_verdict(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job(), max_run_us=10 * SECOND)
    await make.finish(key, token, FAILURE, decide=retry(LATER))
    (answer,) = await store.leases.expire(now=LATER, limit=9, decide=retry(LATER))
    assert answer.state is RunState.TIMED_OUT


async def test_run_past_its_deadline_is_not_retried_even_against_the_verdict(store: Store, make: Maker) -> None:
    key, _token = await make.running(await make.job(), max_run_us=10 * SECOND)
    answers = await store.leases.expire(now=LATER, limit=9, decide=retry(LATER))
    assert [(answer.key, answer.state) for answer in answers] == [(key, RunState.TIMED_OUT)]


async def test_cancel_ends_a_pending_run_at_once(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.pending(job)
    waiting = await make.waiting(job, NOW + 1)
    assert await store.leases.cancel(key, now=LATER) is RunState.CANCELLED
    assert (await make.view(key)).finished_at == LATER
    assert (await make.view(waiting)).lane == 0
    assert await store.leases.cancel(waiting, now=LATER) is RunState.CANCELLED


async def test_cancelled_waiting_run_leaves_the_lanes_as_they_are(store: Store, make: Maker) -> None:
    job = await make.job()
    key, _token = await make.running(job)
    waiting = await make.waiting(job, NOW + 1)
    assert await store.leases.cancel(waiting, now=NOW) is RunState.CANCELLED
    assert (await make.view(key)).state is RunState.RUNNING


async def test_cancel_asks_a_running_run_to_stop(store: Store, make: Maker) -> None:
    key, _token = await make.running(await make.job())
    assert await store.leases.cancel(key, now=NOW) is RunState.RUNNING
    assert (await make.view(key)).cancel_requested


async def test_cancel_of_an_ended_or_unknown_run_changes_nothing(store: Store, make: Maker) -> None:
    key = await make.ended(await make.job())
    before = await make.view(key)
    assert await store.leases.cancel(key, now=LATER) is RunState.SUCCEEDED
    assert await make.view(key) == before
    assert await store.leases.cancel(RunKey(1, 1), now=LATER) is None


REVIVABLE = [RunState.FAILED, RunState.TIMED_OUT, RunState.CANCELLED, RunState.UNKNOWN]


@pytest.mark.parametrize("state", REVIVABLE)
async def test_revived_run_lives_again_under_its_own_id(store: Store, make: Maker, state: RunState) -> None:
    key = await make.ended(await make.job(), state=state)
    assert await store.leases.revive(key, now=LATER, late_after=LATER + 5) is RunState.PENDING
    view = await make.view(key)
    assert (view.state, view.attempt, view.lane, view.ready_at) == (RunState.PENDING, 1, 0, LATER)
    assert len(await store.runs.find(RunFilter(), Page())) == 1
    claimed = await make.claim_one(now=LATER)
    assert claimed is not None
    assert (claimed.key, claimed.attempt, claimed.late_after) == (key, 2, LATER + 5)
    assert claimed.deadline_at == LATER + 86_400 * SECOND
    await make.finish(key, claimed.token, now=LATER)
    assert (await make.view(key)).state is RunState.SUCCEEDED
    assert [attempt.attempt for attempt in await store.runs.attempts(key)] == [1, 2]


async def test_revived_run_waits_where_no_lane_is_free(store: Store, make: Maker) -> None:
    job = await make.job(max_running=2)
    key = await make.ended(job, NOW - 5, state=RunState.FAILED)
    await make.running(job, NOW, lane=0)
    assert await store.leases.revive(key, now=LATER, late_after=LATER) is RunState.PENDING
    assert (await make.view(key)).lane == 1
    full = await make.job()
    blocked = await make.ended(full, NOW - 5, state=RunState.FAILED)
    await make.running(full, NOW)
    await store.leases.revive(blocked, now=LATER, late_after=LATER)
    assert (await make.view(blocked)).lane is None


async def test_revived_run_waits_for_its_time_and_gives_its_lane_to_live_work_until_it_begins(
    store: Store, make: Maker
) -> None:
    fire_at, ready_at = NOW + 3_600 * SECOND, NOW + 7_200 * SECOND
    job = await make.job(next_fire_at=NOW)
    first, second = [await make.ended(job, NOW - number, state=RunState.FAILED) for number in (9, 8)]
    for key in (first, second):
        await store.leases.revive(key, now=NOW, ready_at=ready_at, late_after=NOW)
    (due,) = await make.due()
    (hold,) = due.holds
    assert (hold.scheduled_at, hold.is_brought_back, hold.ready_at, due.waiting) == (NOW - 9, True, ready_at, None)
    run = new_run(fire_at, displaces=first.scheduled_at)
    await make.fire(FirePlan(next_fire_at=2 * ready_at, runs=(run,)), now=fire_at)
    assert [(await make.view(key)).lane for key in (first, second)] == [None, None]
    live = await make.claim_one(now=fire_at)
    assert live is not None
    assert live.key == RunKey(job.job_id, fire_at)
    await make.finish(live.key, live.token, now=fire_at)
    assert await make.claim_one(now=fire_at) is None
    for key in (first, second):
        begun = await make.claim_one(now=ready_at)
        assert begun is not None
        assert begun.key == key
        await make.finish(begun.key, begun.token, now=ready_at)


async def test_waiting_revived_run_lets_those_of_the_schedule_go_first(store: Store, make: Maker) -> None:
    job = await make.job()
    revived = await make.ended(job, NOW - 9, state=RunState.FAILED)
    key, token = await make.running(job, NOW - 8)
    await store.leases.revive(revived, now=NOW, late_after=NOW)
    waiting = await make.waiting(job, NOW)
    await make.finish(key, token)
    assert ((await make.view(waiting)).lane, (await make.view(revived)).lane) == (0, None)


async def test_run_that_succeeded_lives_or_is_unknown_is_not_revived(store: Store, make: Maker) -> None:
    key = await make.ended(await make.job())
    assert await store.leases.revive(key, now=LATER, late_after=LATER) is RunState.SUCCEEDED
    running, _token = await make.running(await make.job())
    assert await store.leases.revive(running, now=LATER, late_after=LATER) is RunState.RUNNING
    assert await store.leases.revive(RunKey(1, 1), now=LATER, late_after=LATER) is None
    deleted = await make.job()
    failed = await make.ended(deleted, state=RunState.FAILED)
    await store.jobs.change(deleted.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED))
    assert await store.leases.revive(failed, now=LATER, late_after=LATER) is RunState.FAILED


async def test_revived_run_of_a_paused_job_is_held_back(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.ended(job, state=RunState.FAILED)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.PAUSED))
    assert await store.leases.revive(key, now=LATER, late_after=LATER) is RunState.PENDING
    assert await make.claim_one(now=LATER) is None


async def test_revived_run_uses_the_current_definition_once_its_own_is_pruned(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.ended(job, state=RunState.FAILED)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(definition='"new"', max_running=1))
    await store.runs.prune(ended_before=NOW, limit=10)
    await store.leases.revive(key, now=LATER, late_after=LATER)
    claimed = await make.claim_one(now=LATER)
    assert claimed is not None
    assert (claimed.definition, claimed.job_version) == ('"new"', 2)


async def test_an_attempt_that_spends_nothing_is_numbered_recorded_and_told_to_the_next_decision(
    store: Store, make: Maker
) -> None:
    key, token = await make.running(await make.job())
    await make.finish(key, token, FAILURE, decide=retry(NOW, spends=False))
    leased = await make.claim_one()
    assert leased is not None
    judge = retry(NOW)
    await make.finish(key, leased.token, FAILURE, decide=judge)
    ((run, _),) = judge.seen
    assert (run.attempt, run.free_attempts, run.revived_at) == (2, 1, None)
    assert [attempt.attempt for attempt in await store.runs.attempts(key)] == [1, 2]


async def test_a_run_brought_back_has_all_its_attempts_again_and_its_age_begins_anew(store: Store, make: Maker) -> None:
    key = await make.ended(await make.job(), state=RunState.FAILED)
    await store.leases.revive(key, now=LATER, late_after=LATER)
    leased = await make.claim_one(now=LATER)
    assert leased is not None
    judge = fail()
    await make.finish(key, leased.token, FAILURE, decide=judge, now=LATER)
    ((run, _),) = judge.seen
    assert (run.attempt, run.free_attempts, run.revived_at, run.created_at) == (2, 1, LATER, NOW)


@pytest.mark.parametrize("by", ["finish", "expire"])
async def test_decisions_see_the_clock_of_the_job(store: Store, make: Maker, by: str) -> None:
    job = await make.job(next_fire_at=LATER)
    key, token = await make.running(job)
    judge = fail()
    if by == "finish":
        await make.finish(key, token, FAILURE, decide=judge)
    else:
        await store.leases.expire(now=NOW + LEASE_US + 1, limit=10, decide=judge)
    ((run, _),) = judge.seen
    assert run.next_fire_at == LATER
