"""Which of the due instants still run, which are caught up and which were missed. Design §3, "Missed fires".

Nothing here walks the missed instants: they are counted and cut off by the timetable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from onbeat.domain.model import SECOND_US, MisfirePolicy

LIVE_FIRES_PER_PLAN = 128
"""How many instants inside grace one plan takes in; the rest are still due and follow in the next plan."""


class Instants(Protocol):
    """The part of a timetable that misfires need; all of it without iterating over instants."""

    def next_after(self, instant: int) -> int | None: ...

    def count(self, after: int, until: int) -> int: ...

    def newest(self, number: int, after: int, until: int) -> tuple[int, ...]: ...

    def latest(self, after: int, until: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class InstantRange:
    """`count` planned instants, the first and the last of them inclusive."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class MisfirePlan:
    """A partition of the instants from the clock's due one up to `next_fire_at`, exclusive."""

    missed: InstantRange | None
    catch_up: tuple[int, ...]  # oldest first
    live: tuple[int, ...]  # inside grace, oldest first
    next_fire_at: int | None


def plan_misfires(timetable: Instants, *, due_at: int, now: int, grace_us: int, policy: MisfirePolicy) -> MisfirePlan:
    """Split the instants from `due_at` (a planned one, `<= now`) to `now`.

    1. Instants that are at most `grace_us` old are live.
    2. Of the older ones, `run_latest` keeps the newest if nothing is live; `catch_up` keeps the newest `max` inside
       its window, live ones included in that number; `skip` keeps none.
    3. What is left is one missed range. Because the kept ones are the newest, the range has no hole.
    """
    on_time_from = now - grace_us
    live: list[int] = []
    instant: int | None = due_at
    is_alone = False  # the due instant is the only overdue one, as with most jobs after a short outage
    if due_at < on_time_from:
        instant = timetable.next_after(due_at)
        is_alone = instant is None or instant >= on_time_from
        if not is_alone:
            instant = timetable.next_after(on_time_from - 1)
    while instant is not None and instant <= now and len(live) < LIVE_FIRES_PER_PLAN:
        live.append(instant)
        instant = timetable.next_after(instant)
    if due_at >= on_time_from:
        return MisfirePlan(missed=None, catch_up=(), live=tuple(live), next_fire_at=instant)

    overdue_until = on_time_from - 1
    overdue = 1 if is_alone else timetable.count(due_at - 1, overdue_until)
    kept: tuple[int, ...] = ()
    if policy.policy == "run_latest" and not live:
        kept = timetable.newest(1, due_at - 1, overdue_until)
    elif policy.policy == "catch_up" and policy.max > len(live):
        oldest_wanted = max(due_at - 1, now - policy.window_s * SECOND_US - 1)
        kept = timetable.newest(policy.max - len(live), oldest_wanted, overdue_until)
    missed_count = overdue - len(kept)
    missed: InstantRange | None = None
    if missed_count == 1:
        missed = InstantRange(first=due_at, last=due_at, count=1)
    elif missed_count > 1:
        last = timetable.latest(due_at - 1, kept[0] - 1 if kept else overdue_until)
        missed = InstantRange(first=due_at, last=due_at if last is None else last, count=missed_count)
    return MisfirePlan(missed=missed, catch_up=kept, live=tuple(live), next_fire_at=instant)
