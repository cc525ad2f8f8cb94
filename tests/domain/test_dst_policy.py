"""What a schedule that names its own rule does at a change of the clock."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.domain.cron_oracle import ANY_DAY, near_changes, slow_instants

from onbeat.domain.instants import format_instant, parse_instant
from onbeat.domain.model import SECOND_US, CronSchedule, DstGap, DstOverlap
from onbeat.domain.preview import preview
from onbeat.domain.timetable import Timetable, compile_timetable

DAY_US = 86_400 * SECOND_US
GAPS: st.SearchStrategy[DstGap | None] = st.sampled_from([None, "shift", "skip"])
OVERLAPS: st.SearchStrategy[DstOverlap | None] = st.sampled_from([None, "first", "second", "both"])
SPRING, AUTUMN = "2025-03-09T05:00:00Z", "2025-11-02T04:00:00Z"  # New York: midnight of both changes


def at(text: str) -> int:
    return parse_instant(text, field="after")


def walk(table: Timetable, after: int, until: int) -> list[int]:
    found: list[int] = []
    instant = table.next_after(after)
    while instant is not None and instant <= until:
        found.append(instant)
        instant = table.next_after(instant)
    return found


@given(near_changes(), ANY_DAY, GAPS, OVERLAPS)
@example(("America/New_York", 1_762_063_200), "30 1 * * *", None, "second")
@example(("America/New_York", 1_762_063_200), "*/20 * * * *", None, "second")
@example(("Australia/Lord_Howe", 1_775_314_800), "45 1 * * *", None, "second")  # back by half an hour
@example(("Antarctica/Vostok", 760_035_600), "30 * * * *", "shift", "second")  # back by seven hours, over midnight
@example(("Africa/Cairo", 1_745_532_000), "0 */2 * * 5", "shift", "first")
@example(("Pacific/Apia", 1_325_239_200), "0 9 * * *", "skip", None)  # a whole day
def test_instants_are_those_of_the_slow_walk(
    moment: tuple[str, int], expression: str, gap: DstGap | None, overlap: DstOverlap | None
) -> None:
    timezone, second = moment
    after, until = second * SECOND_US, second * SECOND_US + 2 * DAY_US
    table = compile_timetable((CronSchedule(expression, timezone, gap, overlap),), job_id=1)
    slow = slow_instants(expression, timezone, second + 1, until // SECOND_US, gap=gap, overlap=overlap)
    expected = [instant * SECOND_US for instant in slow]
    assert walk(table, after, until) == expected
    assert table.count(after, until) == len(expected)
    assert list(table.newest(5, after, until)) == expected[-5:]
    for instant in expected:  # the same from everywhere before it
        assert Timetable(table.plans).next_after(instant - 1) == instant


@pytest.mark.parametrize(
    ("expression", "gap", "instants"),
    [
        ("30 2 * * *", None, ["07:00"]),
        ("30 2 * * *", "shift", ["07:00"]),
        ("30 2 * * *", "skip", []),
        ("15,45 2 * * *", "shift", ["07:00"]),
        ("*/30 1-3 * * *", None, ["06:00", "06:30", "07:00", "07:30"]),
        ("*/30 1-3 * * *", "skip", ["06:00", "06:30", "07:00", "07:30"]),
        ("*/30 2 * * *", None, []),
        ("*/30 2 * * *", "shift", ["07:00"]),
        ("0 30 2 * * *", "shift", ["07:00"]),  # six fields are a wildcard, and can be told to be none
    ],
)
def test_gap(expression: str, gap: DstGap | None, instants: list[str]) -> None:
    table = compile_timetable((CronSchedule(expression, "America/New_York", gap),), job_id=1)
    found = [format_instant(instant)[11:16] for instant in walk(table, at(SPRING), at(SPRING) + DAY_US // 2)]
    assert found == instants


@pytest.mark.parametrize(
    ("expression", "overlap", "instants"),
    [
        ("30 1 * * *", None, ["05:30"]),
        ("30 1 * * *", "first", ["05:30"]),
        ("30 1 * * *", "second", ["06:30"]),
        ("30 1 * * *", "both", ["05:30", "06:30"]),
        ("*/30 1-2 * * *", None, ["05:00", "05:30", "06:00", "06:30", "07:00", "07:30"]),
        ("*/30 1-2 * * *", "both", ["05:00", "05:30", "06:00", "06:30", "07:00", "07:30"]),
        ("*/30 1-2 * * *", "first", ["05:00", "05:30", "07:00", "07:30"]),
        ("*/30 1-2 * * *", "second", ["06:00", "06:30", "07:00", "07:30"]),
        ("0 30 1 * * *", "first", ["05:30"]),
    ],
)
def test_overlap(expression: str, overlap: DstOverlap | None, instants: list[str]) -> None:
    table = compile_timetable((CronSchedule(expression, "America/New_York", None, overlap),), job_id=1)
    found = [format_instant(instant)[11:16] for instant in walk(table, at(AUTUMN), at(AUTUMN) + DAY_US // 2)]
    assert found == instants


@given(near_changes(), ANY_DAY, st.sampled_from(["shift", "skip"]), OVERLAPS)
def test_preview_shows_every_instant_that_a_rule_took_away(
    moment: tuple[str, int], expression: str, gap: DstGap, overlap: DstOverlap | None
) -> None:
    """What is shown and what is removed are together what fires where no instant is taken away."""
    timezone, second = moment
    after = second * SECOND_US
    schedule = CronSchedule(expression, timezone, gap, overlap)
    shown = preview((schedule,), job_id=1, after=after, count=30)
    until = shown.instants[-1].at
    free = compile_timetable((CronSchedule(expression, timezone, gap, "both"),), job_id=1)
    taken = set(walk(free, after, until)) - {instant.at for instant in shown.instants}
    removed = [instant.at for instant in shown.removed if instant.at is not None]
    if len(shown.removed) < 100:
        assert sorted(taken) == removed
    for instant in shown.removed:
        assert instant.at is not None or (instant.moved_to is None) == (gap == "skip")
