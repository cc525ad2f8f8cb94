"""Which instants schedules mean: the rules for changes of the clock, against a slow walk written apart from ours."""

from __future__ import annotations

import os
import subprocess
import sys
from bisect import bisect_right
from contextlib import suppress
from datetime import datetime
from itertools import pairwise

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.domain.cron_oracle import ANY_DAY, EXPRESSIONS, ZONES, near_changes, slow_instants

from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import LAST_INSTANT, format_instant, parse_instant
from onbeat.domain.model import SECOND_US, AtSchedule, CronSchedule, EverySchedule, Schedule
from onbeat.domain.offsets import stretch_at
from onbeat.domain.timetable import Timetable, check_schedules, compile_timetable
from onbeat.domain.zones import all_zone_names, zone

DAY_S = 86_400
DAY_US = DAY_S * SECOND_US


def timetable(*schedules: Schedule, job_id: int = 1) -> Timetable:
    return compile_timetable(schedules, job_id=job_id)


def cron(expression: str, timezone: str = "UTC") -> Timetable:
    return timetable(CronSchedule(expression, timezone))


def at(text: str) -> int:
    return parse_instant(text, field="after")


def walk(table: Timetable, after: int, until: int) -> list[int]:
    found: list[int] = []
    instant = table.next_after(after)
    while instant is not None and instant <= until:
        found.append(instant)
        instant = table.next_after(instant)
    return found


def next_texts(expression: str, timezone: str, after: str, count: int) -> list[str]:
    found: list[str] = []
    instant: int | None = at(after)
    table = cron(expression, timezone)
    for _ in range(count):
        assert instant is not None
        instant = table.next_after(instant)
        assert instant is not None
        found.append(format_instant(instant))
    return found


# ---------------------------------------------------------------- the rule, on every zone


@given(near_changes(), ANY_DAY, st.integers(0, SECOND_US - 1))
@example(("America/New_York", 1_741_500_000), "30 2 * * *", 0)
@example(("America/New_York", 1_762_063_200), "30 1 * * *", 0)
@example(("America/Santiago", 1_757_217_600), "0 0 * * 0", 0)
@example(("America/St_Johns", 1_268_537_460), "0,1,30 0 * * *", 0)  # changed at 00:01
@example(("Australia/Lord_Howe", 1_570_291_200), "*/10 3 * * *", 0)
@example(("Africa/Cairo", 1_745_532_000), "0 */2 * * 5", 0)
@example(("Antarctica/Troll", 1_774_746_000), "*/30 1-3 * * *", 0)  # by two hours
@example(("Africa/Casablanca", 1_771_120_800), "15 2 * * *", 0)
@example(("Pacific/Apia", 1_325_239_200), "0 9 * * *", 0)  # a whole day
@example(("Pacific/Kwajalein", 745_934_400), "0 9 * * *", 0)
@example(("Antarctica/Vostok", 760_035_600), "30 * * * *", 0)  # back by seven hours
@example(("Antarctica/Vostok", 760_035_600), "30 20-23 * * *", 0)
def test_instants_are_those_of_the_slow_walk(moment: tuple[str, int], expression: str, micros: int) -> None:
    timezone, second = moment
    after = second * SECOND_US + micros
    until = after + 2 * DAY_US
    table = cron(expression, timezone)
    expected = [instant * SECOND_US for instant in slow_instants(expression, timezone, second + 1, until // SECOND_US)]
    assert walk(table, after, until) == expected
    assert table.count(after, until) == len(expected)
    assert list(table.newest(5, after, until)) == expected[-5:]


@given(near_changes(), EXPRESSIONS)
def test_next_is_later_real_and_the_same_from_everywhere_before_it(moment: tuple[str, int], expression: str) -> None:
    timezone, second = moment
    with suppress(DefinitionError):  # some can never fire
        table = cron(expression, timezone)
        after = second * SECOND_US
        found = table.next_after(after)
        assert found is not None
        assert found > after
        assert found % SECOND_US == 0
        for part in (1, 2, 3, 5, 8):
            # A table of its own, which remembers nothing.
            between = after + (found - after) * part // 9
            assert Timetable(table.plans).next_after(between) == found
        assert Timetable(table.plans).next_after(found - 1) == found
        assert table.next_after(found) != found


@given(ZONES, EXPRESSIONS, st.integers(100_000_000, 4_200_000_000))
def test_cronsim_agrees_where_no_change_of_the_clock_is_near(timezone: str, expression: str, second: int) -> None:
    stretch = stretch_at(timezone, second)
    with suppress(DefinitionError):
        found = cron(expression, timezone).next_after(second * SECOND_US)
        assert found is not None
        assume(stretch.start + 2 * DAY_S < second and found // SECOND_US + DAY_S < stretch.end)
        other = next(CronSim(expression, datetime.fromtimestamp(second, zone(timezone))))
        assert found == other.timestamp() * SECOND_US


@given(
    st.lists(
        st.builds(CronSchedule, ANY_DAY, ZONES)
        | st.builds(EverySchedule, st.integers(300, 100_000), st.integers(0, 2 * 10**15))
        | st.builds(EverySchedule, st.sampled_from([600, 3600, 86_400]), st.integers(0, 2 * 10**15))
        | st.builds(AtSchedule, st.integers(17 * 10**14, 17 * 10**14 + 9 * DAY_US)),
        min_size=1,
        max_size=5,
    ),
    st.integers(17 * 10**14, 17 * 10**14 + 4 * DAY_US),
    st.integers(0, 5 * DAY_US),
    st.integers(0, 2000),
)
def test_counting_and_cutting_equal_walking(schedules: list[Schedule], after: int, length: int, number: int) -> None:
    table = timetable(*schedules)
    until = after + length
    walked = walk(table, after, until)
    assert all(earlier < later for earlier, later in pairwise(walked))
    singles = {instant for schedule in schedules for instant in walk(timetable(schedule), after, until)}
    assert walked == sorted(singles)
    assert table.count(after, until) == len(walked)
    assert list(table.newest(number, after, until)) == (walked[-number:] if number else [])
    assert table.latest(after, until) == (walked[-1] if walked else None)


@given(st.lists(st.integers(10**15, 10**15 + 10**11), min_size=1, max_size=30))
def test_memory_of_the_last_answer_never_changes_an_answer(moments: list[int]) -> None:
    remembering = cron("*/7 3-22/2 * * *", "Africa/Casablanca")
    for moment in moments:
        fresh = Timetable(remembering.plans)
        assert remembering.next_after(moment) == fresh.next_after(moment)


def test_answer_about_the_first_instant_of_all_is_right() -> None:
    assert timetable(EverySchedule(60, 0)).next_after(-1) == 0
    assert cron("30 0 * * *").next_after(-1) == 1800 * SECOND_US
    assert cron("30 0 * * *").next_after(-(10**18)) == 1800 * SECOND_US


# ---------------------------------------------------------------- single changes, by hand


def test_fixed_time_in_gap_fires_once_right_after_it() -> None:
    assert next_texts("30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", 2) == [
        "2027-03-14T07:00:00Z",
        "2027-03-15T06:30:00Z",
    ]


def test_all_marks_of_a_gap_and_the_one_after_it_fire_once_together() -> None:
    assert next_texts("0,15,30 2-3 * * *", "America/New_York", "2027-03-14T06:59:59Z", 3) == [
        "2027-03-14T07:00:00Z",
        "2027-03-14T07:15:00Z",
        "2027-03-14T07:30:00Z",
    ]


def test_mark_in_a_midnight_gap_belongs_to_the_new_day() -> None:
    assert next_texts("0 0 * * 0", "America/Santiago", "2025-09-06T12:00:00Z", 1) == ["2025-09-07T04:00:00Z"]
    assert next_texts("0 0 * * 6", "America/Santiago", "2025-09-06T12:00:00Z", 1) == ["2025-09-13T03:00:00Z"]


def test_second_pass_of_an_overlap_is_over_for_a_fixed_time() -> None:
    """Asked from inside the second pass, the first one is past: next is tomorrow."""
    assert next_texts("30 1 * * *", "America/New_York", "2025-11-02T06:10:00Z", 1) == ["2025-11-03T06:30:00Z"]


def test_wildcard_follows_elapsed_time_through_both_changes() -> None:
    for after in ("2025-03-08T00:00:00Z", "2025-11-01T00:00:00Z"):
        instants = walk(cron("* * * * *", "America/New_York"), at(after), at(after) + 3 * DAY_US)
        assert {later - earlier for earlier, later in pairwise(instants)} == {60 * SECOND_US}


def test_half_hour_gap_keeps_what_comes_after_it() -> None:
    assert next_texts("*/10 3 * * *", "Australia/Lord_Howe", "2019-10-05T12:00:00Z", 3) == [
        "2019-10-05T16:00:00Z",
        "2019-10-05T16:10:00Z",
        "2019-10-05T16:20:00Z",
    ]


def test_imaginary_midnight_never_fires() -> None:
    assert next_texts("0 */2 * * 5", "Africa/Cairo", "2025-04-20T19:10:20Z", 1) == ["2025-04-24T23:00:00Z"]


def test_day_that_never_was_fires_once_for_a_daily_job() -> None:
    assert next_texts("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", 3) == [
        "2011-12-29T19:00:00Z",
        "2011-12-30T10:00:00Z",
        "2011-12-30T19:00:00Z",
    ]


def test_offset_with_seconds_is_walked_to_the_second() -> None:
    assert next_texts("0 12 * * *", "Africa/Monrovia", "1971-06-01T00:00:00Z", 1) == ["1971-06-01T12:44:30Z"]


def test_seconds_field_fires_within_minutes_and_through_an_overlap() -> None:
    assert next_texts("*/20 30 1 * * *", "America/New_York", "2025-11-02T05:30:30Z", 3) == [
        "2025-11-02T05:30:40Z",
        "2025-11-02T06:30:00Z",
        "2025-11-02T06:30:20Z",
    ]


def test_leap_day_is_found_over_the_longest_gaps() -> None:
    assert next_texts("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 1) == ["2028-02-29T00:00:00Z"]
    assert next_texts("0 0 29 2 *", "UTC", "2096-02-29T00:00:00Z", 1) == ["2104-02-29T00:00:00Z"]
    # Sunday the 29th of February: every 28 years, but 40 around a century that is no leap year.
    sundays = walk(cron("0 0 29 2 */7"), at("2060-01-01T00:00:00Z"), at("2130-01-01T00:00:00Z"))
    assert [format_instant(instant)[:4] for instant in sundays] == ["2060", "2088", "2128"]


@pytest.mark.parametrize("expression", ["0 0 * 2 MON#5", "0 0 29 2 */7", "0 0 31 4 MON", "0 0 L * FRI#5", "0 0 LW 2 *"])
def test_rare_days_are_found(expression: str) -> None:
    assert cron(expression, "America/New_York").next_after(at("2026-01-01T00:00:00Z")) is not None


def test_every_zone_has_exactly_one_daily_fire_per_local_day() -> None:
    """Nine in the morning is in no gap but that of a whole day, where the day's fire comes at its end."""
    first, last = at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z")
    for name in all_zone_names():
        instants = walk(cron("0 9 * * *", name), first, last)
        assert len(instants) in (729, 730), name
        assert {datetime.fromtimestamp(instant // SECOND_US, zone(name)).hour for instant in instants} == {9}


# ---------------------------------------------------------------- intervals and one shots


@given(st.integers(1, 10**7), st.integers(0, 2 * 10**9), st.integers(0, 3 * 10**15))
def test_interval_is_elapsed_time_from_its_anchor(every: int, anchor: int, after: int) -> None:
    found = timetable(EverySchedule(every, anchor * SECOND_US)).next_after(after)
    assert found is not None
    assert found > after
    assert (found // SECOND_US - anchor) % every == 0
    assert found - after <= every * SECOND_US or found == anchor * SECOND_US


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(0, 10**15), st.integers(0, 10**11), st.integers(0, 50))
def test_lone_interval_is_counted_by_arithmetic_like_any_other(
    every: int, anchor: int, after: int, length: int, number: int
) -> None:
    alone = timetable(EverySchedule(every, anchor * SECOND_US))
    twice = Timetable((*alone.plans, *alone.plans))
    until = after + length
    assert alone.count(after, until) == twice.count(after, until)
    assert alone.newest(number, after, until) == twice.newest(number, after, until)


def test_interval_does_not_fire_before_its_anchor() -> None:
    table = timetable(EverySchedule(60, at("2030-01-01T00:00:00Z")))
    assert table.next_after(0) == at("2030-01-01T00:00:00Z")
    assert table.count(0, at("2030-01-01T00:00:59Z")) == 1


def test_one_shot_fires_once_and_nothing_is_left_after_it() -> None:
    table = timetable(AtSchedule(at("2030-01-01T00:00:00Z")))
    assert table.next_after(at("2029-12-31T23:59:59.999999Z")) == at("2030-01-01T00:00:00Z")
    assert table.next_after(at("2030-01-01T00:00:00Z")) is None


def test_moment_within_a_second_plans_the_next_whole_one() -> None:
    assert timetable(AtSchedule(at("2030-01-01T00:00:00.000001Z"))).next_after(0) == at("2030-01-01T00:00:01Z")
    assert timetable(EverySchedule(60, at("2030-01-01T00:00:00.5Z"))).next_after(0) == at("2030-01-01T00:00:01Z")


def test_instant_that_several_schedules_share_fires_once() -> None:
    table = timetable(CronSchedule("0 * * * *"), CronSchedule("0 9 * * *", "America/New_York"), EverySchedule(3600, 0))
    assert table.count(0, 10 * DAY_US) == 240


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize(
    "schedule",
    [
        *(CronSchedule("59 23 * * *", name) for name in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago")),
        CronSchedule("* * * * * *", "America/New_York"),
        CronSchedule("0 0 29 2 *"),
        EverySchedule(86_399, 0),
        AtSchedule(at("9999-12-31T23:59:59Z")),
    ],
)
def test_time_ends_with_year_9999_and_nothing_overflows(schedule: Schedule) -> None:
    table = timetable(schedule)
    for before_end in (0, 1, 43_200, DAY_S, 2 * DAY_S, 40 * DAY_S):
        after = LAST_INSTANT - before_end * SECOND_US
        instants = walk(table, max(after, LAST_INSTANT - DAY_US // 24), LAST_INSTANT)
        assert all(instant <= LAST_INSTANT for instant in instants)
        found = table.next_after(after)
        assert found is None or after < found <= LAST_INSTANT
    assert table.next_after(LAST_INSTANT) is None
    assert table.next_after(10**20) is None
    assert table.count(LAST_INSTANT - DAY_US, 10**20) == table.count(LAST_INSTANT - DAY_US, LAST_INSTANT)


def test_empty_and_backward_ranges_hold_nothing() -> None:
    for table in (cron("* * * * * *"), timetable(EverySchedule(1, 0)), timetable(AtSchedule(5 * SECOND_US))):
        assert table.count(5 * SECOND_US, 5 * SECOND_US) == 0
        assert table.count(5 * SECOND_US, 0) == 0
        assert table.newest(3, 5 * SECOND_US, 4 * SECOND_US) == ()
        assert table.newest(0, 0, 9 * SECOND_US) == ()
        assert table.latest(5 * SECOND_US, 0) is None


def test_years_of_sleep_are_counted_without_a_walk() -> None:
    """1.5 million instants; the walk would take seconds and their list 12 MB, the count touches 1,096 days."""
    after = at("2023-05-01T00:00:00.5Z")
    until = at("2026-05-01T00:00:00Z")
    table = cron("* * * * *", "America/New_York")
    assert table.count(after, until) == 1096 * 1440
    assert table.latest(after, until) == until
    assert len(table.newest(1000, after, until)) == 1000


def test_many_zones_are_counted_together() -> None:
    names = sorted(all_zone_names())[::38][:16]
    table = timetable(*(CronSchedule(f"{minute} */3 * * *", name) for minute, name in enumerate(names)))
    after, until = at("2025-10-20T00:00:00Z"), at("2025-11-10T00:00:00Z")
    walked = walk(table, after, until)
    assert table.count(after, until) == len(walked)
    middle = walked[bisect_right(walked, at("2025-11-02T06:00:00Z"))]
    assert table.count(after, middle) + table.count(middle, until) == len(walked)


@pytest.mark.parametrize("host_zone", ["Australia/Sydney", "America/Santiago", "Africa/Cairo"])
def test_zone_of_the_host_does_not_matter(host_zone: str) -> None:
    program = """
from onbeat.domain.model import CronSchedule
from onbeat.domain.timetable import compile_timetable
for zone, after in (("UTC", 1759629600), ("Europe/Berlin", 1759629600), ("America/New_York", 1741420800)):
    print(compile_timetable((CronSchedule("30 2 * * *", zone),), job_id=1).next_after(after * 1_000_000))
"""
    answers = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"TZ": name}, capture_output=True, text=True, check=True
        ).stdout
        for name in ("UTC", host_zone)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].split()) == 3


# ---------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("schedules", "code", "field"),
    [
        ((), "schedule_invalid", "schedules"),
        (tuple(CronSchedule(f"{minute} * * * *") for minute in range(17)), "schedule_invalid", "schedules"),
        ((CronSchedule("* * * * *"), CronSchedule("60 * * * *")), "cron_invalid", "schedules[1].cron"),
        ((CronSchedule("0 0 30 2 *"),), "never_fires", "schedules[0].cron"),
        ((CronSchedule("* * * * *", "Mars/Base"),), "timezone_unknown", "schedules[0].timezone"),
        ((EverySchedule(0, 0),), "interval_invalid", "schedules[0].every"),
        ((EverySchedule(-60, 0),), "interval_invalid", "schedules[0].every"),
        ((EverySchedule(10 * 366 * DAY_S + 1, 0),), "interval_invalid", "schedules[0].every"),
        ((EverySchedule(60, -1),), "schedule_invalid", "schedules[0].anchor"),
        ((AtSchedule(-1),), "schedule_invalid", "schedules[0].at"),
        ((AtSchedule(10**20),), "schedule_invalid", "schedules[0].at"),
        ((CronSchedule("@daily"), CronSchedule("@daily")), "schedule_invalid", "schedules[1]"),
    ],
)
def test_schedules_that_cannot_be_honoured_are_refused(schedules: tuple[Schedule, ...], code: str, field: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        check_schedules(schedules, job_id=1, now=at("2026-01-01T00:00:00Z"))
    assert (refusal.value.reason_code, refusal.value.field) == (code, field)
    assert refusal.value.remedy


def test_schedule_with_nothing_left_is_refused() -> None:
    with pytest.raises(DefinitionError) as refusal:
        check_schedules((CronSchedule("@yearly"),), job_id=1, now=at("9999-06-01T00:00:00Z"))
    assert refusal.value.reason_code == "never_fires"


def test_sixteen_schedules_and_a_past_one_shot_are_accepted() -> None:
    schedules: tuple[Schedule, ...] = (AtSchedule(0), *(CronSchedule(f"{minute} * * * *") for minute in range(15)))
    check_schedules(schedules, job_id=1, now=at("2026-01-01T00:00:00Z"))


def test_timetables_are_shared_unless_they_depend_on_the_job() -> None:
    plain, spread = (CronSchedule("17 * * * *"),), (CronSchedule("H * * * *"),)
    assert compile_timetable(plain, job_id=1) is compile_timetable(plain, job_id=2)
    assert compile_timetable(spread, job_id=1) is not compile_timetable(spread, job_id=2)
    assert len({compile_timetable(spread, job_id=job).next_after(0) for job in range(300)}) == 60


def test_utc_day_with_a_change_is_counted_like_the_walk() -> None:
    """New York's overlap lies within one UTC day, Sydney's change at the border of two."""
    for timezone, middle in (
        ("America/New_York", "2025-11-02T06:00:00Z"),
        ("Australia/Sydney", "2025-10-04T16:00:00Z"),
    ):
        for expression in ("*/7 * * * *", "*/7 1-3 * * *", "30 1-3 * * *", "5,35 0-3 * * *", "*/13 * * * * *"):
            table = cron(expression, timezone)
            after, until = at(middle) - DAY_US, at(middle) + DAY_US
            assert table.count(after, until) == len(walk(table, after, until))
