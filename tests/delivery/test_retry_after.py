"""Retry-After in seconds and in the three date forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.retry_after import parse_retry_after

NOW = 1_445_412_420_000_000  # Wed, 21 Oct 2015 07:27:00 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("0", 0),
        ("7200", 7_200),
        ("999999999", 999_999_999),
        ("9" * 5_000, 9_999_999_999),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 60),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", 60),
        ("Wed Oct 21 07:28:00 2015", 60),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 60),
        ("Wed, 21 Oct 2015 09:28:00 +0200", 60),
        ("Wed, 21 Oct 2015 06:27:00 GMT", 0),
    ],
)
def test_seconds_and_dates_are_resolved_against_now(value: str, seconds: float) -> None:
    assert parse_retry_after(value, now=NOW) == seconds


@pytest.mark.parametrize("value", ["-1", "soon", "", "1.5", "1e3", "٣", "0x10", "Wed, 99 Oct 2015 99:28:00 GMT"])
def test_what_means_nothing_is_ignored(value: str) -> None:
    assert parse_retry_after(value, now=NOW) is None


@given(st.text(max_size=70))
def test_any_text_is_seconds_or_nothing(value: str) -> None:
    seconds = parse_retry_after(value, now=NOW)
    assert seconds is None or seconds >= 0
