"""Whether a failed attempt is followed by another, and when. Design §3, "Attempts"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onbeat.domain.backoff import backoff_us
from onbeat.domain.model import SECOND_US, Definition, RetryPolicy, StatusRule
from onbeat.domain.outcome import SENT_NOTHING, Outcome, OutcomeKind
from onbeat.domain.states import RunState

RETRY_AFTER_CAP_S = 3_600
"""However long a receiver asks us to wait, an hour is the most. Source: reliability S15."""

RETRYABLE_STATUSES = frozenset({408, 425, 429})

GONE = 410
POSTPONING_STATUSES = frozenset({429, 503})
MAX_FREE_ATTEMPTS = 100
"""A receiver that says when to come back is obeyed without spending an attempt. So often at most, and inside max_age:
one that always says so would otherwise be asked for ever by a job with a max_age of weeks.
"""

_RETRYABLE_KINDS = frozenset(
    {
        OutcomeKind.REFUSED,
        OutcomeKind.DNS,
        OutcomeKind.TLS,
        OutcomeKind.PROXY,
        OutcomeKind.TIMEOUT_BEFORE_SEND,
        OutcomeKind.NO_ANSWER,
        OutcomeKind.BAD_RESPONSE,
        OutcomeKind.HANDLER,
        OutcomeKind.LEASE_LOST,
    }
)


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Another attempt, not before `ready_at`.

    `counts` False: the lease was given back before anything was sent, and its number is used again.
    `spends` False: the attempt happened and has its number, but takes nothing from `max_attempts`.
    """

    ready_at: int
    counts: bool = True
    spends: bool = True


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The run ends. `pauses_job` is the reason for pausing the whole job (410 Gone)."""

    state: RunState
    error: str | None
    pauses_job: str | None = None


@dataclass(frozen=True, slots=True)
class Accept:
    """The handler has the work and will report. It may be silent until `until`; None: as long as the run may last."""

    until: int | None


def is_retryable(outcome: Outcome, policy: RetryPolicy) -> bool:
    """Connection errors, timeouts, 408, 425, 429, 5xx, unless the job has a rule for the status. A blocked address or
    an invalid request never mends itself.
    """
    rule = status_rule(policy, outcome)
    if rule is not None:
        return rule == "retry"
    if outcome.kind == OutcomeKind.HTTP_STATUS:
        return outcome.status is not None and (outcome.status in RETRYABLE_STATUSES or outcome.status >= 500)
    return outcome.kind in _RETRYABLE_KINDS


def status_rule(policy: RetryPolicy, outcome: Outcome) -> StatusRule | None:
    """What the job says of the answer's status: the rule for exactly that one, else the one for its class.

    410 pauses the job, which is a rule for exactly that status: one for 4xx leaves it alone.
    """
    if outcome.status is None or outcome.kind not in (OutcomeKind.HTTP_STATUS, OutcomeKind.REDIRECT):
        return None
    exact = policy.statuses.get(str(outcome.status))
    if exact is not None or outcome.status == GONE:
        return exact
    return policy.statuses.get(f"{outcome.status // 100}xx")


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What a verdict depends on beside the definition and the outcome."""

    attempt: int
    free_attempts: int  # those that took nothing from max_attempts
    since: int  # max_age counts from here: when the run was recorded, or brought back by a person
    deadline_at: int | None
    cancel_requested: bool
    next_fire_at: int | None  # the job's next planned instant; None: it has no clock


def decide_retry(
    definition: Definition, outcome: Outcome, facts: AttemptFacts, *, now: int, draw_jitter: Callable[[], float]
) -> RetryAt | GiveUp | Accept:
    """The verdict on an attempt that did not succeed, or that succeeded after the run was cancelled.

    In this order: success stands; cancelled; wall clock; accepted; given back; gone; at_most_once; not retryable;
    attempts used up; too old; the next fire comes first; else backoff, where a Retry-After of the receiver wins over a
    shorter own one.
    """
    rule = status_rule(definition.retry, outcome)
    if outcome.kind == OutcomeKind.SUCCEEDED or rule == "succeed":
        return GiveUp(RunState.SUCCEEDED, None)
    if facts.cancel_requested or outcome.kind == OutcomeKind.CANCELLED:
        return GiveUp(RunState.CANCELLED, outcome.error)
    if outcome.kind == OutcomeKind.TIMED_OUT or (facts.deadline_at is not None and now >= facts.deadline_at):
        return GiveUp(RunState.TIMED_OUT, "max_run_time passed")
    if outcome.kind == OutcomeKind.ACCEPTED:
        return Accept(silent_until(definition, now=now))
    if outcome.kind == OutcomeKind.INTERRUPTED:
        return RetryAt(now + _asked_us(outcome), counts=False)
    if outcome.kind == OutcomeKind.HTTP_STATUS and outcome.status == GONE and rule is None:
        return GiveUp(RunState.FAILED, outcome.error, pauses_job="the receiver answered 410 Gone")
    if definition.delivery == "at_most_once" and outcome.kind not in SENT_NOTHING:
        answered = outcome.kind in (OutcomeKind.HTTP_STATUS, OutcomeKind.REDIRECT, OutcomeKind.HANDLER)
        return GiveUp(RunState.FAILED if answered else RunState.UNKNOWN, outcome.error)
    if not is_retryable(outcome, definition.retry):
        return GiveUp(RunState.FAILED, outcome.error)
    return _next_attempt(definition.retry, outcome, facts, now=now, draw_jitter=draw_jitter)


def silent_until(definition: Definition, *, now: int) -> int | None:
    """How long a handler that reported at `now` may be silent. None: as long as the run may last."""
    silence_s = definition.callback_heartbeat_s
    return None if silence_s is None else now + silence_s * SECOND_US


def _next_attempt(
    policy: RetryPolicy, outcome: Outcome, facts: AttemptFacts, *, now: int, draw_jitter: Callable[[], float]
) -> RetryAt | GiveUp:
    spent = max(facts.attempt - facts.free_attempts, 1)
    is_free = _names_a_time(outcome) and facts.free_attempts < MAX_FREE_ATTEMPTS
    if spent >= policy.max_attempts and not is_free:
        return GiveUp(RunState.FAILED, outcome.error)
    if outcome.kind == OutcomeKind.LEASE_LOST:
        ready_at = now  # the receiver did nothing wrong: at once claimable by another worker
    else:
        ready_at = now + max(backoff_us(policy, attempt=spent, jitter=draw_jitter()), _asked_us(outcome))
        if ready_at > facts.since + policy.max_age_s * SECOND_US:
            return _too_late(outcome, "max_age would pass before the next attempt")
    if policy.expires_before_next and facts.next_fire_at is not None and ready_at >= facts.next_fire_at:
        return _too_late(outcome, "the next planned instant comes before the next attempt")
    return RetryAt(ready_at, spends=not is_free)


def _too_late(outcome: Outcome, reason: str) -> GiveUp:
    return GiveUp(RunState.FAILED, f"{outcome.error or outcome.kind}; {reason}")


def _names_a_time(outcome: Outcome) -> bool:
    return (
        outcome.kind == OutcomeKind.HTTP_STATUS
        and outcome.status in POSTPONING_STATUSES
        and outcome.retry_after_s is not None
    )


def _asked_us(outcome: Outcome) -> int:
    """How long the receiver, or the worker that put the attempt off, asks us to wait."""
    return round(min(outcome.retry_after_s or 0.0, float(RETRY_AFTER_CAP_S)) * SECOND_US)
