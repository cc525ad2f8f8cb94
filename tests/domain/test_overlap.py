"""What a fire does when its job is busy, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onbeat.domain.overlap import (
    FIRST_FORCED_LANE,
    Admission,
    Admitted,
    Lanes,
    OverlapPolicy,
    Skipped,
    Waits,
    forced_lane,
)
from onbeat.domain.states import RunState, Trigger


@dataclass(frozen=True)
class Hold:
    lane: int
    scheduled_at: int
    state: RunState = RunState.RUNNING
    trigger: Trigger = Trigger.SCHEDULE
    attempt: int = 1
    ready_at: int = 0
    is_brought_back: bool = False


RUNNING = Hold(0, 100)
RETRYING = Hold(0, 100, state=RunState.PENDING, attempt=2, ready_at=900)
UNSTARTED = Hold(0, 100, state=RunState.PENDING, attempt=0, ready_at=7)
RECOVERING = Hold(0, 50, state=RunState.PENDING, attempt=0, trigger=Trigger.CATCH_UP, ready_at=10**9)
RECOVERY_RUNNING = Hold(0, 50, trigger=Trigger.CATCH_UP)
BROUGHT_BACK = Hold(0, 50, state=RunState.PENDING, attempt=3, ready_at=10**9, is_brought_back=True)
UNSTARTED_MANUAL = Hold(0, 100, state=RunState.PENDING, attempt=0, trigger=Trigger.MANUAL)


@pytest.mark.parametrize(
    ("policy", "holds", "waiting", "trigger", "expected"),
    [
        ("queue", (), None, Trigger.SCHEDULE, Admitted(0)),
        ("skip", (), None, Trigger.SCHEDULE, Admitted(0)),
        ("replace", (), None, Trigger.CATCH_UP, Admitted(0)),
        ("queue", (RUNNING,), None, Trigger.SCHEDULE, Waits(100)),
        ("queue", (RUNNING,), 150, Trigger.SCHEDULE, Waits(100, replaces=150)),
        ("queue", (RETRYING,), None, Trigger.SCHEDULE, Waits(100)),
        ("queue", (UNSTARTED,), None, Trigger.SCHEDULE, Admitted(0, ready_at=7, replaces=100)),
        ("queue", (UNSTARTED,), 150, Trigger.SCHEDULE, Waits(100, replaces=150)),
        ("queue", (UNSTARTED_MANUAL,), None, Trigger.SCHEDULE, Waits(100)),
        ("skip", (RUNNING,), None, Trigger.SCHEDULE, Skipped(100)),
        ("skip", (RETRYING,), None, Trigger.SCHEDULE, Skipped(100)),
        ("allow", (RUNNING,), None, Trigger.SCHEDULE, Skipped(100)),
        ("replace", (RUNNING,), None, Trigger.SCHEDULE, Waits(100, cancels=100)),
        ("replace", (RUNNING,), 150, Trigger.SCHEDULE, Waits(100, replaces=150, cancels=100)),
        ("replace", (UNSTARTED,), None, Trigger.SCHEDULE, Admitted(0, ready_at=7, replaces=100)),
        *[
            (policy, (unbegun,), waiting, trigger, Admitted(0, displaces=50))
            for unbegun in (RECOVERING, BROUGHT_BACK)
            for policy in ("queue", "skip", "allow", "replace")
            for waiting in (None, 150)
            for trigger in (Trigger.SCHEDULE, Trigger.MANUAL)
        ],
        ("skip", (RECOVERY_RUNNING,), None, Trigger.SCHEDULE, Skipped(50)),
        ("skip", (RECOVERING,), None, Trigger.CATCH_UP, Waits(50)),
        ("skip", (RECOVERING,), None, Trigger.BACKFILL, Waits(50)),
        *[
            (policy, (hold,), 150, trigger, Waits(100))
            for policy in ("queue", "skip", "allow", "replace")
            for hold in (RUNNING, RETRYING, UNSTARTED)
            for trigger in (Trigger.CATCH_UP, Trigger.BACKFILL, Trigger.MANUAL)
        ],
    ],
)
def test_one_lane(
    policy: OverlapPolicy, holds: tuple[Hold, ...], waiting: int | None, trigger: Trigger, expected: Admission
) -> None:
    lanes = Lanes(max_running=1, policy=policy, holds=holds, waiting=waiting)
    assert lanes.admit(200, trigger) == expected


def test_the_lowest_free_lane_is_taken() -> None:
    lanes = Lanes(max_running=4, policy="allow", holds=(Hold(0, 1), Hold(2, 2)), waiting=None)
    assert [lanes.admit(200 + n, Trigger.SCHEDULE) for n in range(3)] == [Admitted(1), Admitted(3), Skipped(1)]


def test_lanes_above_a_lowered_limit_still_count() -> None:
    holds = tuple(Hold(lane, lane + 1) for lane in (3, 4))
    lanes = Lanes(max_running=1, policy="skip", holds=holds, waiting=None)
    assert lanes.admit(200, Trigger.SCHEDULE) == Skipped(4)


def test_of_several_fires_at_once_the_first_runs_and_the_newest_waits() -> None:
    lanes = Lanes(max_running=1, policy="queue", holds=(), waiting=None)
    assert [lanes.admit(at, Trigger.SCHEDULE) for at in (10, 20, 30)] == [
        Admitted(0),
        Waits(10),
        Waits(10, replaces=20),
    ]


def test_forced_runs_have_lanes_of_their_own_and_stand_in_nobodys_way() -> None:
    forced = [Hold(FIRST_FORCED_LANE + number, 300 + number) for number in range(100)]
    assert forced_lane([RUNNING]) == FIRST_FORCED_LANE
    assert forced_lane([RUNNING, forced[0], forced[2]]) == FIRST_FORCED_LANE + 1
    assert forced_lane(forced) is None
    lanes = Lanes(max_running=1, policy="skip", holds=forced, waiting=None)
    assert lanes.admit(200, Trigger.SCHEDULE) == Admitted(0)
