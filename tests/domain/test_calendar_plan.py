"""Schedules behind calendars: removed, moved, counted and told alike."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.domain.calendar_oracle import planned

from onbeat.domain.calendar import Calendar, CalendarRules, Country, DateRange
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import format_instant, parse_instant
from onbeat.domain.kept_out import MOST_TOLD
from onbeat.domain.model import SECOND_US, AtSchedule, CalendarUse, CronSchedule, EverySchedule, Schedule
from onbeat.domain.preview import preview
from onbeat.domain.timetable import Timetable, check_schedules, compile_timetable

DAY_US = 86_400 * SECOND_US
Roll = Literal["skip", "next_business_day", "previous_business_day"]


def days(*texts: str, timezone: str | None = None) -> CalendarRules:
    ranges = []
    for text in texts:
        first, _, last = text.partition("..")
        ranges.append(DateRange(date.fromisoformat(first), date.fromisoformat(last or first)))
    return CalendarRules(timezone=timezone, dates=tuple(ranges))


CALENDARS = {
    name: Calendar(name, rules)
    for name, rules in {
        "weekend": CalendarRules(weekdays=(0, 6)),
        "weekdays": CalendarRules(weekdays=(1, 2, 3, 4, 5)),
        "berlin": CalendarRules(holidays=(Country("DE", "BE"),)),
        "shutdown": days("2026-12-24..2027-01-03"),
        "always": CalendarRules(weekdays=tuple(range(7))),
        "long": days("2026-06-01..2026-08-31"),
        "kiritimati": days("2026-10-25", "2026-03-29", timezone="Pacific/Kiritimati"),
        "clock changes": days("2026-10-24..2026-10-25", "2026-03-28..2026-03-29", "2011-12-29", "2011-12-31"),
    }.items()
}


def at(text: str) -> int:
    return parse_instant(text, field="at")


def cron(
    text: str,
    timezone: str = "UTC",
    *,
    exclude: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    roll: Roll = "skip",
) -> CronSchedule:
    return CronSchedule(text, timezone, calendars=CalendarUse(exclude, only, roll))


def timetable(*schedules: Schedule) -> Timetable:
    return compile_timetable(schedules, job_id=1, calendars=CALENDARS)


def instants(schedule: Schedule, after: str, count: int) -> list[str]:
    found: list[str] = []
    instant = timetable(schedule).next_after(at(after))
    while instant is not None and len(found) < count:
        found.append(format_instant(instant))
        instant = timetable(schedule).next_after(instant)
    return found


@pytest.mark.parametrize(
    ("schedule", "after", "fires"),
    [
        (
            cron("0 9 * * *", exclude=("weekend",)),
            "2026-01-01T12:00:00Z",
            ["2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"],
        ),
        (
            cron("0 9 * * *", only=("weekend",)),
            "2026-01-01T12:00:00Z",
            ["2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z"],
        ),
        # the 1st of a month: 1 August 2026 is a Saturday
        (
            cron("0 9 1 * *", exclude=("weekend",), roll="next_business_day"),
            "2026-07-15T00:00:00Z",
            ["2026-08-03T09:00:00Z", "2026-09-01T09:00:00Z"],
        ),
        (
            cron("0 9 1 * *", exclude=("weekend",), roll="previous_business_day"),
            "2026-07-15T00:00:00Z",
            ["2026-07-31T09:00:00Z", "2026-09-01T09:00:00Z"],
        ),
        (cron("0 9 1 * *", exclude=("weekend",)), "2026-07-15T00:00:00Z", ["2026-09-01T09:00:00Z"]),
        # Saturday's, Sunday's and Monday's instant are one
        (
            cron("0 9 * * *", exclude=("weekend",), roll="next_business_day"),
            "2026-01-02T12:00:00Z",
            ["2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"],
        ),
        # holidays on the schedule's wall clock: Women's Day is a holiday in Berlin only
        (
            cron("30 0 6-10 3 *", "Europe/Berlin", exclude=("berlin", "weekend")),
            "2027-03-05T12:00:00Z",
            ["2027-03-08T23:30:00Z", "2027-03-09T23:30:00Z"],
        ),
        # a calendar with a zone of its own: the 29th on Kiritimati (+14) begins at 10:00Z of the 28th
        (
            cron("0 */12 28-30 3 *", exclude=("kiritimati",)),
            "2026-03-27T23:59:00Z",
            ["2026-03-28T00:00:00Z", "2026-03-29T12:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        # the moved instant keeps its local time over the change of the clock, and falls after a gap
        (
            cron("30 2 28 3 *", "Europe/Berlin", exclude=("weekend",), roll="next_business_day"),
            "2026-03-01T00:00:00Z",
            ["2026-03-30T00:30:00Z"],
        ),
        # 31 days are the bound: 31 July would have to go to 1 September, 32 days on; 1 August goes there
        (
            cron("0 9 31 7 *", exclude=("long",), roll="next_business_day"),
            "2026-07-01T00:00:00Z",
            ["2027-07-31T09:00:00Z"],
        ),
        (
            cron("0 9 1 8 *", exclude=("long",), roll="next_business_day"),
            "2026-07-01T00:00:00Z",
            ["2026-09-01T09:00:00Z", "2027-08-01T09:00:00Z"],
        ),
        (
            cron("0 9 1 7 *", exclude=("long",), roll="previous_business_day"),
            "2026-05-01T00:00:00Z",
            ["2026-05-31T09:00:00Z"],
        ),
        (
            EverySchedule(DAY_US // SECOND_US, at("2026-12-22T10:00:00Z"), calendars=CalendarUse(("shutdown",))),
            "2026-12-22T12:00:00Z",
            ["2026-12-23T10:00:00Z", "2027-01-04T10:00:00Z"],
        ),
        (
            AtSchedule(at("2026-12-25T10:00:00Z"), calendars=CalendarUse(("shutdown",), (), "next_business_day")),
            "2026-12-01T00:00:00Z",
            ["2027-01-04T10:00:00Z"],
        ),
    ],
)
def test_calendars_remove_and_move_instants(schedule: Schedule, after: str, fires: list[str]) -> None:
    assert instants(schedule, after, len(fires)) == fires


@pytest.mark.parametrize("use", [CalendarUse(("gone",)), CalendarUse((), ("gone",)), CalendarUse(("weekend", "gone"))])
def test_unknown_calendar_is_refused_by_name(use: CalendarUse) -> None:
    schedules = (CronSchedule("0 9 * * *"), CronSchedule("0 9 * * *", calendars=use))
    with pytest.raises(DefinitionError, match="gone") as caught:
        check_schedules(schedules, job_id=1, now=0, calendars=CALENDARS)
    assert caught.value.reason_code == "calendar_unknown"
    assert caught.value.field in ("schedules[1].exclude", "schedules[1].only")


@pytest.mark.parametrize(
    "schedule",
    [
        cron("0 9 * * *", exclude=("always",)),
        cron("* * * * * *", exclude=("always",), roll="next_business_day"),
        cron("0 9 * * *", only=("weekend",), exclude=("weekend",), roll="previous_business_day"),
        cron("0 9 * * 1", exclude=("weekdays",)),
        EverySchedule(1, 0, calendars=CalendarUse(("always",))),
        AtSchedule(at("2026-12-25T10:00:00Z"), calendars=CalendarUse(("shutdown",))),
    ],
)
def test_schedule_that_calendars_leave_nothing_of_is_refused(schedule: Schedule) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_schedules((schedule,), job_id=1, now=at("2026-01-01T00:00:00Z"), calendars=CALENDARS)
    assert caught.value.reason_code == "never_fires"


def test_calendar_that_changes_makes_another_timetable() -> None:
    schedule = cron("0 9 * * *", exclude=("x",))
    first = {"x": Calendar("x", days("2026-01-02"))}
    other = {"x": Calendar("x", days("2026-01-03"))}
    after = at("2026-01-01T12:00:00Z")
    assert compile_timetable((schedule,), job_id=1, calendars=first) is compile_timetable(
        (schedule,), job_id=2, calendars={"x": Calendar("x", days("2026-01-02"))}
    )
    assert compile_timetable((schedule,), job_id=1, calendars=first).next_after(after) == at("2026-01-03T09:00:00Z")
    assert compile_timetable((schedule,), job_id=1, calendars=other).next_after(after) == at("2026-01-02T09:00:00Z")


def test_per_second_job_behind_calendars_is_counted_over_years_without_walking() -> None:
    found = timetable(cron("* * * * * *", "Europe/Berlin", exclude=("weekend", "berlin"), roll="next_business_day"))
    after, until = at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z")
    assert found.count(after, until) % 3_600 == 0
    # New Year begins in Berlin an hour before it does in UTC
    assert found.newest(1, after, until) == (at("2027-12-31T22:59:59Z"),)


# ---------------------------------------------------------------- against the oracle

NAMES = sorted(set(CALENDARS) - {"always"})
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "America/Santiago"]
EXPRESSIONS = [
    "0 9 * * *",
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * 5",
    "*/30 1-3 * * *",
    "0 */2 * * *",
    "15 1,2,3 * * 6,0",
    "0 0 1 * *",
    "0 12 L * *",
]
MOMENTS = [
    "2026-03-28T00:00:00Z",
    "2026-10-24T00:00:00Z",
    "2026-11-01T00:00:00Z",
    "2011-12-29T00:00:00Z",
    "2026-12-23T00:00:00Z",
    "2026-06-15T00:00:00Z",
    "2026-09-05T00:00:00Z",
]
USES = st.builds(
    CalendarUse,
    exclude=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    only=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
    roll=st.sampled_from(["skip", "next_business_day", "previous_business_day"]),
).filter(lambda use: bool(use.exclude or use.only))
A_THIRD = settings(max_examples=settings().max_examples // 3)
"""Most calendars here end, so that a look for what comes next goes on to the last year: half a second each."""
PLAIN = st.one_of(
    st.builds(CronSchedule, st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES)),
    st.builds(EverySchedule, st.sampled_from([7_200, 50_000, 86_400, 100_000]), st.just(at("2011-01-01T00:00:00Z"))),
)


@A_THIRD
@given(PLAIN, USES, st.sampled_from(MOMENTS), st.integers(-3 * 86_400, 3 * 86_400), st.integers(1, 5 * 86_400))
def test_every_question_is_answered_as_by_taking_up_each_instant(
    plain: Schedule, use: CalendarUse, moment: str, shift_s: int, length_s: int
) -> None:
    schedule = msgspec.structs.replace(plain, calendars=use)
    after = at(moment) + shift_s * SECOND_US
    until = after + length_s * SECOND_US
    right = planned(schedule, plain, CALENDARS, after=after, until=until)
    found = timetable(schedule)
    assert found.count(after, until) == len(right)
    assert list(found.newest(3, after, until)) == right[-3:]
    assert found.latest(after, until) == (right[-1] if right else None)
    walked, instant = [], found.next_after(after)
    while instant is not None and instant <= until:
        walked.append(instant)
        instant = found.next_after(instant)
    assert walked == right


@A_THIRD
@given(PLAIN, USES, st.sampled_from(MOMENTS), st.integers(1, 40))
def test_preview_tells_exactly_what_is_kept_out(plain: Schedule, use: CalendarUse, moment: str, count: int) -> None:
    schedule = msgspec.structs.replace(plain, calendars=use)
    shown = preview((schedule,), job_id=1, after=at(moment), count=count, calendars=CALENDARS)
    if len(shown.instants) < count or len(shown.kept_out) == MOST_TOLD:
        return
    last = shown.instants[-1].at
    untouched = compile_timetable((plain,), job_id=1)
    skipped = compile_timetable(
        (msgspec.structs.replace(schedule, calendars=msgspec.structs.replace(use, roll="skip")),),
        job_id=1,
        calendars=CALENDARS,
    )
    kept = untouched.count(at(moment), last) - skipped.count(at(moment), last)
    assert sum(told.count for told in shown.kept_out) == kept
    assert {told.calendar for told in shown.kept_out} <= {*use.exclude, *use.only}
    for told in shown.kept_out:
        assert (told.moved_to is None) == (use.roll == "skip") or told.moved_to is None
        if told.moved_to is not None and at(moment) < told.moved_to <= last:
            assert told.moved_to in {instant.at for instant in shown.instants}


def test_preview_names_the_calendar_and_the_place() -> None:
    schedule = cron("0 9 1 * *", exclude=("weekend",), roll="next_business_day")
    (told,) = preview((schedule,), job_id=1, after=at("2026-07-15T00:00:00Z"), count=1, calendars=CALENDARS).kept_out
    assert (told.at, told.count, told.calendar) == (at("2026-08-01T09:00:00Z"), 1, "weekend")
    assert told.moved_to == at("2026-08-03T09:00:00Z")


def test_preview_of_a_dense_schedule_tells_days_and_not_seconds() -> None:
    schedule = cron("* * * * * *", exclude=("weekend",))
    told = preview((schedule,), job_id=1, after=at("2026-01-02T23:59:57Z"), count=3, calendars=CALENDARS).kept_out
    assert [(found.count, found.until - found.at + SECOND_US) for found in told] == [(86_400, DAY_US)] * 2


def test_dates_are_days_of_the_right_zone() -> None:
    assert CALENDARS["shutdown"].contains((date(2026, 12, 24) - date(1970, 1, 1)) // timedelta(days=1))
