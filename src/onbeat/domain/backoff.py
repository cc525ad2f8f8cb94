"""How long a failed attempt is waited for: the waits of a retry policy, what makes one acceptable, its whole ladder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, RetryPolicy

_STATUS_RULE = re.compile(r"[345](?:[0-9]{2}|xx)", re.ASCII)
LONGEST_TABLE: Final = 100


def wait_range_us(policy: RetryPolicy, *, attempt: int) -> tuple[int, int]:
    """The shortest and the longest wait after `attempt`, the first being 1.

    exponential: anything from 0 to the capped step ("full jitter"; AWS, "Exponential Backoff And Jitter", 2015);
    fixed: `initial_s`; table: the entry for the attempt, of a table that is too short the last.
    """
    if policy.backoff == "exponential":
        return 0, _exponential_step_us(policy, attempt=attempt)
    wait_s = policy.initial_s if policy.backoff == "fixed" else policy.table_s[min(attempt, len(policy.table_s)) - 1]
    wait_us = round(wait_s * SECOND_US)
    return wait_us, wait_us


def backoff_us(policy: RetryPolicy, *, attempt: int, jitter: float) -> int:
    """The wait after `attempt`; `jitter` (0..1) chooses between the shortest and the longest."""
    shortest, longest = wait_range_us(policy, attempt=attempt)
    return shortest + round((longest - shortest) * jitter)


def _exponential_step_us(policy: RetryPolicy, *, attempt: int) -> int:
    # The exponent is bounded before the power is taken: 4.0 ** 1000 overflows, and the cap is reached long before.
    step_s = policy.initial_s
    for _ in range(attempt - 1):
        step_s *= policy.factor
        if step_s >= policy.cap_s:
            break
    return round(min(step_s, float(policy.cap_s)) * SECOND_US)


def check_retry(policy: RetryPolicy) -> None:
    """Raises DefinitionError(`retry_invalid`) naming the field."""
    if policy.backoff == "table" and not policy.table_s:
        raise _invalid(
            "table_s", "a table of waits has at least one", remedy='give table_s, such as "table_s": [1, 30]'
        )
    if policy.backoff != "table" and policy.table_s:
        raise _invalid("table_s", f"backoff {policy.backoff} has no table", remedy='set "backoff": "table", or drop it')
    for status in policy.statuses:
        if not _STATUS_RULE.fullmatch(status):
            raise _invalid(
                f"statuses.{status[:20]}",
                "a rule is for a status from 300 to 599 or for one of 3xx, 4xx and 5xx; a 2xx is always a success",
                remedy='write it like "404" or "5xx"',
            )


def _invalid(field: str, detail: str, *, remedy: str) -> DefinitionError:
    return DefinitionError("retry_invalid", detail, field=f"retry.{field}", remedy=remedy)


@dataclass(frozen=True, slots=True)
class Rung:
    """When an attempt starts, counted from the start of the first: at the earliest, and at the latest."""

    attempt: int
    earliest_us: int
    latest_us: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """Every attempt of a run that never succeeds, and which limit ends it.

    `attempts_at_least`: so many there are even where every wait and every attempt is as long as it can be.
    """

    rungs: tuple[Rung, ...]
    attempts_at_least: int
    ends_with: Literal["max_attempts", "max_age"]


def preview_ladder(policy: RetryPolicy, *, timeout_s: float) -> Ladder:
    """The attempts of a run that starts as soon as it is recorded, and whose receiver names no time to wait.

    Earliest: every attempt fails at once and every draw of the jitter is the lowest. Latest: every attempt lasts for
    `timeout_s` and every draw is the highest, as far as `max_age_s` lets an attempt start at all.
    """
    oldest = policy.max_age_s * SECOND_US
    rungs = [Rung(1, 0, 0)]
    at_least = 1
    earliest = latest = 0
    for attempt in range(2, policy.max_attempts + 1):
        shortest, longest = wait_range_us(policy, attempt=attempt - 1)
        earliest += shortest
        latest += round(timeout_s * SECOND_US) + longest
        if earliest > oldest:
            return Ladder(tuple(rungs), at_least, "max_age")
        if latest <= oldest:
            at_least = attempt
        rungs.append(Rung(attempt, earliest, min(latest, oldest)))
    return Ladder(tuple(rungs), at_least, "max_attempts")
