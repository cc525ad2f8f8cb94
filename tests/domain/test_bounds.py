"""`start_at` and `end_at`: both inclusive, on every kind of schedule."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.cron_oracle import ANY_DAY, ZONES

from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import parse_instant
from onbeat.domain.model import (
    SECOND_US,
    AtSchedule,
    CronSchedule,
    Definition,
    EverySchedule,
    QueueTarget,
    Schedule,
    decode_definition,
    encode_definition,
)
from onbeat.domain.preview import preview
from onbeat.domain.timetable import check_schedules, compile_timetable

DAY_US = 86_400 * SECOND_US
BASE = 17 * 10**14
MOMENTS = st.integers(BASE, BASE + 6 * DAY_US)


def at(text: str) -> int:
    return parse_instant(text, field="at")


def walk(schedules: tuple[Schedule, ...], after: int, until: int) -> list[int]:
    table = compile_timetable(schedules, job_id=1)
    found: list[int] = []
    instant = table.next_after(after)
    while instant is not None and instant <= until:
        found.append(instant)
        instant = table.next_after(instant)
    return found


@st.composite
def bounded(draw: st.DrawFn) -> tuple[Schedule, Schedule]:
    """A schedule with bounds, and the same without."""
    start_at = draw(st.none() | MOMENTS)
    end_at = draw(st.none() | st.integers(start_at or BASE, BASE + 7 * DAY_US).map(lambda end: end + SECOND_US))
    kind = draw(st.sampled_from(["cron", "every", "at"]))
    if kind == "cron":
        fields = (draw(ANY_DAY), draw(ZONES))
        return CronSchedule(*fields, start_at=start_at, end_at=end_at), CronSchedule(*fields)
    if kind == "every":
        every = (draw(st.integers(300, 200_000) | st.sampled_from([600, 86_400])), draw(st.integers(0, 2 * 10**15)))
        return EverySchedule(*every, start_at=start_at, end_at=end_at), EverySchedule(*every)
    moment = draw(MOMENTS)
    return AtSchedule(moment, start_at=start_at, end_at=end_at), AtSchedule(moment)


@given(st.lists(bounded(), min_size=1, max_size=3), MOMENTS, st.integers(0, 8 * DAY_US), st.integers(0, 300))
def test_bounds_cut_the_instants_and_change_none(
    pairs: list[tuple[Schedule, Schedule]], after: int, length: int, number: int
) -> None:
    until = after + length
    expected = sorted(
        {
            instant
            for schedule, free in pairs
            for instant in walk((free,), after, until)
            if (schedule.start_at or 0) <= instant <= (until if schedule.end_at is None else schedule.end_at)
        }
    )
    schedules = tuple(schedule for schedule, _free in pairs)
    table = compile_timetable(schedules, job_id=1)
    assert walk(schedules, after, until) == expected
    assert table.count(after, until) == len(expected)
    assert list(table.newest(number, after, until)) == (expected[-number:] if number else [])


@pytest.mark.parametrize("schedule", [CronSchedule("0 * * * *"), EverySchedule(3600, 0)])
def test_both_bounds_are_inclusive(schedule: Schedule) -> None:
    def instants(start: str, end: str) -> int:
        kept = msgspec.structs.replace(schedule, start_at=at(start), end_at=at(end))
        return len(walk((kept,), 0, at("2030-01-01T00:00:00Z")))

    assert instants("2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z") == 3
    assert instants("2026-01-01T01:00:00.000001Z", "2026-01-01T03:00:00Z") == 2
    assert instants("2026-01-01T01:00:00Z", "2026-01-01T02:59:59.999999Z") == 2


@pytest.mark.parametrize(
    ("schedule", "code", "field"),
    [
        (CronSchedule("@daily", start_at=2 * DAY_US, end_at=DAY_US), "schedule_invalid", "schedules[0].end_at"),
        (EverySchedule(60, 0, start_at=2 * DAY_US, end_at=DAY_US), "schedule_invalid", "schedules[0].end_at"),
        (CronSchedule("@daily", end_at=DAY_US), "never_fires", "schedules[0]"),
        (CronSchedule("0 0 1 1 *", start_at=BASE, end_at=BASE + DAY_US), "never_fires", "schedules[0]"),
        (EverySchedule(60, 0, end_at=DAY_US), "never_fires", "schedules[0]"),
        (AtSchedule(BASE, start_at=BASE + DAY_US), "never_fires", "schedules[0]"),
        (CronSchedule("@daily", start_at=10**20), "schedule_invalid", "schedules[0].start_at"),
        (CronSchedule("@daily", end_at=-1), "schedule_invalid", "schedules[0].end_at"),
    ],
)
def test_bounds_that_leave_nothing_are_refused(schedule: Schedule, code: str, field: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        check_schedules((schedule,), job_id=1, now=BASE - DAY_US)
    assert (refusal.value.reason_code, refusal.value.field) == (code, field)
    assert refusal.value.remedy


def test_a_schedule_that_stood_there_before_may_have_come_to_its_end() -> None:
    ended = CronSchedule("@daily", end_at=BASE)
    check_schedules((ended, CronSchedule("@hourly")), job_id=1, now=BASE + DAY_US, former=(ended,))
    with pytest.raises(DefinitionError):
        check_schedules((ended, CronSchedule("@hourly")), job_id=1, now=BASE + DAY_US)


def test_definitions_without_bounds_decode_as_before_and_stay_narrow() -> None:
    schedules = '[{"kind":"cron","expression":"@daily","timezone":"UTC"},{"kind":"at","at":5}]'
    text = f'{{"schedules":{schedules},"target":{{"kind":"queue","queue":"q"}}}}'
    definition = decode_definition(text)
    assert definition == Definition(schedules=(CronSchedule("@daily"), AtSchedule(5)), target=QueueTarget("q"))
    assert "start_at" not in encode_definition(definition)


def test_preview_shows_what_lies_outside_the_bounds() -> None:
    schedule = CronSchedule("@daily", start_at=at("2026-01-03T00:00:00Z"), end_at=at("2026-01-04T12:00:00Z"))
    shown = preview((schedule,), job_id=1, after=at("2025-12-31T12:00:00Z"), count=4)
    assert [instant.local[0][:14] for instant in shown.instants] == ["Sat 2026-01-03", "Sun 2026-01-04"]
    assert [(removed.local[:14], removed.note.split(",")[0]) for removed in shown.removed] == [
        ("Thu 2026-01-01", "before start_at"),
        ("Fri 2026-01-02", "before start_at"),
        ("Mon 2026-01-05", "after end_at"),
        ("Tue 2026-01-06", "after end_at"),
    ]
    assert "Starts at 2026-01-03T00:00:00Z" in shown.schedules[0].notes[-2]
    assert "Ends at 2026-01-04T12:00:00Z" in shown.schedules[0].notes[-1]
