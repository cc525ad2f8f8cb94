"""The verdict on every kind of outcome."""

from __future__ import annotations

from typing import Any

import pytest

from onbeat.domain.model import SECOND_US, Definition, EverySchedule, RetryPolicy, WebhookTarget
from onbeat.domain.outcome import SENT_NOTHING, Outcome, OutcomeKind
from onbeat.domain.retry import MAX_FREE_ATTEMPTS, Accept, AttemptFacts, GiveUp, RetryAt, decide_retry
from onbeat.domain.retry_after import parse_retry_after
from onbeat.domain.states import RunState

NOW = 1_800_000_000 * SECOND_US
K = OutcomeKind


def definition(**changes: Any) -> Definition:
    return Definition(
        schedules=(EverySchedule(every_s=60, anchor_at=0),), target=WebhookTarget(url="https://example.com/"), **changes
    )


def verdict(outcome: Outcome, job: Definition | None = None, **facts: Any) -> RetryAt | GiveUp | Accept:
    given_facts: dict[str, Any] = {
        "attempt": 1,
        "free_attempts": 0,
        "since": NOW - SECOND_US,
        "deadline_at": NOW + 3_600 * SECOND_US,
        "cancel_requested": False,
        "next_fire_at": None,
    }
    return decide_retry(
        job or definition(), outcome, AttemptFacts(**(given_facts | facts)), now=NOW, draw_jitter=lambda: 1.0
    )


def outcome(kind: OutcomeKind, status: int | None = None, retry_after_s: float | None = None) -> Outcome:
    return Outcome(
        kind=kind, started_at=NOW - SECOND_US, duration_us=SECOND_US, status=status, retry_after_s=retry_after_s
    )


@pytest.mark.parametrize(
    "kind", [K.REFUSED, K.DNS, K.TLS, K.TIMEOUT_BEFORE_SEND, K.NO_ANSWER, K.BAD_RESPONSE, K.HANDLER]
)
def test_passing_faults_are_retried_after_backoff(kind: OutcomeKind) -> None:
    assert verdict(outcome(kind)) == RetryAt(NOW + SECOND_US)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_passing_statuses_are_retried(status: int) -> None:
    assert isinstance(verdict(outcome(K.HTTP_STATUS, status)), RetryAt)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 422, 451])
def test_other_statuses_fail_at_once(status: int) -> None:
    assert verdict(outcome(K.HTTP_STATUS, status)) == GiveUp(RunState.FAILED, None)


@pytest.mark.parametrize("kind", [K.BLOCKED, K.UNSENDABLE, K.REDIRECT])
def test_what_never_mends_itself_fails_at_once(kind: OutcomeKind) -> None:
    assert verdict(outcome(kind)) == GiveUp(RunState.FAILED, None)


def test_gone_pauses_the_job() -> None:
    answer = verdict(outcome(K.HTTP_STATUS, 410))
    assert isinstance(answer, GiveUp)
    assert answer.pauses_job is not None


def test_a_lost_lease_is_claimable_at_once_and_counts() -> None:
    assert verdict(outcome(K.LEASE_LOST)) == RetryAt(NOW, counts=True)
    assert isinstance(verdict(outcome(K.LEASE_LOST), attempt=5), GiveUp)


def test_a_lease_given_back_does_not_count_even_on_the_last_attempt() -> None:
    assert verdict(outcome(K.INTERRUPTED), attempt=5) == RetryAt(NOW, counts=False)


def test_a_success_stands_although_the_run_was_cancelled() -> None:
    assert verdict(outcome(K.SUCCEEDED, 200), cancel_requested=True) == GiveUp(RunState.SUCCEEDED, None)


def test_a_failure_of_a_cancelled_run_ends_it_as_cancelled() -> None:
    assert verdict(outcome(K.HTTP_STATUS, 503), cancel_requested=True) == GiveUp(RunState.CANCELLED, None)


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind not in (K.SUCCEEDED, K.CANCELLED)])
def test_past_its_wall_clock_a_run_is_timed_out(kind: OutcomeKind) -> None:
    answer = verdict(outcome(kind, 503), deadline_at=NOW)
    assert isinstance(answer, GiveUp)
    assert answer.state == RunState.TIMED_OUT


def test_attempts_and_age_run_out() -> None:
    assert isinstance(verdict(outcome(K.REFUSED), attempt=5), GiveUp)
    assert isinstance(verdict(outcome(K.REFUSED), attempt=4), RetryAt)
    young = definition(retry=RetryPolicy(max_age_s=2))
    assert verdict(outcome(K.REFUSED), young) == RetryAt(NOW + SECOND_US)
    assert isinstance(verdict(outcome(K.REFUSED), young, since=NOW - 2 * SECOND_US), GiveUp)


@pytest.mark.parametrize(
    "kind", [kind for kind in OutcomeKind if kind not in (K.SUCCEEDED, K.ACCEPTED, K.CANCELLED, K.TIMED_OUT)]
)
def test_at_most_once_is_never_sent_again_after_a_byte_was_written(kind: OutcomeKind) -> None:
    answer = verdict(outcome(kind, 503 if kind == K.HTTP_STATUS else None), definition(delivery="at_most_once"))
    if kind not in SENT_NOTHING:
        unanswered = kind in (K.NO_ANSWER, K.BAD_RESPONSE, K.LEASE_LOST)
        assert answer == GiveUp(RunState.UNKNOWN if unanswered else RunState.FAILED, None)
    elif kind not in (K.BLOCKED, K.UNSENDABLE):
        assert isinstance(answer, RetryAt)


@pytest.mark.parametrize(
    ("asked_s", "waits_s"), [(None, 10), (120.0, 120), (60.0, 60), (0.0, 10), (7200.0, 3600), (999_999_999.0, 3600)]
)
def test_retry_after_wins_over_a_shorter_backoff_and_is_capped(asked_s: float | None, waits_s: int) -> None:
    job = definition(retry=RetryPolicy(initial_s=10))
    assert verdict(outcome(K.HTTP_STATUS, 500, asked_s), job) == RetryAt(NOW + waits_s * SECOND_US)


IN_2015 = 1_445_412_420 * SECOND_US  # Wed, 21 Oct 2015 07:27:00 GMT


@pytest.mark.parametrize(
    ("asked", "waits_s"),
    [
        ("120", 120),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 60),
        ("Wed Oct 21 07:28:00 2015", 60),
        ("0", 10),
        ("Wed, 21 Oct 2015 06:27:00 GMT", 10),
        ("7200", 3600),
        ("soon", 10),
        ("-5", 10),
        ("1.5", 10),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_every_form_of_retry_after_is_waited_for_and_never_less_than_the_own_backoff(
    status: int, asked: str, waits_s: int
) -> None:
    job = definition(retry=RetryPolicy(backoff="fixed", initial_s=10))
    answer = outcome(K.HTTP_STATUS, status, parse_retry_after(asked, now=IN_2015))
    decided = verdict(answer, job)
    assert isinstance(decided, RetryAt)
    assert decided.ready_at == NOW + waits_s * SECOND_US


@pytest.mark.parametrize(
    ("status", "asked_s", "spends"),
    [
        (429, 60.0, False),
        (503, 60.0, False),
        (429, 0.0, False),
        (429, None, True),
        (503, None, True),
        (500, 60.0, True),
    ],
)
def test_a_receiver_that_names_a_time_spends_no_attempt(status: int, asked_s: float | None, spends: bool) -> None:
    decided = verdict(outcome(K.HTTP_STATUS, status, asked_s))
    assert isinstance(decided, RetryAt)
    assert decided.spends is spends


def test_named_times_are_obeyed_beyond_max_attempts_but_not_for_ever() -> None:
    asked = outcome(K.HTTP_STATUS, 429, 60.0)
    assert verdict(asked, attempt=5, free_attempts=0) == RetryAt(NOW + 256 * SECOND_US, spends=False)
    assert isinstance(verdict(asked, attempt=99 + 5, free_attempts=99), RetryAt)
    assert isinstance(verdict(asked, attempt=100 + 5, free_attempts=MAX_FREE_ATTEMPTS), GiveUp)
    assert isinstance(verdict(asked, attempt=100 + 4, free_attempts=MAX_FREE_ATTEMPTS), RetryAt)
    too_old = verdict(asked, since=NOW - 86_400 * SECOND_US)
    assert isinstance(too_old, GiveUp)
    assert "max_age" in str(too_old.error)


def test_free_attempts_neither_count_nor_lengthen_the_backoff() -> None:
    assert verdict(outcome(K.REFUSED), attempt=7, free_attempts=6) == RetryAt(NOW + SECOND_US)
    assert verdict(outcome(K.REFUSED), attempt=8, free_attempts=6) == RetryAt(NOW + 4 * SECOND_US)
    assert isinstance(verdict(outcome(K.REFUSED), attempt=11, free_attempts=6), GiveUp)


RULES = {"404": "retry", "409": "succeed", "5xx": "fail", "503": "retry", "3xx": "retry", "4xx": "fail"}


@pytest.mark.parametrize(
    ("kind", "status", "becomes"),
    [
        (K.HTTP_STATUS, 404, "retry"),
        (K.HTTP_STATUS, 409, RunState.SUCCEEDED),
        (K.HTTP_STATUS, 500, RunState.FAILED),
        (K.HTTP_STATUS, 503, "retry"),
        (K.HTTP_STATUS, 429, RunState.FAILED),
        (K.HTTP_STATUS, 400, RunState.FAILED),
        (K.REDIRECT, 302, "retry"),
        (K.REFUSED, None, "retry"),
        (K.TIMEOUT_BEFORE_SEND, None, "retry"),
    ],
)
def test_status_rules_go_before_the_default_and_exact_ones_before_classes(
    kind: OutcomeKind, status: int | None, becomes: str
) -> None:
    decided = verdict(outcome(kind, status), definition(retry=RetryPolicy(statuses=dict(RULES))))  # type: ignore[arg-type]
    assert ("retry" if isinstance(decided, RetryAt) else getattr(decided, "state", None)) == becomes


@pytest.mark.parametrize(
    ("rules", "becomes", "pauses"),
    [
        ({}, RunState.FAILED, True),
        ({"4xx": "retry"}, RunState.FAILED, True),
        ({"410": "fail"}, RunState.FAILED, False),
        ({"410": "succeed"}, RunState.SUCCEEDED, False),
        ({"410": "retry"}, "retry", False),
    ],
)
def test_only_a_rule_for_410_itself_keeps_it_from_pausing_the_job(rules: Any, becomes: str, pauses: bool) -> None:
    decided = verdict(outcome(K.HTTP_STATUS, 410), definition(retry=RetryPolicy(statuses=rules)))
    assert ("retry" if isinstance(decided, RetryAt) else getattr(decided, "state", None)) == becomes
    assert (isinstance(decided, GiveUp) and decided.pauses_job is not None) is pauses


def test_a_status_that_means_success_stands_although_the_run_was_cancelled() -> None:
    job = definition(retry=RetryPolicy(statuses={"409": "succeed"}), delivery="at_most_once")
    decided = verdict(outcome(K.HTTP_STATUS, 409), job, cancel_requested=True)
    assert decided == GiveUp(RunState.SUCCEEDED, None)


@pytest.mark.parametrize(
    ("next_fire_s", "retried"), [(None, True), (2, True), (1, False), (0.5, False), (0, False), (-5, False)]
)
def test_a_retry_gives_way_to_the_next_planned_instant_where_it_is_told_to(
    next_fire_s: float | None, retried: bool
) -> None:
    next_fire_at = None if next_fire_s is None else NOW + round(next_fire_s * SECOND_US)
    job = definition(retry=RetryPolicy(backoff="fixed", expires_before_next=True))
    decided = verdict(outcome(K.REFUSED), job, next_fire_at=next_fire_at)
    assert isinstance(decided, RetryAt) is retried
    if isinstance(decided, GiveUp):
        assert "next planned instant" in str(decided.error)
    assert isinstance(verdict(outcome(K.REFUSED), next_fire_at=next_fire_at), RetryAt)
    lost = verdict(outcome(K.LEASE_LOST), job, next_fire_at=next_fire_at)
    assert isinstance(lost, RetryAt) is (next_fire_s is None or next_fire_s > 0)


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize(("silence_s", "until"), [(None, None), (60, NOW + 60 * SECOND_US)])
def test_accepted_work_is_left_to_its_handler(delivery: str, silence_s: int | None, until: int | None) -> None:
    job = definition(completion="callback", callback_heartbeat_s=silence_s, delivery=delivery)
    assert verdict(outcome(K.ACCEPTED, 202), job) == Accept(until)


def test_what_was_cancelled_or_is_past_its_end_is_not_left_to_its_handler() -> None:
    job = definition(completion="callback")
    cancelled = verdict(outcome(K.ACCEPTED, 202), job, cancel_requested=True)
    assert isinstance(cancelled, GiveUp)
    assert cancelled.state == RunState.CANCELLED
    late = verdict(outcome(K.ACCEPTED, 202), job, deadline_at=NOW)
    assert isinstance(late, GiveUp)
    assert late.state == RunState.TIMED_OUT
