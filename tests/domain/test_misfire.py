"""Misfire plans partition the due instants: live, caught up, missed, still to come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.misfire import LIVE_FIRES_PER_PLAN, InstantRange, MisfirePlan, plan_misfires
from onbeat.domain.model import SECOND_US, CronSchedule, EverySchedule, MisfirePolicy
from onbeat.domain.moved_start import MovedStart
from onbeat.domain.timetable import compile_timetable

MINUTE_US = 60 * SECOND_US
T0 = 1_800_000_000 * SECOND_US  # a full minute

MINUTELY = compile_timetable((EverySchedule(every_s=60, anchor_at=T0),), job_id=1)


def plan(due_at: int, now: int, grace_s: int, policy: MisfirePolicy) -> MisfirePlan:
    return plan_misfires(MINUTELY, due_at=due_at, now=now, grace_us=grace_s * SECOND_US, policy=policy)


def minute(number: int) -> int:
    return T0 + number * MINUTE_US


@pytest.mark.parametrize(
    ("policy", "late_by_s", "missed", "catch_up", "live"),
    [
        (MisfirePolicy("skip"), 10, InstantRange(minute(0), minute(110), 111), (), (111,)),
        (MisfirePolicy("skip"), 59, InstantRange(minute(0), minute(111), 112), (), ()),
        (MisfirePolicy("run_latest"), 10, InstantRange(minute(0), minute(110), 111), (), (111,)),
        (MisfirePolicy("run_latest"), 59, InstantRange(minute(0), minute(110), 111), (111,), ()),
        (MisfirePolicy("catch_up", max=3), 59, InstantRange(minute(0), minute(108), 109), (109, 110, 111), ()),
        (MisfirePolicy("catch_up", max=3), 10, InstantRange(minute(0), minute(108), 109), (109, 110), (111,)),
        (MisfirePolicy("catch_up", max=3, window_s=150), 59, InstantRange(minute(0), minute(109), 110), (110, 111), ()),
        (MisfirePolicy("catch_up", max=500), 59, None, tuple(range(112)), ()),
    ],
)
def test_an_outage_of_112_minutes(
    policy: MisfirePolicy, late_by_s: int, missed: InstantRange | None, catch_up: tuple[int, ...], live: tuple[int, ...]
) -> None:
    result = plan(minute(0), minute(111) + late_by_s * SECOND_US, 30, policy)
    assert result.missed == missed
    assert result.catch_up == tuple(minute(number) for number in catch_up)
    assert result.live == tuple(minute(number) for number in live)
    assert result.next_fire_at == minute(112)


def test_an_instant_exactly_as_old_as_grace_is_live() -> None:
    assert plan(minute(0), minute(0) + 30 * SECOND_US, 30, MisfirePolicy()).live == (minute(0),)
    assert plan(minute(0), minute(0) + 30 * SECOND_US + 1, 30, MisfirePolicy()).live == ()


def test_many_instants_inside_grace_follow_in_the_next_plan() -> None:
    every_second = compile_timetable((EverySchedule(every_s=1, anchor_at=T0),), job_id=1)
    first = plan_misfires(
        every_second, due_at=T0, now=T0 + 1000 * SECOND_US, grace_us=3600 * SECOND_US, policy=MisfirePolicy()
    )
    assert len(first.live) == LIVE_FIRES_PER_PLAN
    assert first.next_fire_at == T0 + LIVE_FIRES_PER_PLAN * SECOND_US


def test_three_years_of_missed_minutes_are_counted_not_walked() -> None:
    calls = 0

    class Counting:
        def __getattr__(self, name: str) -> object:
            nonlocal calls
            calls += 1
            return getattr(timetable, name)

    timetable = compile_timetable((CronSchedule("* * * * *", "Europe/Kyiv"),), job_id=1)
    days = 3 * 365
    result = plan_misfires(
        Counting(),  # type: ignore[arg-type]  # it answers whatever a timetable answers
        due_at=T0,
        now=T0 + days * 86_400 * SECOND_US + 45 * SECOND_US,
        grace_us=30 * SECOND_US,
        policy=MisfirePolicy("skip"),
    )
    assert result.missed == InstantRange(T0, T0 + days * 86_400 * SECOND_US, days * 1440 + 1)
    assert calls < 10


@given(
    every_s=st.integers(1, 500),
    due=st.integers(0, 50),
    behind_s=st.integers(0, 5_000),
    grace_s=st.integers(0, 600),
    kind=st.sampled_from(["skip", "run_latest", "catch_up"]),
    most=st.integers(1, 20),
    window_s=st.integers(1, 5_000),
)
def test_every_due_instant_is_in_exactly_one_part(
    every_s: int, due: int, behind_s: int, grace_s: int, kind: str, most: int, window_s: int
) -> None:
    timetable = compile_timetable((EverySchedule(every_s=every_s, anchor_at=T0),), job_id=1)
    due_at = T0 + due * every_s * SECOND_US
    now = due_at + behind_s * SECOND_US
    policy = MisfirePolicy(kind, max=most, window_s=window_s)  # type: ignore[arg-type]
    result = plan_misfires(timetable, due_at=due_at, now=now, grace_us=grace_s * SECOND_US, policy=policy)
    assert result.next_fire_at is not None
    instants = list(range(due_at, result.next_fire_at, every_s * SECOND_US))
    missed: list[int] = []
    if result.missed is not None:
        missed = list(range(result.missed.first, result.missed.last + 1, every_s * SECOND_US))
        assert len(missed) == result.missed.count
    assert missed + list(result.catch_up) + list(result.live) == instants
    assert all(instant >= now - grace_s * SECOND_US for instant in result.live)
    assert all(instant < now - grace_s * SECOND_US for instant in (*missed, *result.catch_up))
    assert result.next_fire_at > now or len(result.live) == LIVE_FIRES_PER_PLAN


@given(
    late_by_s=st.integers(0, 600),
    grace_s=st.integers(0, 600),
    spread_s=st.integers(0, 300),
    jitter_s=st.integers(0, 300),
    policy=st.sampled_from(
        [MisfirePolicy(), MisfirePolicy("run_latest"), MisfirePolicy("catch_up", max=2, window_s=100)]
    ),
)
def test_where_nothing_is_late_as_planned_moved_starts_change_nothing(
    late_by_s: int, grace_s: int, spread_s: int, jitter_s: int, policy: MisfirePolicy
) -> None:
    """The decisions that services/planning.py shares between jobs whose starts are moved."""
    now = minute(0) + min(late_by_s, grace_s) * SECOND_US
    moved = MovedStart(1, spread_s * SECOND_US, jitter_s * SECOND_US)
    plans = [
        plan_misfires(MINUTELY, due_at=minute(0), now=now, grace_us=grace_s * SECOND_US, policy=policy, moved=how_moved)
        for how_moved in (None, moved)
    ]
    assert plans[0] == plans[1]
