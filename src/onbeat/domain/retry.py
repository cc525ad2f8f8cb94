"""Whether a failed attempt is followed by another, and when. Design §3, "Attempts"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onbeat.domain.model import SECOND_US, Definition, RetryPolicy
from onbeat.domain.outcome import SENT_NOTHING, Outcome, OutcomeKind
from onbeat.domain.states import RunState

RETRY_AFTER_CAP_S = 3_600
"""However long a receiver asks us to wait, an hour is the most. Source: reliability S15."""

RETRYABLE_STATUSES = frozenset({408, 425, 429})

_RETRYABLE_KINDS = frozenset(
    {
        OutcomeKind.REFUSED,
        OutcomeKind.DNS,
        OutcomeKind.TLS,
        OutcomeKind.TIMEOUT_BEFORE_SEND,
        OutcomeKind.NO_ANSWER,
        OutcomeKind.BAD_RESPONSE,
        OutcomeKind.HANDLER,
        OutcomeKind.LEASE_LOST,
    }
)


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Another attempt, not before `ready_at`. A lease given back does not count as an attempt."""

    ready_at: int
    counts: bool = True


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run ends. `pauses_job` is the reason for pausing the whole job (410 Gone)."""

    state: RunState
    error: str | None
    pauses_job: str | None = None


def is_retryable(outcome: Outcome) -> bool:
    """Connection errors, timeouts, 408, 425, 429, 5xx. A blocked address or an invalid request never mends itself."""
    if outcome.kind == OutcomeKind.HTTP_STATUS:
        return outcome.status is not None and (outcome.status in RETRYABLE_STATUSES or outcome.status >= 500)
    return outcome.kind in _RETRYABLE_KINDS


def backoff_us(policy: RetryPolicy, *, attempt: int, jitter: float) -> int:
    """Full jitter: `jitter` (0..1) times the exponential step after `attempt`, capped. Source: AWS, "Exponential
    Backoff And Jitter", 2015."""
    # The exponent is bounded before the power is taken: 4.0 ** 1000 overflows, and the cap is reached long before.
    step_s = policy.initial_s
    for _ in range(attempt - 1):
        step_s *= policy.factor
        if step_s >= policy.cap_s:
            break
    return round(min(step_s, float(policy.cap_s)) * jitter * SECOND_US)


def decide_retry(
    definition: Definition,
    outcome: Outcome,
    *,
    attempt: int,
    created_at: int,
    deadline_at: int | None,
    cancel_requested: bool,
    now: int,
    draw_jitter: Callable[[], float],
) -> RetryAt | GiveUp:
    """The verdict on an attempt that did not succeed, or that succeeded after the run was cancelled.

    In this order: success stands; cancelled; given back; wall clock; at_most_once; not retryable; attempts used up;
    too old; else backoff, where a Retry-After of the receiver wins over a shorter own one.
    """
    if outcome.kind == OutcomeKind.SUCCEEDED:
        return GiveUp(RunState.SUCCEEDED, None)
    if cancel_requested or outcome.kind == OutcomeKind.CANCELLED:
        return GiveUp(RunState.CANCELLED, outcome.error)
    if outcome.kind == OutcomeKind.TIMED_OUT or (deadline_at is not None and now >= deadline_at):
        return GiveUp(RunState.TIMED_OUT, "max_run_time passed")
    if outcome.kind == OutcomeKind.INTERRUPTED:
        return RetryAt(now + _asked_us(outcome), counts=False)
    if outcome.kind == OutcomeKind.HTTP_STATUS and outcome.status == 410:
        return GiveUp(RunState.FAILED, outcome.error, pauses_job="the receiver answered 410 Gone")
    if definition.delivery == "at_most_once" and outcome.kind not in SENT_NOTHING:
        answered = outcome.kind in (OutcomeKind.HTTP_STATUS, OutcomeKind.REDIRECT, OutcomeKind.HANDLER)
        return GiveUp(RunState.FAILED if answered else RunState.UNKNOWN, outcome.error)
    if not is_retryable(outcome):
        return GiveUp(RunState.FAILED, outcome.error)
    policy = definition.retry
    if attempt >= policy.max_attempts:
        return GiveUp(RunState.FAILED, outcome.error)
    if outcome.kind == OutcomeKind.LEASE_LOST:
        return RetryAt(now)  # the receiver did nothing wrong: at once claimable by another worker
    delay_us = max(backoff_us(policy, attempt=attempt, jitter=draw_jitter()), _asked_us(outcome))
    if now + delay_us > created_at + policy.max_age_s * SECOND_US:
        return GiveUp(RunState.FAILED, f"{outcome.error or outcome.kind}; max_age would pass before the next attempt")
    return RetryAt(now + delay_us)


def _asked_us(outcome: Outcome) -> int:
    """How long the receiver, or the worker that put the attempt off, asks us to wait."""
    return round(min(outcome.retry_after_s or 0.0, float(RETRY_AFTER_CAP_S)) * SECOND_US)
