"""RFC 3339 text to µs UTC and back, and local one-shot times."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.errors import DefinitionError, RequestError
from onbeat.domain.instants import LAST_INSTANT, format_instant, parse_instant, resolve_local
from onbeat.domain.zones import all_zone_names, zone


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01t00:00:00z", "2026-01-01T00:00:00Z"),
        ("2026-01-01 00:00:00+00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00-00:00", "2026-01-01T00:00:00Z"),
        ("2025-03-09T00:00:00-05:00", "2025-03-09T05:00:00Z"),
        ("2026-01-01T05:45:00.5+05:45", "2026-01-01T00:00:00.500000Z"),
        ("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"),
        ("2016-12-31T18:59:60-05:00", "2017-01-01T00:00:00Z"),
    ],
)
def test_instant_is_read(text: str, written: str) -> None:
    assert format_instant(parse_instant(text, field="at")) == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-05-01T09:00:00", "no UTC offset"),
        ("2026-05-01T09:00:00.5", "no UTC offset"),
        ("2026-05-01", "not an RFC 3339"),
        ("2026-05-01T09:00Z", "not an RFC 3339"),
        ("2026-05-01T09:00:00 Z", "not an RFC 3339"),
        ("2026-05-01T09:00:00Z\n", "not an RFC 3339"),
        ("2026-05-01T09:00:00+0200", "not an RFC 3339"),
        ("2026-05-01T09:00:00[Europe/Berlin]", "not an RFC 3339"),
        ("٢٠٢٦-05-01T09:00:00Z", "not an RFC 3339"),
        ("10000-01-01T00:00:00Z", "not an RFC 3339"),
        ("", "not an RFC 3339"),
        ("x" * 10_000, "not an RFC 3339"),
        ("2026-02-30T09:00:00Z", "not a date and time"),
        ("2026-05-01T24:00:00Z", "not a date and time"),
        ("2026-05-01T09:00:61Z", "not a date and time"),
        ("2026-05-01T09:00:60Z", "leap second"),
        ("2026-05-01T09:00:00+24:00", "offset"),
        ("1969-12-31T23:59:59Z", "out of range"),
        ("1970-01-01T00:00:00+01:00", "out of range"),
        ("9999-12-31T23:59:59-01:00", "out of range"),
        ("9999-12-31T23:59:60Z", "out of range"),
        (1_767_225_600, "not an RFC 3339"),
        (None, "not an RFC 3339"),
    ],
)
def test_what_is_no_instant_is_refused_with_the_reason(text: object, reason: str) -> None:
    with pytest.raises(RequestError) as refusal:
        parse_instant(text, field="at")  # type: ignore[arg-type]
    assert reason in refusal.value.detail
    assert refusal.value.field == "at"
    assert refusal.value.remedy
    assert len(refusal.value.detail) < 200


def test_naive_time_is_refused_with_both_ways_out() -> None:
    with pytest.raises(RequestError) as refusal:
        parse_instant("2026-05-01T09:00:00", field="at")
    assert "2026-05-01T09:00:00Z" in (refusal.value.remedy or "")


@given(st.integers(0, LAST_INSTANT))
def test_written_instant_reads_back(instant: int) -> None:
    text = format_instant(instant)
    assert parse_instant(text, field="at") == instant
    assert text.endswith("Z")
    assert ("." in text) == bool(instant % 1_000_000)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(RequestError):  # and nothing else
        assert 0 <= parse_instant(text, field="at") <= LAST_INSTANT


@pytest.mark.parametrize(
    ("text", "timezone", "instant"),
    [
        ("2026-05-01T09:00:00", "America/New_York", "2026-05-01T13:00:00Z"),
        ("2026-05-01 09:00", "America/New_York", "2026-05-01T13:00:00Z"),
        ("2026-03-08T02:30", "America/New_York", "2026-03-08T07:00:00Z"),  # does not exist: the gap's end
        ("2026-03-08T02:00", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-03-08T03:00", "America/New_York", "2026-03-08T07:00:00Z"),
        ("2026-11-01T01:30", "America/New_York", "2026-11-01T05:30:00Z"),  # twice: the first pass
        ("2026-11-01T02:00", "America/New_York", "2026-11-01T07:00:00Z"),
        ("2025-09-07T00:00", "America/Santiago", "2025-09-07T04:00:00Z"),
        ("2025-10-05T02:15", "Australia/Lord_Howe", "2025-10-04T15:30:00Z"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),  # a day that never was
        ("2026-01-01T00:00", "UTC", "2026-01-01T00:00:00Z"),
    ],
)
def test_local_time_means_first_valid_instant(text: str, timezone: str, instant: str) -> None:
    assert format_instant(resolve_local(text, timezone=timezone, field="at")) == instant


@given(st.sampled_from(sorted(all_zone_names())), st.integers(10**8, 4 * 10**9))
def test_local_time_of_an_instant_means_it_or_its_first_pass(timezone: str, second: int) -> None:
    local = datetime.fromtimestamp(second, zone(timezone))
    text = local.replace(tzinfo=None).isoformat()
    assert resolve_local(text, timezone=timezone, field="at") == local.replace(fold=0).timestamp() * 1_000_000


@pytest.mark.parametrize(
    "text", ["2026-05-01T09:00:00Z", "2026-05-01", "2026-13-01T00:00", "", None, "1969-12-30T00:00"]
)
def test_what_is_no_local_time_is_refused(text: object) -> None:
    with pytest.raises(RequestError):
        resolve_local(text, timezone="UTC", field="at")  # type: ignore[arg-type]


def test_local_time_in_an_unknown_zone_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no time zone"):
        resolve_local("2026-05-01T09:00", timezone="Mars/Base", field="at")


def test_edges_of_time_do_not_overflow() -> None:
    assert resolve_local("9999-12-31T23:59:59", timezone="Pacific/Kiritimati", field="at") < LAST_INSTANT
    with pytest.raises(RequestError, match="out of range"):
        resolve_local("9999-12-31T23:59:59", timezone="Pacific/Pago_Pago", field="at")
    for text in ("0001-01-01T00:00", "1969-12-31T00:00"):
        with pytest.raises(RequestError, match="out of range"):
            resolve_local(text, timezone="Pacific/Kiritimati", field="at")
