"""The waits of a retry policy, and its ladder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.backoff import backoff_us, check_retry, preview_ladder, wait_range_us
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, RetryPolicy


def longest_waits_s(policy: RetryPolicy, *, attempts: int) -> list[float]:
    return [wait_range_us(policy, attempt=attempt)[1] / SECOND_US for attempt in range(1, attempts + 1)]


@pytest.mark.parametrize(
    ("policy", "waits_s"),
    [
        (RetryPolicy(), [1, 4, 16, 64, 256, 1024, 3600, 3600]),
        (RetryPolicy(initial_s=2, factor=2, cap_s=10), [2, 4, 8, 10, 10]),
        (RetryPolicy(backoff="fixed", initial_s=7.5), [7.5, 7.5, 7.5]),
        (RetryPolicy(backoff="table", table_s=(1, 30, 7200)), [1, 30, 7200, 7200, 7200]),
        (RetryPolicy(backoff="table", table_s=(0,)), [0, 0]),
    ],
)
def test_the_longest_waits_of_each_kind(policy: RetryPolicy, waits_s: list[float]) -> None:
    assert longest_waits_s(policy, attempts=len(waits_s)) == waits_s


@pytest.mark.parametrize(
    "policy", [RetryPolicy(backoff="fixed", initial_s=3), RetryPolicy(backoff="table", table_s=(3, 4))]
)
def test_only_exponential_waits_are_drawn(policy: RetryPolicy) -> None:
    assert backoff_us(policy, attempt=1, jitter=0.0) == backoff_us(policy, attempt=1, jitter=1.0) == 3 * SECOND_US
    assert backoff_us(RetryPolicy(initial_s=8), attempt=1, jitter=0.25) == 2 * SECOND_US


def test_backoff_never_overflows() -> None:
    policy = RetryPolicy(initial_s=1, factor=4, cap_s=3600, max_attempts=10_000)
    assert backoff_us(policy, attempt=9_999, jitter=1.0) == 3600 * SECOND_US


@given(attempt=st.integers(1, 100), jitter=st.floats(0, 1), factor=st.floats(1, 100), initial=st.floats(0.01, 1e6))
def test_exponential_waits_stay_between_zero_and_the_cap(
    attempt: int, jitter: float, factor: float, initial: float
) -> None:
    policy = RetryPolicy(initial_s=initial, factor=factor)
    assert 0 <= backoff_us(policy, attempt=attempt, jitter=jitter) <= policy.cap_s * SECOND_US


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"backoff": "table"}, "retry.table_s"),
        ({"table_s": (1.0,)}, "retry.table_s"),
        ({"backoff": "fixed", "table_s": (1.0,)}, "retry.table_s"),
        ({"statuses": {"200": "fail"}}, "retry.statuses.200"),
        ({"statuses": {"2xx": "fail"}}, "retry.statuses.2xx"),
        ({"statuses": {"5XX": "fail"}}, "retry.statuses.5XX"),
        ({"statuses": {"٤٠٤": "fail"}}, "retry.statuses.٤٠٤"),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        check_retry(RetryPolicy(**changes))
    assert (refused.value.reason_code, refused.value.field) == ("retry_invalid", field)


@pytest.mark.parametrize(
    ("policy", "rungs_s", "at_least", "ends_with"),
    [
        (RetryPolicy(max_attempts=1), [(0, 0)], 1, "max_attempts"),
        (RetryPolicy(max_attempts=4), [(0, 0), (0, 11), (0, 25), (0, 51)], 4, "max_attempts"),
        (RetryPolicy(max_attempts=3, backoff="fixed", initial_s=5), [(0, 0), (5, 15), (10, 30)], 3, "max_attempts"),
        (RetryPolicy(backoff="table", table_s=(1, 60), max_age_s=100), [(0, 0), (1, 11), (61, 81)], 3, "max_age"),
        (RetryPolicy(max_attempts=3, backoff="fixed", initial_s=5, max_age_s=15), [(0, 0), (5, 15), (10, 15)], 2, None),
    ],
)
def test_the_ladder_tells_when_each_attempt_starts(
    policy: RetryPolicy, rungs_s: list[tuple[float, float]], at_least: int, ends_with: str | None
) -> None:
    ladder = preview_ladder(policy, timeout_s=10)
    assert [(rung.earliest_us / SECOND_US, rung.latest_us / SECOND_US) for rung in ladder.rungs] == rungs_s
    assert (ladder.attempts_at_least, ladder.ends_with) == (at_least, ends_with or "max_attempts")
