"""Blackouts: which moments they cover, and what becomes of instants that were not dispatched in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.blackout import (
    WINDOWS_PER_PLAN,
    Blackout,
    BlackoutRules,
    Window,
    check_blackout,
    covering,
    decode_blackout,
    encode_blackout,
    open_windows,
    plan_around,
)
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import parse_instant
from onbeat.domain.misfire import InstantRange, plan_misfires
from onbeat.domain.model import SECOND_US, CronSchedule, EverySchedule, MisfirePolicy
from onbeat.domain.timetable import Timetable, compile_timetable

DAY_S = 86_400


def at(text: str) -> int:
    return parse_instant(text, field="at")


def once(start: str, end: str, tag: str | None = None) -> Blackout:
    return Blackout("x", BlackoutRules(tag=tag, from_at=at(start), until_at=at(end)))


def recurring(cron: str, duration_s: int, timezone: str = "UTC") -> Blackout:
    return Blackout("x", BlackoutRules(cron=cron, timezone=timezone, duration_s=duration_s))


@pytest.mark.parametrize(
    ("blackout", "inside", "outside"),
    [
        (
            once("2026-12-24T18:00:00Z", "2026-12-27T06:00:00Z"),
            ["2026-12-24T18:00:00Z", "2026-12-27T05:59:59Z"],
            ["2026-12-24T17:59:59Z", "2026-12-27T06:00:00Z"],
        ),
        (
            recurring("0 22 * * 5", 8 * 3_600, "Europe/Berlin"),
            ["2026-11-27T21:00:00Z", "2026-11-28T04:59:59Z"],
            ["2026-11-27T20:59:59Z", "2026-11-28T05:00:00Z", "2026-11-26T21:00:00Z"],
        ),
        # the night of the change of the clock is an hour longer, the window is not
        (
            recurring("0 22 * * 6", 8 * 3_600, "Europe/Berlin"),
            ["2026-10-24T20:00:00Z", "2026-10-25T03:59:59Z"],
            ["2026-10-25T04:00:00Z"],
        ),
        # windows that meet
        (recurring("0 * * * *", 3_600), ["2026-01-01T00:00:00Z", "2026-06-01T12:34:56Z"], []),
        (recurring("0 0 1 * *", 31 * DAY_S), ["2026-02-15T00:00:00Z", "2026-12-31T23:59:59Z"], []),
    ],
)
def test_windows_cover_from_their_beginning_to_before_their_end(
    blackout: Blackout, inside: list[str], outside: list[str]
) -> None:
    assert [text for text in inside if not blackout.covers(at(text))] == []
    assert [text for text in outside if blackout.covers(at(text))] == []
    assert all(covering([blackout], at(text)) == "x" for text in inside)


def test_tag_says_whose_jobs_are_concerned() -> None:
    tagged = once("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", tag="db")
    assert tagged.concerns(("web", "db"))
    assert not tagged.concerns(("web",))
    assert once("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z").concerns(())


@pytest.mark.parametrize(
    ("rules", "code", "field"),
    [
        (BlackoutRules(), "blackout_invalid", None),
        (BlackoutRules(from_at=1), "blackout_invalid", None),
        (BlackoutRules(until_at=1), "blackout_invalid", None),
        (BlackoutRules(from_at=2, until_at=1), "blackout_invalid", "until"),
        (BlackoutRules(from_at=1, until_at=1), "blackout_invalid", "until"),
        (BlackoutRules(from_at=1, until_at=2, duration_s=60), "blackout_invalid", None),
        (BlackoutRules(from_at=1, until_at=2, cron="0 1 * * *", duration_s=60), "blackout_invalid", None),
        (BlackoutRules(duration_s=60), "blackout_invalid", None),
        (BlackoutRules(cron="0 1 * * *"), "blackout_invalid", "duration"),
        (BlackoutRules(cron="0 1 * * *", duration_s=59), "blackout_invalid", "duration"),
        (BlackoutRules(cron="0 1 * * *", duration_s=31 * DAY_S + 1), "blackout_invalid", "duration"),
        (BlackoutRules(cron="0 1 * * *", duration_s=60, timezone="Mars"), "timezone_unknown", "timezone"),
        (BlackoutRules(cron="* * * * *", duration_s=60), "blackout_invalid", "cron"),
        (BlackoutRules(cron="0,30 * * * *", duration_s=60), "blackout_invalid", "cron"),
        (BlackoutRules(cron="0 0 1 * * *", duration_s=60), "blackout_invalid", "cron"),
        (BlackoutRules(cron="H 1 * * *", duration_s=60), "blackout_invalid", "cron"),
        (BlackoutRules(cron="0 1 30 2 *", duration_s=60), "never_fires", "cron"),
        (BlackoutRules(cron="x", duration_s=60), "cron_invalid", "cron"),
    ],
)
def test_rules_that_cannot_be_honoured_are_refused(rules: BlackoutRules, code: str, field: str | None) -> None:
    with pytest.raises(DefinitionError) as caught:
        check_blackout(rules)
    assert (caught.value.reason_code, caught.value.field) == (code, field)


def test_rules_are_read_back_as_they_were_written() -> None:
    rules = BlackoutRules(tag="db", cron="0 1 * * *", timezone="Europe/Berlin", duration_s=60)
    assert decode_blackout(encode_blackout(rules)) == rules
    with pytest.raises(DefinitionError, match="cannot be read"):
        decode_blackout('{"tags": []}')


def test_windows_of_several_blackouts_are_joined_where_they_meet() -> None:
    blackouts = [
        once("2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"),
        once("2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z"),
        once("2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z"),
        once("2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z"),
    ]
    found = open_windows(blackouts, after=at("2026-01-01T00:30:00Z"), until=at("2026-01-02T00:00:00Z"))
    assert found == (
        Window(at("2026-01-01T00:00:00Z"), at("2026-01-01T04:00:00Z")),
        Window(at("2026-01-01T05:00:00Z"), at("2026-01-01T06:00:00Z")),
    )
    assert open_windows(blackouts, after=at("2026-01-01T05:59:59.999999Z"), until=at("2026-01-02T00:00:00Z")) == ()


# ---------------------------------------------------------------- planning around them

EACH_SECOND = compile_timetable((EverySchedule(1, 0),), job_id=1)
SKIP = MisfirePolicy()


def s(second: int) -> int:
    return second * SECOND_US


def span(first: int, last: int) -> InstantRange:
    return InstantRange(s(first), s(last), last - first + 1)


@pytest.mark.parametrize(
    ("windows", "policy", "missed", "blacked_out", "catch_up", "live", "next_second"),
    [
        ([(200, 300)], SKIP, [(0, 94)], [], [], [95, 96, 97, 98, 99, 100], 101),
        ([(10, 20)], SKIP, [(0, 9), (20, 94)], [(10, 19)], [], [95, 96, 97, 98, 99, 100], 101),
        ([(0, 200)], SKIP, [], [(0, 100)], [], [], 101),
        ([(98, 200)], SKIP, [(0, 94)], [(98, 100)], [], [95, 96, 97], 101),
        ([(0, 100)], SKIP, [], [(0, 99)], [], [100], 101),
        ([(50, 99)], MisfirePolicy("catch_up", max=5), [(0, 46)], [(50, 98)], [47, 48, 49], [99, 100], 101),
        ([(50, 150)], MisfirePolicy("run_latest"), [(0, 48)], [(50, 100)], [49], [], 101),
        ([(0, 5), (7, 9)], SKIP, [(5, 6), (9, 94)], [(0, 4), (7, 8)], [], [95, 96, 97, 98, 99, 100], 101),
    ],
)
def test_instants_in_windows_are_taken_out_before_the_others_are_judged(
    windows: list[tuple[int, int]],
    policy: MisfirePolicy,
    missed: list[tuple[int, int]],
    blacked_out: list[tuple[int, int]],
    catch_up: list[int],
    live: list[int],
    next_second: int,
) -> None:
    split = plan_around(
        EACH_SECOND,
        [Window(s(start), s(end)) for start, end in windows],
        due_at=0,
        now=s(100),
        grace_us=s(5),
        policy=policy,
    )
    assert list(split.missed) == [span(*found) for found in missed]
    assert list(split.blacked_out) == [span(*found) for found in blacked_out]
    assert list(split.catch_up) == [s(second) for second in catch_up]
    assert list(split.live) == [s(second) for second in live]
    assert split.next_fire_at == s(next_second)


def test_month_of_a_per_second_job_around_nightly_windows_takes_no_walk() -> None:
    night = recurring("0 22 * * *", 8 * 3_600)
    now = 30 * DAY_S * SECOND_US
    windows = open_windows([night], after=-1, until=now)
    split = plan_around(EACH_SECOND, windows, due_at=0, now=now, grace_us=0, policy=SKIP)
    assert len(split.blacked_out) == 30
    assert sum(found.count for found in (*split.missed, *split.blacked_out)) + len(split.live) == 30 * DAY_S + 1


TIMETABLES = st.sampled_from(
    [
        compile_timetable((EverySchedule(1, 0),), job_id=1),
        compile_timetable((EverySchedule(7, 3),), job_id=1),
        compile_timetable((CronSchedule("*/20 * * * * *"),), job_id=1),
    ]
)
WINDOWS = st.lists(st.integers(-50, 5_000), max_size=300, unique=True).map(
    lambda edges: [
        Window(s(start), s(end)) for start, end in zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False)
    ]
)
POLICIES = st.sampled_from(
    [SKIP, MisfirePolicy("run_latest"), MisfirePolicy("catch_up", max=7), MisfirePolicy("catch_up", window_s=100)]
)


@given(TIMETABLES, WINDOWS, POLICIES, st.integers(0, 4_000), st.integers(0, 300), st.integers(0, 50))
def test_every_instant_is_accounted_for_once_over_all_plans(
    timetable: Timetable, windows: list[Window], policy: MisfirePolicy, length: int, grace: int, start: int
) -> None:
    due_at = timetable.next_after(s(start) - 1)
    assert due_at is not None
    now = due_at + s(length)
    right, instant = [], due_at
    while instant <= now:
        right.append(instant)
        following = timetable.next_after(instant)
        assert following is not None
        instant = following
    seen: list[int] = []
    kept: list[int] = []
    next_fire_at: int | None = due_at
    while next_fire_at is not None and next_fire_at <= now:
        ahead = [window for window in windows if window.end > next_fire_at and window.start <= now]
        split = plan_around(
            timetable,
            ahead[: WINDOWS_PER_PLAN + 1],
            due_at=next_fire_at,
            now=now,
            grace_us=s(grace),
            policy=policy,
        )
        seen += split.live + split.catch_up
        kept += split.live + split.catch_up
        for found, is_inside in ((split.missed, False), (split.blacked_out, True)):
            for gone in found:
                listed = [instant for instant in right if gone.first <= instant <= gone.last]
                assert len(listed) == gone.count
                assert all(any(w.start <= i < w.end for w in windows) is is_inside for i in listed)
                seen += listed
        assert split.next_fire_at is not None
        assert split.next_fire_at > next_fire_at
        next_fire_at = split.next_fire_at
    assert sorted(seen) == right
    assert not any(w.start <= i < w.end for w in windows for i in kept)
    assert next_fire_at == instant


@given(TIMETABLES, POLICIES, st.integers(0, 4_000), st.integers(0, 300))
def test_without_windows_nothing_changes(timetable: Timetable, policy: MisfirePolicy, length: int, grace: int) -> None:
    due_at = timetable.next_after(-1)
    assert due_at is not None
    plain = plan_misfires(timetable, due_at=due_at, now=due_at + s(length), grace_us=s(grace), policy=policy)
    split = plan_around(timetable, (), due_at=due_at, now=due_at + s(length), grace_us=s(grace), policy=policy)
    assert (split.live, split.catch_up, split.next_fire_at) == (plain.live, plain.catch_up, plain.next_fire_at)
    assert split.missed == (() if plain.missed is None else (plain.missed,))
