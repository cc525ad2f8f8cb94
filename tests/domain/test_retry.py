"""The verdict on every kind of outcome."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.model import SECOND_US, Definition, EverySchedule, RetryPolicy, WebhookTarget
from onbeat.domain.outcome import SENT_NOTHING, Outcome, OutcomeKind
from onbeat.domain.retry import GiveUp, RetryAt, backoff_us, decide_retry
from onbeat.domain.states import RunState

NOW = 1_800_000_000 * SECOND_US
K = OutcomeKind


def definition(**changes: Any) -> Definition:
    return Definition(
        schedules=(EverySchedule(every_s=60, anchor_at=0),), target=WebhookTarget(url="https://example.com/"), **changes
    )


def verdict(outcome: Outcome, job: Definition | None = None, **facts: Any) -> RetryAt | GiveUp:
    given_facts: dict[str, Any] = {
        "attempt": 1,
        "created_at": NOW - SECOND_US,
        "deadline_at": NOW + 3_600 * SECOND_US,
        "cancel_requested": False,
        "now": NOW,
        "draw_jitter": lambda: 1.0,
    }
    return decide_retry(job or definition(), outcome, **(given_facts | facts))


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
    assert isinstance(verdict(outcome(K.REFUSED), young, created_at=NOW - 2 * SECOND_US), GiveUp)


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind not in (K.SUCCEEDED, K.CANCELLED, K.TIMED_OUT)])
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
    assert verdict(outcome(K.HTTP_STATUS, 429, asked_s), job) == RetryAt(NOW + waits_s * SECOND_US)


def test_backoff_grows_to_its_cap_and_never_overflows() -> None:
    policy = RetryPolicy(initial_s=1, factor=4, cap_s=3600, max_attempts=10_000)
    ladder = [backoff_us(policy, attempt=attempt, jitter=1.0) // SECOND_US for attempt in range(1, 9)]
    assert ladder == [1, 4, 16, 64, 256, 1024, 3600, 3600]
    assert backoff_us(policy, attempt=9_999, jitter=1.0) == 3600 * SECOND_US


@given(attempt=st.integers(1, 100), jitter=st.floats(0, 1), factor=st.floats(1, 100), initial=st.floats(0.01, 1e6))
def test_backoff_stays_between_zero_and_the_cap(attempt: int, jitter: float, factor: float, initial: float) -> None:
    policy = RetryPolicy(initial_s=initial, factor=factor)
    assert 0 <= backoff_us(policy, attempt=attempt, jitter=jitter) <= policy.cap_s * SECOND_US
