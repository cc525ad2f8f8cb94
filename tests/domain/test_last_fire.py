"""`max_fires` becomes the instant of the last fire."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.cron_oracle import ANY_DAY, ZONES

from onbeat.domain import last_fire
from onbeat.domain.calendar import Calendar, CalendarRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import LAST_INSTANT, parse_instant
from onbeat.domain.last_fire import resolve_last_fire
from onbeat.domain.model import SECOND_US, AtSchedule, CalendarUse, CronSchedule, EverySchedule, Schedule
from onbeat.domain.timetable import compile_timetable

DAY_US = 86_400 * SECOND_US
BASE = 17 * 10**14


def resolve(schedule: Schedule, *, counted_from: int = BASE, former: tuple[Schedule, ...] = ()) -> Schedule:
    return resolve_last_fire(schedule, job_id=1, counted_from=counted_from, former=former, field="schedules[0]")


def walk(schedule: Schedule, after: int, number: int) -> list[int]:
    table = compile_timetable((schedule,), job_id=1)
    found: list[int] = []
    instant = table.next_after(after)
    while instant is not None and len(found) < number:
        found.append(instant)
        instant = table.next_after(instant)
    return found


@given(
    st.builds(CronSchedule, ANY_DAY, ZONES) | st.builds(EverySchedule, st.integers(1, 90_000), st.integers(0, BASE)),
    st.integers(1, 60),
    st.none() | st.integers(BASE - DAY_US, BASE + DAY_US),
    st.none() | st.integers(BASE + 2 * DAY_US, BASE + 40 * DAY_US),
    st.sampled_from([0, 1_000]),
)
def test_exactly_so_many_instants_are_planned(
    rule: Schedule, number: int, start_at: int | None, end_at: int | None, walked: int
) -> None:
    """Whether found by walking or by counting."""
    unlimited = msgspec.structs.replace(rule, start_at=start_at, end_at=end_at)
    after = BASE if start_at is None else start_at - 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(last_fire, "WALKED", walked)
        resolved = resolve(msgspec.structs.replace(unlimited, max_fires=number))
    assert walk(resolved, after, number + 1) == walk(unlimited, after, number)


@pytest.mark.parametrize(
    ("schedule", "last"),
    [
        (CronSchedule("0 0 29 2 *", max_fires=10), "2060-02-29T00:00:00Z"),
        (CronSchedule("* * * * *", max_fires=1_000_000), "2025-10-09T08:53:00Z"),
        (EverySchedule(1, 0, max_fires=1_000_000), "2023-11-26T12:00:00Z"),
        (CronSchedule("0 9 * * *", "Europe/Berlin", max_fires=1, start_at=BASE), "2023-11-15T08:00:00Z"),
    ],
)
def test_last_fire_is_found_however_far_it_is(schedule: Schedule, last: str) -> None:
    assert resolve(schedule).last_at == parse_instant(last, field="last")


def test_start_itself_is_counted_and_the_creation_is_not() -> None:
    assert resolve(EverySchedule(60, BASE, max_fires=1, start_at=BASE)).last_at == BASE
    assert resolve(EverySchedule(60, BASE, max_fires=1)).last_at == BASE + 60 * SECOND_US


def test_what_was_resolved_stays_while_the_schedule_does() -> None:
    schedule = CronSchedule("@daily", max_fires=3)
    known = msgspec.structs.replace(schedule, last_at=BASE + 9 * DAY_US)
    assert resolve(schedule, former=(known,)) == known
    other = msgspec.structs.replace(schedule, max_fires=4)
    assert resolve(other, former=(known,)).last_at == resolve(other).last_at


@pytest.mark.parametrize("roll", ["skip", "next_business_day", "previous_business_day"])
@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_what_calendars_leave_and_move_is_counted(
    roll: Literal["skip", "next_business_day", "previous_business_day"], number: int
) -> None:
    calendars = {"weekend": Calendar("weekend", CalendarRules(weekdays=(0, 6)))}
    free = CronSchedule("0 9 1-20 * *", calendars=CalendarUse(exclude=("weekend",), roll=roll))
    limited = msgspec.structs.replace(free, max_fires=number)
    resolved = resolve_last_fire(limited, job_id=1, counted_from=BASE, calendars=calendars, field="schedules[0]")
    expected = compile_timetable((free,), job_id=1, calendars=calendars).nth_walked(number, BASE)
    table = compile_timetable((resolved,), job_id=1, calendars=calendars)
    assert table.count(BASE, BASE + 90 * DAY_US) == number
    assert table.latest(BASE, BASE + 90 * DAY_US) == expected


def test_number_that_is_never_reached_does_not_bite() -> None:
    resolved = resolve(CronSchedule("@daily", max_fires=5_000, end_at=BASE + 3 * DAY_US))
    assert len(walk(resolved, BASE, 10)) == 3
    assert resolve(CronSchedule("@yearly", max_fires=900, start_at=LAST_INSTANT - 900 * DAY_US)).last_at is not None


@pytest.mark.parametrize(
    ("schedule", "code", "field"),
    [
        (AtSchedule(BASE, max_fires=1), "schedule_invalid", "schedules[0].max_fires"),
        (CronSchedule("@daily", max_fires=0), "schedule_invalid", "schedules[0].max_fires"),
        (CronSchedule("@daily", max_fires=1_000_001), "schedule_invalid", "schedules[0].max_fires"),
        (CronSchedule("@daily", max_fires=20_000), "schedule_invalid", "schedules[0].max_fires"),
        (CronSchedule("61 * * * *", max_fires=5), "cron_invalid", "schedules[0].cron"),
    ],
)
def test_limit_without_a_meaning_is_refused(schedule: Schedule, code: str, field: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        resolve(schedule)
    assert (refusal.value.reason_code, refusal.value.field) == (code, field)
    assert refusal.value.remedy


def test_limit_that_nobody_resolved_parks_its_job_only() -> None:
    with pytest.raises(DefinitionError) as refusal:
        compile_timetable((CronSchedule("@daily", max_fires=3),), job_id=1)
    assert refusal.value.field == "schedules[0].max_fires"
