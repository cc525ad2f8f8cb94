"""Lengths of time as people write them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.duration import LONGEST_S, format_duration, parse_duration
from onbeat.domain.errors import RequestError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1, 1),
        (90, 90),
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        (" 5M ", 300),
        ("PT2H", 7200),
        ("pt2h", 7200),
        ("PT24H", 86_400),
        ("P1D", 86_400),
        ("P1DT30M", 88_200),
        ("P2W", 1_209_600),
        ("PT90S", 90),
    ],
)
def test_length_is_read_as_whole_seconds(value: int | str, seconds: int) -> None:
    assert parse_duration(value, field="every") == seconds


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "not more than zero"),
        (-5, "not more than zero"),
        ("0s", "not more than zero"),
        ("PT0S", "not more than zero"),
        ("-5m", "not more than zero"),
        ("-PT5M", "not more than zero"),
        (True, "not a length"),
        (1.5, "not a length"),
        (None, "not a length"),
        ("", "not a length"),
        ("P", "not a length"),
        ("PT", "not a length"),
        ("P1DT", "not a length"),
        ("5 minutes", "not a length"),
        ("m5", "not a length"),
        ("30m1h", "not a length"),
        ("٣s", "not a length"),
        ("1h\n", "not a length"),
        ("1.5h", "fraction"),
        ("PT0.5S", "fraction"),
        ("0,5h", "fraction"),
        ("P1M", "no fixed length"),
        ("P1Y", "no fixed length"),
        ("P1Y2M", "no fixed length"),
        ("1mo", "no fixed length"),
        ("1 year", "no fixed length"),
        ("9" * 30, "longer than 100 years"),
        ("9" * 1000, "too long"),
        (LONGEST_S + 1, "longer than 100 years"),
    ],
)
def test_what_is_no_length_is_refused_with_the_reason(value: object, reason: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_duration(value, field="every")  # type: ignore[arg-type]
    assert reason in refusal.value.detail
    assert refusal.value.field == "every"
    assert refusal.value.remedy


@given(st.integers(1, LONGEST_S))
def test_written_length_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds), field="every") == seconds


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(RequestError):  # and nothing else
        assert 0 < parse_duration(text, field="every") <= LONGEST_S
