"""Calendars as sets of days: rules, refusals, and what is read from iCalendar texts."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

import pytest
from dateutil import rrule as rrule_module
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st
from icalendar.timezone import tzp

from onbeat.domain.calendar import (
    MAX_RANGES,
    Calendar,
    CalendarRules,
    Country,
    DateRange,
    check_calendar,
    day_number,
    day_of,
    decode_rules,
    encode_rules,
    join_ranges,
)
from onbeat.domain.errors import DefinitionError
from onbeat.domain.ics import LONGEST_ICS, read_ics


def days(first: str, last: str | None = None) -> DateRange:
    return DateRange(date.fromisoformat(first), date.fromisoformat(last or first))


@pytest.mark.parametrize(
    ("rules", "inside", "outside"),
    [
        (CalendarRules(dates=(days("2026-12-25"),)), ["2026-12-25"], ["2026-12-24", "2026-12-26", "2027-12-25"]),
        (
            CalendarRules(dates=(days("2026-12-24", "2027-01-01"), days("2026-12-01"))),
            ["2026-12-24", "2026-12-31", "2027-01-01", "2026-12-01"],
            ["2026-12-23", "2027-01-02", "2026-12-02"],
        ),
        (CalendarRules(weekdays=(0, 6)), ["2026-11-28", "2026-11-29"], ["2026-11-27", "2026-11-30"]),
        (CalendarRules(cron=("* * 25 12 *",)), ["2026-12-25", "2099-12-25"], ["2026-12-24"]),
        (CalendarRules(cron=("* * L * *", "* * * * 5#2")), ["2026-02-28", "2026-11-13"], ["2026-11-06"]),
        (CalendarRules(holidays=(Country("DE", "BE"),)), ["2026-03-08", "2026-10-03"], ["2026-03-09"]),
        (CalendarRules(holidays=(Country("DE"),)), ["2026-10-03"], ["2026-03-08"]),
        (
            CalendarRules(weekdays=(1,), dates=(days("2026-11-25"),), holidays=(Country("US"),)),
            ["2026-11-23", "2026-11-25", "2026-11-26"],
            ["2026-11-24", "2026-11-27"],
        ),
    ],
)
def test_a_day_belongs_where_any_rule_says_so(rules: CalendarRules, inside: list[str], outside: list[str]) -> None:
    calendar = Calendar("x", rules)
    assert [text for text in inside if not calendar.contains(day_number(date.fromisoformat(text)))] == []
    assert [text for text in outside if calendar.contains(day_number(date.fromisoformat(text)))] == []


def test_days_at_the_ends_of_time_are_answered() -> None:
    calendar = Calendar("x", CalendarRules(holidays=(Country("DE"),), cron=("* * 31 12 *",)))
    assert calendar.contains(-1)  # 31 December 1969
    assert not calendar.contains(-2)
    assert calendar.contains(day_number(date(9999, 12, 31)))
    assert not calendar.contains(day_number(date(9999, 12, 31)) + 1)


@pytest.mark.parametrize(
    ("rules", "code", "field"),
    [
        (CalendarRules(), "calendar_invalid", None),
        (CalendarRules(timezone="Europe/Nowhere", weekdays=(1,)), "timezone_unknown", "timezone"),
        (CalendarRules(dates=(days("2026-01-01"), days("2026-01-02", "2026-01-01"))), "calendar_invalid", "dates[1]"),
        (
            CalendarRules(dates=tuple(DateRange(day_of(2 * n), day_of(2 * n)) for n in range(MAX_RANGES + 1))),
            "calendar_invalid",
            "dates",
        ),
        (CalendarRules(weekdays=(7,)), "calendar_invalid", "weekdays"),
        (CalendarRules(weekdays=(-1,)), "calendar_invalid", "weekdays"),
        (CalendarRules(cron=("0 0 25 12 *",)), "calendar_invalid", "cron[0]"),
        (CalendarRules(cron=("@daily",)), "calendar_invalid", "cron[0]"),
        (CalendarRules(cron=("* * * * * *",)), "calendar_invalid", "cron[0]"),
        (CalendarRules(cron=("* * 1 1 *", "* * H * *")), "calendar_invalid", "cron[1]"),
        (CalendarRules(cron=("* * 30 2 *",)), "never_fires", "cron[0]"),
        (CalendarRules(cron=("25 12",)), "cron_invalid", "cron[0]"),
        (CalendarRules(cron=("* * 1 1 *",) * 51), "calendar_invalid", "cron"),
        (CalendarRules(holidays=(Country("DE"), Country("XX"))), "country_unknown", "holidays[1].country"),
        (CalendarRules(holidays=(Country("de"),)), "country_unknown", "holidays[0].country"),
        (CalendarRules(holidays=(Country("__class__"),)), "country_unknown", "holidays[0].country"),
        (CalendarRules(holidays=(Country("NYSE"),)), "country_unknown", "holidays[0].country"),
        (CalendarRules(holidays=(Country(""),)), "country_unknown", "holidays[0].country"),
        (CalendarRules(holidays=(Country("D" * 10_000),)), "country_unknown", "holidays[0].country"),
        (CalendarRules(holidays=(Country("DE", "ZZ"),)), "country_unknown", "holidays[0].subdivision"),
    ],
)
def test_rules_that_cannot_be_honoured_are_refused(rules: CalendarRules, code: str, field: str | None) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_calendar(rules)
    assert (caught.value.reason_code, caught.value.field) == (code, field)
    assert caught.value.remedy
    assert len(caught.value.detail) < 500


def test_ranges_that_touch_or_overlap_are_joined() -> None:
    given = (days("2026-01-05"), days("2026-01-01", "2026-01-03"), days("2026-01-04"), days("2026-01-07"))
    assert join_ranges(given) == (days("2026-01-01", "2026-01-05"), days("2026-01-07"))


def test_rules_are_read_back_as_they_were_written() -> None:
    rules = CalendarRules("Europe/Berlin", (days("2026-01-01", "2026-01-03"),), (0,), ("* * 1 * *",), (Country("DE"),))
    assert decode_rules(encode_rules(rules)) == rules


@pytest.mark.parametrize("text", ["", "[]", "{", '{"dates": 5}', '{"days": []}', '{"dates": [["2026-02-30"]]}'])
def test_stored_text_that_is_no_calendar_is_told(text: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        decode_rules(text)
    assert caught.value.reason_code == "calendar_unreadable"


# ---------------------------------------------------------------- iCalendar


def ics(*events: str) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN"]
    for event in events:
        lines += ["BEGIN:VEVENT", *event.split("|"), "END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""])


def numbers(most: int) -> str:
    return ",".join(map(str, range(1, most + 1)))


XMAS = "UID:a|DTSTART;VALUE=DATE:20261225"


@pytest.mark.parametrize(
    ("text", "until", "ranges"),
    [
        (ics(XMAS), None, [days("2026-12-25")]),
        (ics(XMAS + "|DTEND;VALUE=DATE:20261226"), None, [days("2026-12-25")]),
        (ics(XMAS + "|DTEND;VALUE=DATE:20261225"), None, [days("2026-12-25")]),
        (ics(XMAS + "|DTEND;VALUE=DATE:20270101"), None, [days("2026-12-25", "2026-12-31")]),
        (ics(XMAS + "|DURATION:P3D"), None, [days("2026-12-25", "2026-12-27")]),
        (ics(XMAS, "UID:b|DTSTART;VALUE=DATE:20261226"), None, [days("2026-12-25", "2026-12-26")]),
        (ics(XMAS + "|RRULE:FREQ=YEARLY;COUNT=2"), None, [days("2026-12-25"), days("2027-12-25")]),
        (ics(XMAS + "|RRULE:FREQ=YEARLY;UNTIL=20271231"), None, [days("2026-12-25"), days("2027-12-25")]),
        (ics(XMAS + "|RRULE:FREQ=YEARLY;UNTIL=20271231T000000Z"), None, [days("2026-12-25"), days("2027-12-25")]),
        (ics(XMAS + "|RRULE:FREQ=YEARLY"), "2027-12-25", [days("2026-12-25"), days("2027-12-25")]),
        (ics(XMAS + "|RRULE:FREQ=YEARLY;UNTIL=19000101"), None, [days("2026-12-25")]),
        (
            ics("UID:z|DTSTART;VALUE=DATE:99981225|RRULE:FREQ=YEARLY;COUNT=9"),
            None,
            [days("9998-12-25"), days("9999-12-25")],
        ),
        (
            ics("UID:z|DTSTART;VALUE=DATE:00010101|RRULE:FREQ=YEARLY;COUNT=2"),
            None,
            [days("0001-01-01"), days("0002-01-01")],
        ),
        (ics(XMAS + "|RRULE:FREQ=YEARLY;COUNT=50"), "2026-12-31", [days("2026-12-25")]),
        (
            ics(XMAS + "|RRULE:FREQ=YEARLY;COUNT=2;BYHOUR=8,9;BYMINUTE=0,1;BYSECOND=0"),
            None,
            [days("2026-12-25"), days("2027-12-25")],
        ),
        (
            ics(XMAS + "|RRULE:FREQ=YEARLY;COUNT=2;BYMONTH=" + ",".join(["12"] * 200)),
            None,
            [days("2026-12-25"), days("2027-12-25")],
        ),
        (ics("UID:z|DTSTART;VALUE=DATE:99991230|DURATION:P9D"), None, [days("9999-12-30", "9999-12-31")]),
        (
            ics("UID:m|DTSTART;VALUE=DATE:20260101|RRULE:FREQ=MONTHLY;BYDAY=-1FR;COUNT=2"),
            None,
            [days("2026-01-01"), days("2026-01-30"), days("2026-02-27")],
        ),
        (
            ics(XMAS + "|RRULE:FREQ=DAILY;COUNT=4|EXDATE;VALUE=DATE:20261226,20261228"),
            None,
            [days("2026-12-25"), days("2026-12-27")],
        ),
        (ics(XMAS + "|RDATE;VALUE=DATE:20261230"), None, [days("2026-12-25"), days("2026-12-30")]),
        # one occurrence moved, one cancelled
        (
            ics(
                XMAS + "|RRULE:FREQ=YEARLY;COUNT=3",
                "UID:a|RECURRENCE-ID;VALUE=DATE:20271225|DTSTART;VALUE=DATE:20271227",
                "UID:a|RECURRENCE-ID;VALUE=DATE:20281225|DTSTART;VALUE=DATE:20281225|STATUS:CANCELLED",
            ),
            None,
            [days("2026-12-25"), days("2027-12-27")],
        ),
        (
            ics(XMAS, "UID:c|DTSTART:20260101T100000Z|DTEND:20260101T110000Z", XMAS + "|STATUS:CANCELLED"),
            None,
            [days("2026-12-25")],
        ),
    ],
)
def test_all_day_events_are_read(text: str, until: str | None, ranges: list[DateRange]) -> None:
    found = read_ics(text, until=None if until is None else date.fromisoformat(until))
    assert list(found.ranges) == ranges


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert read_ics("\ufeff" + ics(XMAS), until=None) == read_ics(ics(XMAS), until=None)


def test_zones_that_a_text_defines_are_not_kept() -> None:
    zone = [
        "BEGIN:VTIMEZONE", "TZID:Office",
        "BEGIN:STANDARD", "DTSTART:19700101T000000", "TZOFFSETFROM:+0100", "TZOFFSETTO:+0000", "END:STANDARD",
        "END:VTIMEZONE",
    ]  # fmt: skip
    events = ics(XMAS, "UID:c|DTSTART;TZID=Office:20260101T100000")
    text = events.replace("BEGIN:VEVENT", "\r\n".join([*zone, "BEGIN:VEVENT"]), 1)
    assert read_ics(text, until=None).ignored == 1
    assert tzp.timezone("Office") is None


def test_events_with_times_and_cancelled_ones_are_counted_and_left_out() -> None:
    found = read_ics(ics(XMAS, "UID:c|DTSTART:20260101T100000Z", "UID:d|STATUS:CANCELLED"), until=None)
    assert (found.events, found.ignored) == (1, 2)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("hello", "iCalendar"),
        ("\0", "iCalendar"),
        ("<html><body>Not found</body></html>", "iCalendar"),
        (ics(), "no all-day event"),
        ("BEGIN:VCALENDAR\r\nBEGIN:VTODO\r\nUID:x\r\nEND:VTODO\r\nEND:VCALENDAR\r\n", "no all-day event"),
        (ics("UID:c|DTSTART:20260101T100000Z"), "no all-day event"),
        (ics("UID:c"), "no all-day event"),
        (ics("UID:c|DTSTART;VALUE=DATE:20260230"), "DTSTART"),
        (ics(XMAS + "|DTSTART;VALUE=DATE:20261224"), "more than once"),
        (ics(XMAS + "|DTEND;VALUE=DATE:20261201"), "lasts"),
        (ics(XMAS + "|DTEND;VALUE=DATE:29261201"), "lasts"),
        (ics(XMAS + "|RRULE:FREQ=YEARLY"), "without an end"),
        (ics(XMAS + "|RRULE:FREQ=SECONDLY;COUNT=5"), "SECONDLY"),
        (ics(XMAS + "|RRULE:FREQ=DAILY;COUNT=10000000"), "more than"),
        (ics(XMAS + "|RRULE:COUNT=5"), "FREQ"),
        *(
            (ics(f"{XMAS}|RRULE:FREQ={rule};COUNT=5"), f"{part} has no meaning")
            for rule, part in [
                ("DAILY;INTERVAL=0", "INTERVAL=0"),  # which dateutil counts in for ever
                ("MONTHLY;INTERVAL=-1", "INTERVAL=-1"),
                ("YEARLY;BYMONTHDAY=0", "BYMONTHDAY=0"),  # which to dateutil is every day
                ("YEARLY;BYMONTHDAY=32", "BYMONTHDAY=32"),
                ("YEARLY;BYMONTH=13", "BYMONTH=13"),
                ("YEARLY;BYMONTH=5L", "BYMONTH=5L"),
                ("YEARLY;BYYEARDAY=-367", "BYYEARDAY=-367"),
                ("YEARLY;BYWEEKNO=54", "BYWEEKNO=54"),
                ("YEARLY;BYDAY=54MO", "BYDAY=54MO"),
                ("YEARLY;BYMONTH=12;BYDAY=MO,53TU", "BYDAY=53TU"),
                ("MONTHLY;BYDAY=-6MO", "BYDAY=-6MO"),
                ("WEEKLY;BYDAY=MO,TU;BYSETPOS=8", "BYSETPOS=8"),
                ("DAILY;BYEASTER=0;BYMONTH=12", "BYEASTER=0"),
            ]
        ),
        (ics(f"{XMAS}|RRULE:FREQ=YEARLY;COUNT=5;BYYEARDAY={numbers(199)}"), "names 199 days"),
        (ics(*(XMAS + "|RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1",) * 10), "too many years"),
        (
            ics(*(f"{XMAS}|RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30;BYSETPOS={numbers(129)};COUNT=1",) * 10),
            "too many years",
        ),
        (
            ics(
                *(XMAS + "|RRULE:FREQ=DAILY;UNTIL=19000101",) * 40,  # which was over before it began, and saves nothing
                *(XMAS + "|RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1",) * 10,
            ),
            "too many years",
        ),
        (ics(*(f"UID:{n}|DTSTART;VALUE=DATE:20260101" for n in range(5_001))), "more than 5000 events"),
        ("BEGIN:VCALENDAR\r\n" + "BEGIN:VEVENT\r\n" * 20_000 + "END:VEVENT\r\n" * 20_000 + "END:VCALENDAR\r\n", "deep"),
        ("X" * (LONGEST_ICS + 1), "characters"),
    ],
)
def test_texts_without_days_or_without_bounds_are_refused_with_a_reason(text: str, part: str) -> None:
    with pytest.raises(DefinitionError, match=part) as caught:
        read_ics(text, until=None)
    assert caught.value.reason_code == "ics_invalid"
    assert caught.value.remedy
    assert len(caught.value.detail) < 500


def optional(**parts: st.SearchStrategy[object]) -> st.SearchStrategy[list[str]]:
    """Some of these parts of a rule, as text."""
    drawn = st.fixed_dictionaries({}, optional=parts)
    return drawn.map(lambda found: [f"{name.upper()}={value}" for name, value in found.items()])


RULES = optional(
    interval=st.integers(1, 5),
    bymonth=st.integers(1, 12),
    bymonthday=st.integers(-28, 28).filter(bool),
    byday=st.sampled_from(["MO", "SA,SU", "FR"]),
    count=st.integers(1, 9),
)


@given(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]), RULES, st.dates(date(1900, 1, 1), date(2100, 1, 1)))
@settings(max_examples=60, deadline=None)
def test_rules_mean_what_they_mean_although_they_are_followed_in_other_years(
    frequency: str, parts: list[str], start: date
) -> None:
    rule = ";".join([f"FREQ={frequency}", *parts])
    until = start.replace(year=start.year + 12, day=1)
    begin, end = datetime.combine(start, time()), datetime.combine(until, time())
    expected = {moment.date() for moment in rrulestr(rule, dtstart=begin).between(begin, end, inc=True)} | {start}
    read = read_ics(ics(f"UID:x|DTSTART;VALUE=DATE:{start:%Y%m%d}|RRULE:{rule}"), until=until)
    found = {one.first + timedelta(days=n) for one in read.ranges for n in range((one.last - one.first).days + 1)}
    assert found == expected


def test_a_rule_that_matches_nothing_is_not_walked_to_the_end_of_time() -> None:
    seen: list[int] = []

    class Counting(rrule_module._iterinfo):
        def rebuild(self, year: int, month: int) -> None:
            seen.append(year)
            super().rebuild(year, month)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(rrule_module, "_iterinfo", Counting)
        read_ics(ics(XMAS + "|RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=1"), until=None)
    assert len(set(seen)) <= 400  # and not 8,000 years, in which it held the interpreter for seven seconds
