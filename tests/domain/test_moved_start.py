"""Spread and jitter: the same on every node, inside their bounds, evenly drawn; what they do to missed fires."""

from __future__ import annotations

from statistics import fmean
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from onbeat.domain.misfire import plan_misfires
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, MisfirePolicy, QueueTarget
from onbeat.domain.moved_start import MovedStart, moved_start
from onbeat.domain.timetable import compile_timetable

T0 = 1_800_000_000 * SECOND_US
JOBS = st.integers(0, 2**63 - 1)


def rule(job_id: int, *, spread_s: int = 0, jitter_s: int = 0) -> MovedStart:
    definition = Definition(
        schedules=(EverySchedule(60, 0),), target=QueueTarget("q"), spread_s=spread_s, jitter_s=jitter_s
    )
    return moved_start(definition, job_id=job_id)


def test_moves_are_fixed_for_ever() -> None:
    """A change of the hash would move every fire of every job at an upgrade."""
    assert rule(1, spread_s=600).start_of(T0) - T0 == 134_969_521
    assert rule(1, jitter_s=60).start_of(T0) - T0 == 20_460_423


@given(JOBS, st.integers(0, 86_400), st.integers(0, 86_400), st.integers(0, 2**53))
def test_moves_stay_inside_their_bounds_and_repeat(
    job_id: int, spread_s: int, jitter_s: int, scheduled_at: int
) -> None:
    moved = rule(job_id, spread_s=spread_s, jitter_s=jitter_s)
    later = moved.start_of(scheduled_at) - scheduled_at
    assert 0 <= later <= moved.longest_us <= (spread_s + jitter_s) * SECOND_US
    assert later == rule(job_id, spread_s=spread_s, jitter_s=jitter_s).start_of(scheduled_at) - scheduled_at


def test_spread_is_one_length_per_job_and_jitter_one_per_fire() -> None:
    spread = {rule(5, spread_s=600).start_of(T0 + day) - T0 - day for day in range(100)}
    assert len(spread) == 1
    jitter = [rule(5, jitter_s=600).start_of(T0 + day) - T0 - day for day in range(2_000)]
    assert len(set(jitter)) == 2_000
    assert 280 < fmean(jitter) / SECOND_US < 320
    jobs = [rule(job, spread_s=600).start_of(T0) - T0 for job in range(2_000)]
    assert 280 < fmean(jobs) / SECOND_US < 320


@given(
    job_id=JOBS,
    every_s=st.integers(1, 200),
    behind_s=st.integers(0, 3_000),
    grace_s=st.integers(0, 300),
    spread_s=st.integers(0, 300),
    jitter_s=st.integers(0, 600),
    kind=st.sampled_from(["skip", "run_latest", "catch_up"]),
    most=st.integers(1, 20),
    window_s=st.integers(1, 5_000),
)
def test_every_due_instant_is_in_exactly_one_part_and_ages_from_its_moved_start(
    job_id: int,
    every_s: int,
    behind_s: int,
    grace_s: int,
    spread_s: int,
    jitter_s: int,
    kind: Literal["skip", "run_latest", "catch_up"],
    most: int,
    window_s: int,
) -> None:
    moved = rule(job_id, spread_s=spread_s, jitter_s=jitter_s)
    anchor_at = T0 - T0 % (every_s * SECOND_US)
    timetable = compile_timetable((EverySchedule(every_s, anchor_at),), job_id=job_id)
    now = anchor_at + behind_s * SECOND_US
    result = plan_misfires(
        timetable,
        due_at=anchor_at,
        now=now,
        grace_us=grace_s * SECOND_US,
        policy=MisfirePolicy(kind, max=most, window_s=window_s),
        moved=moved,
    )
    assert result.next_fire_at is not None
    missed = list(result.missed_alone)
    if result.missed is not None:
        missed += range(result.missed.first, result.missed.last + 1, every_s * SECOND_US)
        assert len(missed) == result.missed.count + len(result.missed_alone)
    parts = sorted([*missed, *result.catch_up, *result.live])
    assert parts == list(range(anchor_at, result.next_fire_at, every_s * SECOND_US))
    for instant in parts:
        is_live = moved.start_of(instant) + grace_s * SECOND_US >= now
        assert is_live == (instant in result.live)
    assert list(result.catch_up) == sorted(result.catch_up)
    overdue = sorted([*missed, *result.catch_up])
    wanted = {"skip": 0, "run_latest": 0 if result.live else 1, "catch_up": max(most - len(result.live), 0)}[kind]
    kept = overdue[-wanted:] if wanted else []
    if kind == "catch_up":
        kept = [instant for instant in kept if instant >= now - window_s * SECOND_US]
    assert list(result.catch_up) == kept
