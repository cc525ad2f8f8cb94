"""Recurrence rules: the examples of RFC 5545, changes of the clock, dateutil as the second opinion, bad input."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Final

import pytest
from dateutil.rrule import rrulestr
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import parse_local
from onbeat.domain.model import SECOND_US, RruleSchedule
from onbeat.domain.preview import preview
from onbeat.domain.recurrence import Recurrence
from onbeat.domain.rrule import parse_rrule
from onbeat.domain.timetable import check_schedules, compile_timetable

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  wall-clock time
RFC_START: Final = "1997-09-02T09:00:00"
NEW_YORK: Final = "America/New_York"
NOW: Final = 1_800_000_000 * SECOND_US


def rule(text: str, dtstart: str = RFC_START, timezone: str = "UTC", *, max_fires: int | None = None) -> RruleSchedule:
    return RruleSchedule(rule=text, dtstart=dtstart, timezone=timezone, max_fires=max_fires)


def marks(text: str, number: int, dtstart: str = RFC_START) -> list[str]:
    """The first local instants of a rule."""
    start = parse_local(dtstart, field="dtstart")
    recurrence = Recurrence(parse_rrule(text, dtstart=start), start=start, last=None)
    found: list[str] = []
    mark = recurrence.first_from(0)
    while mark is not None and len(found) < number:
        found.append((EPOCH + timedelta(seconds=mark)).isoformat()[:16].replace("T", " "))
        mark = recurrence.first_from(mark + 1)
    return found


def instants(schedule: RruleSchedule, number: int, *, after: str = "1970-01-01T00:00:00") -> list[str]:
    """The first instants after a moment, UTC."""
    timetable = compile_timetable((schedule,), job_id=None)
    found: list[str] = []
    instant = timetable.next_after(parse_local(after, field="after") * SECOND_US)
    while instant is not None and len(found) < number:
        found.append(datetime.fromtimestamp(instant // SECOND_US, UTC).isoformat()[:16])
        instant = timetable.next_after(instant)
    return found


@pytest.mark.parametrize(
    ("text", "dtstart", "days"),
    [
        ("FREQ=DAILY;INTERVAL=10;COUNT=5", RFC_START, "1997-09-02 1997-09-12 1997-09-22 1997-10-02 1997-10-12"),
        ("FREQ=YEARLY;COUNT=3;BYMONTH=1;BYDAY=SU", RFC_START, "1998-01-04 1998-01-11 1998-01-18"),
        ("FREQ=WEEKLY;INTERVAL=2;WKST=SU;COUNT=4", RFC_START, "1997-09-02 1997-09-16 1997-09-30 1997-10-14"),
        ("FREQ=WEEKLY;COUNT=4;WKST=SU;BYDAY=TU,TH", RFC_START, "1997-09-02 1997-09-04 1997-09-09 1997-09-11"),
        # The difference that WKST makes.
        (
            "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
            "1997-08-05T09:00",
            "1997-08-05 1997-08-10 1997-08-19 1997-08-24",
        ),
        (
            "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
            "1997-08-05T09:00",
            "1997-08-05 1997-08-17 1997-08-19 1997-08-31",
        ),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=1FR", RFC_START, "1997-09-05 1997-10-03 1997-11-07"),
        ("FREQ=MONTHLY;INTERVAL=2;COUNT=4;BYDAY=1SU,-1SU", RFC_START, "1997-09-07 1997-09-28 1997-11-02 1997-11-30"),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=-2MO", RFC_START, "1997-09-22 1997-10-20 1997-11-17"),
        ("FREQ=MONTHLY;BYMONTHDAY=-3", RFC_START, "1997-09-28 1997-10-29 1997-11-28"),
        ("FREQ=MONTHLY;COUNT=3;BYMONTHDAY=2,15", RFC_START, "1997-09-02 1997-09-15 1997-10-02"),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", RFC_START, "1998-02-13 1998-03-13 1998-11-13 1999-08-13 2000-10-13"),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", RFC_START, "1997-09-04 1997-10-07 1997-11-06"),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2", RFC_START, "1997-09-29 1997-10-30 1997-11-27 1997-12-30"),
        (
            "FREQ=YEARLY;INTERVAL=3;COUNT=4;BYYEARDAY=1,100,200",
            "1997-01-01T09:00",
            "1997-01-01 1997-04-10 1997-07-19 2000-01-01",
        ),
        ("FREQ=YEARLY;BYDAY=20MO", RFC_START, "1998-05-18 1999-05-17 2000-05-15"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", RFC_START, "1998-05-11 1999-05-17 2000-05-15"),
        (
            "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
            "1996-11-05T09:00",
            "1996-11-05 2000-11-07 2004-11-02",
        ),
        # Leap days, short months, a 400-year rest.
        ("FREQ=YEARLY", "2020-02-29T09:00", "2020-02-29 2024-02-29 2028-02-29"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", "2095-01-01T09:00", "2096-02-29 2104-02-29"),
        ("FREQ=YEARLY;INTERVAL=100;BYMONTH=2;BYMONTHDAY=29", "2000-01-01T09:00", "2000-02-29 2400-02-29"),
        ("FREQ=MONTHLY", "2026-01-31T09:00", "2026-01-31 2026-03-31 2026-05-31"),
        ("FREQ=YEARLY;BYYEARDAY=366", "2023-01-01T09:00", "2024-12-31 2028-12-31"),
        ("FREQ=YEARLY;BYWEEKNO=53;BYDAY=TH", "2019-01-01T09:00", "2020-12-31 2026-12-31"),
        # Plain and counted weekdays together are a union.
        ("FREQ=MONTHLY;BYDAY=MO,1TU;COUNT=3", "2026-06-01T09:00", "2026-06-01 2026-06-02 2026-06-08"),
        ("RRULE:freq=daily;count=2;", RFC_START, "1997-09-02 1997-09-03"),
    ],
)
def test_examples(text: str, dtstart: str, days: str) -> None:
    expected = [f"{day} 09:00" for day in days.split()]
    found = marks(text, len(expected) + 1, dtstart)
    assert found[: len(expected)] == expected
    assert len(found) == len(expected) or "COUNT" not in text


def test_times_of_day_come_from_the_rule_or_from_dtstart() -> None:
    text = "FREQ=DAILY;BYHOUR=9,10;BYMINUTE=0,30"
    assert marks(text, 3, "2026-05-01T09:30:00") == ["2026-05-01 09:30", "2026-05-01 10:00", "2026-05-01 10:30"]
    assert marks("FREQ=DAILY;BYHOUR=7", 1, "2026-05-01T09:30:00") == ["2026-05-02 07:30"]


def test_positions_pick_among_instants_and_not_among_days() -> None:
    text = "FREQ=DAILY;BYHOUR=8,12,18;BYSETPOS=1,-1"
    assert marks(text, 3, "2026-05-01T08:00:00") == ["2026-05-01 08:00", "2026-05-01 18:00", "2026-05-02 08:00"]


def test_first_week_counts_positions_from_its_beginning() -> None:
    # dtstart is a Wednesday: the first of its week is past.
    assert marks("FREQ=WEEKLY;BYDAY=MO,WE,FR;BYSETPOS=1", 1, "2026-05-06T09:00:00") == ["2026-05-11 09:00"]


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        (rule("FREQ=DAILY", "2025-03-08T02:30:00", NEW_YORK), "2025-03-08T12:00:00", "2025-03-09T07:00"),
        (rule("FREQ=DAILY", "2025-11-01T01:30:00", NEW_YORK), "2025-11-01T12:00:00", "2025-11-02T05:30"),
        (rule("FREQ=DAILY", "2025-11-01T01:30:00", NEW_YORK), "2025-11-02T06:10:00", "2025-11-03T06:30"),
        (rule("FREQ=WEEKLY", "2025-08-31T00:00:00", "America/Santiago"), "2025-09-06T12:00:00", "2025-09-07T04:00"),
        (rule("FREQ=DAILY", "2011-12-01T09:00:00", "Pacific/Apia"), "2011-12-30T00:00:00", "2011-12-30T10:00"),
        (
            rule("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9", "2026-01-01T00:00:00", "Europe/Kyiv"),
            "2026-03-01T00:00:00",
            "2026-03-27T07:00",
        ),
    ],
)
def test_changes_of_the_clock_do_what_they_do_to_times_of_day_of_cron(
    schedule: RruleSchedule, after: str, expected: str
) -> None:
    assert instants(schedule, 1, after=after) == [expected]


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20251102T013000", "2025-11-02T05:30"),
        ("20251102T012959", "2025-11-01T05:30"),
        ("20251102T053000Z", "2025-11-02T05:30"),
        ("20251102T052959Z", "2025-11-01T05:30"),
        ("20251102T061000Z", "2025-11-02T05:30"),  # in the second pass, before its half past one
        ("20251103T062959Z", "2025-11-02T05:30"),
    ],
)
def test_until_is_inclusive_in_local_time_and_in_utc(until: str, last: str) -> None:
    schedule = rule(f"FREQ=DAILY;UNTIL={until}", "2025-10-30T01:30:00", NEW_YORK)
    assert instants(schedule, 100)[-1] == last


def test_until_inside_a_gap_leaves_out_what_comes_after_it() -> None:
    schedule = rule("FREQ=DAILY;UNTIL=20250309T065959Z", "2025-03-08T02:30:00", NEW_YORK)
    assert instants(schedule, 9) == ["2025-03-08T07:30"]
    schedule = rule("FREQ=DAILY;UNTIL=20250309T070000Z", "2025-03-08T02:30:00", NEW_YORK)
    assert instants(schedule, 9) == ["2025-03-08T07:30", "2025-03-09T07:00"]


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "FREQ=MONTHLY"),
        ("BYDAY=MO", "FREQ"),
        ("FREQ=HOURLY", "every"),
        ("FREQ=MINUTELY;INTERVAL=5", "cron"),
        ("FREQ=SOMETIMES", "YEARLY"),
        ("FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6;BYMINUTE=0,15,30,45", "every"),
        ("FREQ=DAILY;INTERVAL=0", "another"),
        ("FREQ=DAILY;INTERVAL=36501", "another"),
        ("FREQ=DAILY;COUNT=10001", "another"),
        ("FREQ=DAILY;COUNT=\u0663", "another"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20300101T000000Z", "one of them"),
        ("FREQ=DAILY;UNTIL=20300101", "UNTIL=20300101T235959"),
        ("FREQ=DAILY;UNTIL=20300231T000000", "exist"),
        ("FREQ=DAILY;UNTIL=soon", "UNTIL=2026"),
        ("FREQ=YEARLY;COUNT=102", "UNTIL"),
        ("FREQ=DAILY;EXDATE=20260101T090000", "calendar"),
        ("RRULE:FREQ=DAILY\nEXDATE:20260101T090000", "exclude"),
        ("RRULE:FREQ=DAILY\nEXRULE:FREQ=WEEKLY", "exclude"),
        ("RRULE:FREQ=DAILY\nRDATE:20260101T090000", "at"),
        ("RRULE:FREQ=DAILY\nRRULE:FREQ=WEEKLY", "one schedule for each"),
        ("DTSTART;TZID=Europe/Kyiv:20260101T090000\nRRULE:FREQ=DAILY", "dtstart"),
        ("FREQ=DAILY; BYHOUR=9", "alone"),
        ("FREQ=DAILY;BYEASTER=1", "parts"),
        ("FREQ=DAILY;FREQ=WEEKLY", "list"),
        ("FREQ=DAILY;BYHOUR=24", "range"),
        ("FREQ=DAILY;BYSECOND=60", "range"),
        ("FREQ=DAILY;BYMONTHDAY=0", "range"),
        ("FREQ=DAILY;BYMONTHDAY=-32", "range"),
        ("FREQ=DAILY;BYHOUR=", "parts"),
        ("FREQ=DAILY;BYHOUR=9,", "range"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "YEARLY or MONTHLY"),
        ("FREQ=MONTHLY;BYYEARDAY=1", "YEARLY"),
        ("FREQ=MONTHLY;BYWEEKNO=1;BYDAY=MO", "YEARLY"),
        ("FREQ=YEARLY;BYWEEKNO=1", "BYDAY=MO"),
        ("FREQ=YEARLY;BYWEEKNO=-52;BYDAY=MO", "front"),
        ("FREQ=YEARLY;BYWEEKNO=1;BYDAY=1MO", "BYDAY=MO"),
        ("FREQ=WEEKLY;BYDAY=1MO", "BYDAY=MO"),
        ("FREQ=MONTHLY;BYDAY=0MO", "-1FR"),
        ("FREQ=MONTHLY;BYDAY=XX", "-1FR"),
        ("FREQ=DAILY;WKST=XX", "MO"),
        ("FREQ=DAILY;BYSETPOS=1", "leave it out"),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=8", "range"),  # a week has seven days
    ],
)
def test_bad_rule_is_refused_with_a_remedy(text: str, remedy: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        compile_timetable((rule(text),), job_id=None)
    assert (refusal.value.reason_code, refusal.value.field) == ("rrule_invalid", "schedules[0].rrule")
    assert remedy in (refusal.value.remedy or "")


@pytest.mark.parametrize("dtstart", ["", "2026-02-30T09:00:00", "2026-01-01T09:00:00Z", "1969-12-31T23:59:59"])
def test_bad_dtstart_is_refused(dtstart: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        compile_timetable((rule("FREQ=DAILY", dtstart),), job_id=None)
    assert (refusal.value.reason_code, refusal.value.field) == ("schedule_invalid", "schedules[0].dtstart")


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MONTHLY;BYDAY=6MO",
        "FREQ=DAILY;INTERVAL=7;BYDAY=MO",  # dtstart is a Tuesday
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",  # dtstart is in September
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30,31;BYHOUR=0,1,2,3,4,5,6,7;BYMINUTE=0,20,40",
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=MO,TU,WE,TH,FR,SA;BYSETPOS=31",
        "FREQ=DAILY;UNTIL=20200101T000000",
        "FREQ=DAILY;UNTIL=00010101T000000Z",
        "FREQ=DAILY;COUNT=5",
    ],
)
def test_rule_that_never_fires_is_refused_and_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(DefinitionError) as refusal:
        check_schedules((rule(text),), job_id=None, now=NOW)
    assert refusal.value.reason_code == "never_fires"
    assert time.process_time() - began < 1  # some ms; a search without a bound takes minutes


_DAYS = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])


def _listed(values: st.SearchStrategy[str] | st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return st.lists(values.map(str), min_size=1, max_size=4, unique=True).map(",".join)


@st.composite
def rules(draw: st.DrawFn, *, last_week: int = 53) -> str:
    """Rules that dateutil reads as the RFC does, where BYWEEKNO is at most 51: it counts 53 weeks in years that have 52
    and begin in the middle of one, and so passes over the first days of the next year.
    """
    frequency = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY"]))
    by_week = frequency == "YEARLY" and draw(st.booleans())
    nth = st.builds(lambda n, day: f"{n}{day}", st.integers(-5, 5).filter(bool), _DAYS)
    parts = {"INTERVAL": st.integers(1, 5).map(str), "WKST": _DAYS, "BYMONTH": _listed(st.integers(1, 12))}
    parts |= {"BYHOUR": _listed(st.integers(0, 23)), "BYMINUTE": _listed(st.integers(0, 59))}
    if frequency != "WEEKLY":
        parts["BYMONTHDAY"] = _listed(st.integers(-31, 31).filter(bool))
    if by_week:
        parts["BYWEEKNO"] = _listed(st.integers(-51, last_week).filter(bool))
    elif frequency == "YEARLY":
        parts["BYYEARDAY"] = _listed(st.integers(-366, 366).filter(bool))
    chosen = {
        name: draw(values) for name, values in parts.items() if draw(st.integers(0, 2)) == 0 or name == "BYWEEKNO"
    }
    if by_week or draw(st.booleans()):
        counts = frequency in ("YEARLY", "MONTHLY") and not by_week and draw(st.booleans())
        chosen["BYDAY"] = draw(_listed(nth if counts else _DAYS))
    if frequency != "WEEKLY" and any(name.startswith("BY") for name in chosen) and draw(st.integers(0, 3)) == 0:
        chosen["BYSETPOS"] = draw(
            _listed(st.integers(-6, 6).filter(bool) if frequency != "DAILY" else st.sampled_from([-1, 1]))
        )
    return ";".join([f"FREQ={frequency}", *(f"{name}={value}" for name, value in chosen.items())])


_ZONES = st.sampled_from([NEW_YORK, "UTC", "Asia/Gaza", "Australia/Lord_Howe"])
_STARTS = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda at: at.replace(microsecond=0))  # noqa: DTZ001


@given(text=rules(last_week=51), start=_STARTS)
def test_dateutil_walked_from_dtstart_gives_the_same(text: str, start: datetime) -> None:
    first = round((start - EPOCH).total_seconds())
    recurrence = Recurrence(parse_rrule(text, dtstart=first), start=first, last=None)
    assume(recurrence.first_from(0) is not None)  # dateutil takes minutes to find that out
    until = start + timedelta(days=5 * 366)
    last = round((until - EPOCH).total_seconds())
    expected = [at for at in islice(rrulestr(text, dtstart=start), 100) if at <= until]
    found: list[datetime] = []
    mark = recurrence.first_from(0)
    while mark is not None and mark <= last and len(found) < 100:
        found.append(EPOCH + timedelta(seconds=mark))
        mark = recurrence.first_from(mark + 1)
    assert found == expected


@given(
    week=st.integers(-51, 53).filter(bool), wkst=st.integers(0, 6), day=st.integers(0, 6), year=st.integers(1990, 2060)
)
@example(week=52, wkst=3, day=1, year=2001)  # the 52nd week of 2001 reaches into 2002
@example(week=52, wkst=0, day=5, year=2010)  # as in ISO 8601
def test_a_week_is_of_the_year_in_which_it_has_four_days(week: int, wkst: int, day: int, year: int) -> None:
    names = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
    start = datetime(year, 1, 1)  # noqa: DTZ001
    first = round((start - EPOCH).total_seconds())
    text = f"FREQ=YEARLY;WKST={names[wkst]};BYWEEKNO={week};BYDAY={names[day]}"
    recurrence = Recurrence(parse_rrule(text, dtstart=first), start=first, last=None)
    expected = []
    for number in range(5 * 365):
        at = start + timedelta(days=number)
        fourth = at + timedelta(days=3 - (at.weekday() - wkst) % 7)  # of its week
        place = fourth.timetuple().tm_yday
        last = (datetime(fourth.year, 12, 31) - fourth).days  # noqa: DTZ001
        if at.weekday() == day and week in ((place - 1) // 7 + 1, -(last // 7) - 1):
            expected.append(at)
    found: list[datetime] = []
    mark = recurrence.first_from(0)
    while mark is not None and mark < first + 5 * 365 * 86_400:
        found.append(EPOCH + timedelta(seconds=mark))
        mark = recurrence.first_from(mark + 1)
    assert found == expected


@given(
    text=rules(), start=_STARTS, days=st.integers(0, 4_000), timezone=st.sampled_from([NEW_YORK, "UTC", "Asia/Gaza"])
)
def test_answers_do_not_depend_on_where_the_question_starts(
    text: str, start: datetime, days: int, timezone: str
) -> None:
    timetable = compile_timetable((rule(text, start.isoformat(), timezone),), job_id=None)
    begin = round((start - EPOCH).total_seconds()) * SECOND_US
    after, until = begin + days * 86_400 * SECOND_US, begin + (days + 500) * 86_400 * SECOND_US
    walked: list[int] = []
    instant = timetable.next_after(after)
    while instant is not None and instant <= until:
        walked.append(instant)
        instant = timetable.next_after(instant)
    # A space makes it another schedule, whose timetable remembers nothing.
    again = compile_timetable((rule(text + " ", start.isoformat(), timezone),), job_id=None)
    assert again.count(after, until) == len(walked)
    assert again.newest(5, after, until) == tuple(walked[-5:])
    for before, instant in pairwise(walked[:20]):
        assert again.next_after(before) == again.next_after(instant - 1) == instant


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("FREQ=DAILY", 10_957),
        (
            "FREQ=DAILY;BYHOUR=" + ",".join(map(str, range(24))),
            10_957 * 24 - 9 + 3 - 30,
        ),  # from 9 to 2 o'clock; in spring two marks are one instant
        ("FREQ=WEEKLY;BYDAY=SU;BYHOUR=3;BYMINUTE=30", 1_565),
        ("FREQ=MONTHLY;BYDAY=-1FR", 360),
    ],
)
def test_thirty_years_are_counted_soon_and_exactly(text: str, counted: int) -> None:
    timetable = compile_timetable((rule(text, "1997-01-01T09:00:00", "Europe/Kyiv"),), job_id=None)
    first = parse_local("1997-01-01T00:00:00", field="after") * SECOND_US
    last = parse_local("2027-01-01T00:00:00", field="until") * SECOND_US
    began = time.process_time()
    assert timetable.count(first, last) == counted
    assert time.process_time() - began < 1  # some ms


def test_a_rule_within_bounds_is_counted_within_them() -> None:
    whole = rule("FREQ=DAILY", "2024-01-01T09:00:00", NEW_YORK)
    first, last = (parse_local(f"2024-0{month}-01T09:00:00", field="at") * SECOND_US for month in (3, 5))
    bounded = replace(whole, start_at=first, end_at=last)
    timetable = compile_timetable((bounded,), job_id=None)
    assert timetable.count(-1, last + 86_400 * SECOND_US) == 61
    assert timetable.count(last, last + 86_400 * SECOND_US) == 0


@pytest.mark.parametrize(("year", "within"), [(2024, "within 100 years of dtstart"), (9950, "by the end of year 9999")])
def test_a_count_that_is_not_reached_says_by_when(year: int, within: str) -> None:
    with pytest.raises(DefinitionError, match=f"COUNT is not reached {within}"):
        compile_timetable((rule("FREQ=YEARLY;COUNT=500", f"{year}-01-01T09:00:00", NEW_YORK),), job_id=None)


def test_preview_tells_the_rule_its_zone_and_what_the_clock_does_to_it() -> None:
    shown = preview(
        (rule("FREQ=DAILY", "2025-03-08T02:30:00", NEW_YORK),),
        job_id=None,
        after=parse_local("2025-03-09T00:00:00", field="after") * SECOND_US,
        count=2,
    )
    assert shown.timezones == (NEW_YORK,)
    assert shown.schedules[0].text == "By the rule FREQ=DAILY, from 2025-03-08 02:30:00 local time on"
    assert "does not exist" in shown.instants[0].notes[0]
    assert [removed.local for removed in shown.removed] == ["Sun 2025-03-09 02:30"]
