"""The checker is tested by mutation: for each rule a history that breaks exactly this one, and valid ones pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.testing.histories import (
    LEASE_US,
    STEP_US,
    Life,
    history_of,
    instant,
    revived,
    run_of,
    valid_histories,
    whole,
    with_calls,
)

from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.model import SECOND_US
from onbeat.domain.states import RunState, Trigger
from onbeat.store.values import FinishResult
from onbeat.testing.events import (
    Conflicted,
    Delivery,
    EndAnswered,
    EndAsked,
    Extended,
    Granted,
    History,
    Planned,
    Rule,
)
from onbeat.testing.history import Seen, judge


@given(valid_histories())
def test_valid_histories_hold(history: History) -> None:
    verdict = judge(history)
    assert verdict.holds, verdict.explain()


def grants(history: History) -> list[Granted]:
    return [call for call in history.calls if isinstance(call, Granted)]


def loses_an_instant() -> History:
    history = history_of("succeeds", seconds=2)
    return replace(
        history,
        runs=history.runs[:1],
        deliveries=[d for d in history.deliveries or () if d.key.scheduled_at == instant(0)],
    )


def loses_an_instant_behind_a_range() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=2, until=instant(1))
    return whole([], [mark], [Planned(1, (instant(0), instant(1), instant(2)))])


def records_an_instant_twice() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.SKIPPED)
    return whole([], [mark, replace(mark, state=RunState.MISSED)], [Planned(1, (instant(0),))])


def records_an_instant_in_a_run_and_in_a_range() -> History:
    life = Life(RunKey(1, instant(1)))
    life.live("succeeds")
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=2, until=instant(1))
    return whole([life], [mark], [Planned(1, (instant(0), instant(1)))])


def records_a_run_by_hand_in_both_tables() -> History:
    history = history_of("succeeds")
    by_hand = replace(run_of(RunKey(1, instant(0) + 1), RunState.CANCELLED), trigger=Trigger.MANUAL)
    return replace(history, runs=[*history.runs, by_hand, by_hand])


def records_what_nobody_planned() -> History:
    history = history_of("succeeds", seconds=2)
    return replace(history, planned=[Planned(1, (instant(0),))])


def has_a_range_that_ends_where_nothing_is_planned() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=2, until=instant(2))
    return whole([], [mark], [Planned(1, (instant(0), instant(1)))])


def leaves_a_run_pending() -> History:
    return replace(history_of("fails"), live_count=1)


def miscounts_attempts() -> History:
    history = history_of("fails", "succeeds")
    return replace(history, attempts={key: attempts[1:] for key, attempts in history.attempts.items()}, deliveries=None)


def miscounts_a_range() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=3, until=instant(1))
    return whole([], [mark], [Planned(1, (instant(0), instant(1)))])


def miscounts_live_runs() -> History:
    return replace(history_of("succeeds"), live_count=1)


def delivers_early() -> History:
    history = history_of("succeeds")
    (delivery,) = history.deliveries or ()
    return replace(history, deliveries=[replace(delivery, arrived_at=instant(0) - SECOND_US)])


def delivers_without_a_run() -> History:
    history = history_of("succeeds")
    ghost = Delivery(RunKey(2, instant(0)), 1, instant(1), 200)
    return replace(history, deliveries=[*(history.deliveries or ()), ghost])


def delivers_an_attempt_that_the_run_does_not_know() -> History:
    history = history_of("succeeds")
    (delivery,) = history.deliveries or ()
    return replace(history, deliveries=[replace(delivery, attempt=2)])


def delivers_for_a_range() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=2, until=instant(1))
    history = whole([], [mark], [Planned(1, (instant(0), instant(1)))])
    return replace(history, deliveries=[Delivery(RunKey(1, instant(0)), 1, instant(1), 200)])


def delivers_an_attempt_twice() -> History:
    history = history_of("succeeds")
    (delivery,) = history.deliveries or ()
    return replace(history, deliveries=[delivery, delivery])


def delivers_again_after_a_success() -> History:
    history = history_of("fails", "succeeds")
    ((key, attempts),) = history.attempts.items()
    return replace(history, attempts={key: [replace(attempts[0], kind="succeeded"), attempts[1]]})


def delivers_again_before_the_lease_is_lost() -> History:
    history = history_of("dies_after_sending", "succeeds")
    first, second = history.deliveries or ()
    return replace(history, deliveries=[first, replace(second, arrived_at=first.arrived_at + STEP_US)])


def succeeds_without_an_answer() -> History:
    history = history_of("succeeds")
    (delivery,) = history.deliveries or ()
    return replace(history, deliveries=[replace(delivery, status=500)])


def succeeds_without_a_delivery() -> History:
    return replace(history_of("succeeds"), deliveries=[])


def leases_what_is_held() -> History:
    history = history_of("dies_before_sending", "succeeds")
    first, second = grants(history)
    early = replace(second, asked_at=first.answered_at + STEP_US, answered_at=first.answered_at + 2 * STEP_US)
    # Nothing else is told of the lease that came too early, so only the grants themselves stand against each other.
    return replace(history, calls=[first, early])


def leases_what_a_heartbeat_holds() -> History:
    history = history_of("dies_before_sending", "succeeds")
    first, second = grants(history)
    beat = Extended(first.until - 2 * STEP_US, first.until - STEP_US, first.key, first.token, first.until + LEASE_US)
    early = replace(second, asked_at=first.until + STEP_US, answered_at=first.until + 2 * STEP_US)
    return replace(history, calls=[first, beat, early])


def grants_a_token_twice() -> History:
    history = history_of("dies_before_sending", "succeeds")
    first, second = grants(history)
    return replace(history, calls=[first, replace(second, token=first.token)])


def accepts_the_finish_of_a_former_holder() -> History:
    history = history_of("freezes", "succeeds")
    first, _ = grants(history)
    calls = [
        replace(call, result=FinishResult.WILL_RETRY)
        if isinstance(call, EndAnswered) and call.token == first.token
        else call
        for call in history.calls
    ]
    return replace(history, calls=calls)


def accepts_the_heartbeat_of_a_former_holder() -> History:
    history = history_of("dies_after_sending", "succeeds")
    first, second = grants(history)
    beat = Extended(second.answered_at, second.answered_at + STEP_US, first.key, first.token, first.until + LEASE_US)
    return with_calls(history, beat)


def accepts_the_report_of_a_former_handler() -> History:
    history = history_of("freezes", "fails", "succeeds")
    first, second, _ = grants(history)
    token = callback_token(first.token)
    report = EndAnswered(
        second.answered_at, second.answered_at + STEP_US, first.key, token, FinishResult.WILL_RETRY, True
    )
    return with_calls(history, report)


def accepts_a_finish_twice() -> History:
    history = history_of("succeeds")
    (answer,) = [call for call in history.calls if isinstance(call, EndAnswered)]
    again = replace(answer, asked_at=answer.answered_at, answered_at=answer.answered_at + STEP_US)
    return with_calls(history, again)


def leases_what_has_ended() -> History:
    history = history_of("succeeds")
    (held,) = grants(history)
    later = replace(held, token=bytes(16), asked_at=instant(9), answered_at=instant(10), until=instant(11))
    return with_calls(history, later)


def promises(history: History, **promised: object) -> History:
    (planned,) = history.planned
    return replace(history, planned=[replace(planned, **promised)])


def sends_again_what_is_sent_once() -> History:
    return promises(history_of("dies_after_sending", "succeeds"), sends_once=True)


def gives_up_with_attempts_left() -> History:
    history = history_of("fails")
    runs = [replace(run, state=RunState.FAILED) for run in history.runs]
    return promises(replace(history, runs=runs), attempts=2)


def cancels_what_nobody_gave_up() -> History:
    history = history_of("fails")
    runs = [replace(run, state=RunState.CANCELLED) for run in history.runs]
    return promises(replace(history, runs=runs), is_never_cancelled=True)


def misses_inside_grace() -> History:
    mark = replace(run_of(RunKey(1, instant(0)), RunState.MISSED), created_at=instant(29))
    history = whole([], [mark], [Planned(1, (instant(0),), grace_us=30 * SECOND_US)])
    return replace(history, disturbed=[(instant(0), instant(40))])


def misses_for_no_reason() -> History:
    mark = run_of(RunKey(1, instant(0)), RunState.MISSED, count=3, until=instant(2))
    history = whole(
        [],
        [replace(mark, created_at=instant(42))],
        [Planned(1, (instant(0), instant(1), instant(2)), grace_us=30 * SECOND_US)],
    )
    return replace(history, disturbed=[(instant(0), instant(3)), (instant(5), instant(8))])


def delivers_late_for_no_reason() -> History:
    history = promises(history_of("dies_before_sending", "succeeds"), late_after_us=SECOND_US)
    return replace(history, disturbed=[(instant(0) - SECOND_US, instant(0) + SECOND_US // 2)])


def calls_the_url_of_another_job() -> History:
    lives = [Life(RunKey(job_id, instant(0))) for job_id in (1, 2)]
    for life in lives:
        life.live("succeeds")
    history = whole(lives, [], [Planned(job_id, (instant(0),), path=f"/{job_id}") for job_id in (1, 2)])
    return replace(history, deliveries=[replace(sent, path="/1") for sent in history.deliveries or ()])


def leases_beyond_the_limit() -> History:
    lives = [Life(RunKey(1, instant(0) + second * STEP_US)) for second in range(3)]
    for life in lives:
        life.now = instant(0) + 5 * STEP_US
        life.live("dies_before_sending")
        life.live("succeeds")
    return whole(lives, [], [Planned(1, tuple(life.key.scheduled_at for life in lives), limit=2)])


BROKEN: list[tuple[Rule, Callable[[], History]]] = [
    (Rule.LOST, loses_an_instant),
    (Rule.LOST, loses_an_instant_behind_a_range),
    (Rule.DOUBLE_RECORD, records_an_instant_twice),
    (Rule.DOUBLE_RECORD, records_an_instant_in_a_run_and_in_a_range),
    (Rule.DOUBLE_RECORD, records_a_run_by_hand_in_both_tables),
    (Rule.PHANTOM, records_what_nobody_planned),
    (Rule.PHANTOM, has_a_range_that_ends_where_nothing_is_planned),
    (Rule.STUCK, leaves_a_run_pending),
    (Rule.COUNTER_MISMATCH, miscounts_attempts),
    (Rule.COUNTER_MISMATCH, miscounts_a_range),
    (Rule.COUNTER_MISMATCH, miscounts_live_runs),
    (Rule.EARLY, delivers_early),
    (Rule.UNRECORDED_SEND, delivers_without_a_run),
    (Rule.UNRECORDED_SEND, delivers_an_attempt_that_the_run_does_not_know),
    (Rule.UNRECORDED_SEND, delivers_for_a_range),
    (Rule.UNEXPLAINED_DUPLICATE, delivers_an_attempt_twice),
    (Rule.UNEXPLAINED_DUPLICATE, delivers_again_after_a_success),
    (Rule.UNEXPLAINED_DUPLICATE, delivers_again_before_the_lease_is_lost),
    (Rule.FALSE_SUCCESS, succeeds_without_an_answer),
    (Rule.FALSE_SUCCESS, succeeds_without_a_delivery),
    (Rule.LEASE_OVERLAP, leases_what_is_held),
    (Rule.LEASE_OVERLAP, leases_what_a_heartbeat_holds),
    (Rule.LEASE_OVERLAP, grants_a_token_twice),
    (Rule.STALE_ACCEPT, accepts_the_finish_of_a_former_holder),
    (Rule.STALE_ACCEPT, accepts_the_heartbeat_of_a_former_holder),
    (Rule.STALE_ACCEPT, accepts_the_report_of_a_former_handler),
    (Rule.STALE_ACCEPT, accepts_a_finish_twice),
    (Rule.TERMINAL_CHANGED, leases_what_has_ended),
    (Rule.SENT_AGAIN, sends_again_what_is_sent_once),
    (Rule.FALSE_CANCEL, cancels_what_nobody_gave_up),
    (Rule.GAVE_UP_EARLY, gives_up_with_attempts_left),
    (Rule.UNJUSTIFIED_MISS, misses_inside_grace),
    (Rule.UNJUSTIFIED_MISS, misses_for_no_reason),
    (Rule.LATE, delivers_late_for_no_reason),
    (Rule.MISMATCH, calls_the_url_of_another_job),
    (Rule.LIMIT_BROKEN, leases_beyond_the_limit),
]


@pytest.mark.parametrize(("rule", "make"), BROKEN, ids=[make.__name__ for _, make in BROKEN])
def test_a_history_that_breaks_one_rule_is_caught_by_that_rule(rule: Rule, make: Callable[[], History]) -> None:
    verdict = judge(make())
    assert {violation.rule for violation in verdict.violations} == {rule}, verdict.explain()


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert {rule for rule, _ in BROKEN} | {Rule.VACUOUS} == set(Rule)


def test_a_run_by_hand_or_of_a_job_without_a_plan_is_no_phantom() -> None:
    by_hand = replace(run_of(RunKey(1, instant(5) + 1), RunState.CANCELLED), trigger=Trigger.MANUAL)
    other = run_of(RunKey(2, instant(5)), RunState.SKIPPED)
    history = history_of("succeeds")
    assert judge(replace(history, runs=[*history.runs, by_hand, other])).holds


def test_instants_that_may_be_planned_count_once_or_not_at_all() -> None:
    history = replace(history_of("succeeds", seconds=2), planned=[Planned(1, (instant(0),), (instant(1), instant(2)))])
    assert judge(history).holds
    mark = run_of(RunKey(1, instant(2)), RunState.SKIPPED)
    twice = replace(history, runs=[*history.runs, mark, mark])
    assert {violation.rule for violation in judge(twice).violations} == {Rule.DOUBLE_RECORD}


def test_instants_after_the_cut_off_are_not_missed_yet() -> None:
    history = history_of("succeeds")
    assert judge(replace(history, planned=[Planned(1, (instant(0), instant(1)))])).holds


def test_a_revived_run_may_be_leased_after_its_end() -> None:
    history = leases_what_has_ended()
    assert judge(with_calls(history, revived(history.runs[0].key, instant(8)))).holds


def test_a_finish_whose_answer_was_lost_accuses_nobody() -> None:
    life = Life(RunKey(1, instant(0)))
    life.live("fails")
    life.live("succeeds")
    history = whole([life], [], [Planned(1, (instant(0),))])
    first, _ = grants(history)
    # The server died after it had committed the finish: the question is on record, the answer is not.
    calls = [call for call in history.calls if not (isinstance(call, EndAnswered) and call.token == first.token)]
    assert judge(replace(history, calls=calls)).holds


def test_a_success_that_a_handler_reported_needs_no_answer() -> None:
    history = succeeds_without_an_answer()
    ((held,), (end,)) = grants(history), [call for call in history.calls if isinstance(call, EndAnswered)]
    accepted = replace(end, result=FinishResult.ACCEPTED)
    reported = replace(end, token=callback_token(held.token), by_handler=True, asked_at=end.answered_at)
    calls = [call for call in history.calls if call is not end]
    assert judge(replace(history, calls=[*calls, accepted, replace(reported, answered_at=instant(5))])).holds


def test_what_a_test_must_have_seen_and_did_not_is_a_violation() -> None:
    history = with_calls(history_of("freezes", "succeeds"), Conflicted(instant(1), 2))
    enough = Seen(reclaims=1, refused_finishes=1, insert_conflicts=2, duplicate_deliveries=1, fires=1)
    assert judge(history).seen == enough, judge(history).seen
    assert judge(history, required=enough).holds
    too_little = judge(history, required=replace(enough, reclaims=2, insert_conflicts=3))
    assert [violation.rule for violation in too_little.violations] == [Rule.VACUOUS, Rule.VACUOUS]
    assert "reclaims: 1 seen, at least 2 required" in too_little.explain()


def test_promises_that_are_kept_hold() -> None:
    history = promises(
        history_of("dies_after_sending", "fails", "succeeds", seconds=3),
        limit=1,
        is_never_cancelled=True,
        attempts=3,
        late_after_us=SECOND_US,
        grace_us=SECOND_US,
        path="/1",
    )
    deliveries = [replace(delivery, path="/1") for delivery in history.deliveries or ()]
    verdict = judge(replace(history, deliveries=deliveries))
    assert verdict.holds, verdict.explain()


def test_a_lease_that_ran_out_or_may_have_been_given_up_counts_to_no_limit() -> None:
    history = promises(leases_beyond_the_limit(), limit=2)
    first = grants(history)[0]
    asked = EndAsked(first.answered_at, first.key, first.token, False)
    assert judge(with_calls(history, asked)).holds


def test_what_waits_in_a_disturbance_is_not_late_and_may_be_missed() -> None:
    late, missed = delivers_late_for_no_reason(), misses_for_no_reason()
    assert judge(replace(late, disturbed=[(instant(0), instant(60))])).holds
    assert judge(replace(missed, disturbed=[(instant(0), instant(60))])).holds


def test_a_run_that_a_person_brought_back_is_sent_again() -> None:
    history = sends_again_what_is_sent_once()
    assert judge(with_calls(history, revived(history.runs[0].key, instant(1)))).holds
