"""Which of the due instants still run, which are caught up and which were missed. Design §3, "Missed fires".

Nothing here walks the missed instants: they are counted and cut off by the timetable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from onbeat.domain.model import SECOND_US, MisfirePolicy
from onbeat.domain.moved_start import MovedStart

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
    missed_alone: tuple[int, ...] = ()  # missed too, and maybe between live ones, which were to start later than they


def plan_misfires(
    timetable: Instants,
    *,
    due_at: int,
    now: int,
    grace_us: int,
    policy: MisfirePolicy,
    moved: MovedStart | None = None,
) -> MisfirePlan:
    """Split the instants from `due_at` (a planned one, `<= now`) to `now`.

    1. Instants that are at most `grace_us` old are live; where starts are `moved`, the age counts from the start.
    2. Of the older ones, `run_latest` keeps the newest if nothing is live; `catch_up` keeps the newest `max` inside
       its window, live ones included in that number; `skip` keeps none.
    3. What is left is one missed range. Because the kept ones are the newest, the range has no hole.
    """
    on_time_from = now - grace_us - (moved.longest_us if moved is not None else 0)
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
    too_late: list[int] = []
    if moved is not None:
        too_late = [instant for instant in live if moved.start_of(instant) + grace_us < now]
        live = [instant for instant in live if moved.start_of(instant) + grace_us >= now]
    wanted = _wanted(policy, live_count=len(live))
    oldest_wanted = now - policy.window_s * SECOND_US if policy.policy == "catch_up" else due_at
    kept_alone = [instant for instant in too_late if instant >= oldest_wanted][-wanted:] if wanted else []
    missed_alone = tuple(instant for instant in too_late if instant not in kept_alone)
    if due_at >= on_time_from:
        return MisfirePlan(
            missed=None,
            catch_up=tuple(kept_alone),
            live=tuple(live),
            next_fire_at=instant,
            missed_alone=missed_alone,
        )

    overdue_until = on_time_from - 1
    overdue = 1 if is_alone else timetable.count(due_at - 1, overdue_until)
    kept: tuple[int, ...] = ()
    if wanted > len(kept_alone):
        kept = timetable.newest(wanted - len(kept_alone), max(due_at, oldest_wanted) - 1, overdue_until)
    missed_count = overdue - len(kept)
    missed: InstantRange | None = None
    if missed_count == 1:
        missed = InstantRange(first=due_at, last=due_at, count=1)
    elif missed_count > 1:
        last = timetable.latest(due_at - 1, kept[0] - 1 if kept else overdue_until)
        missed = InstantRange(first=due_at, last=due_at if last is None else last, count=missed_count)
    return MisfirePlan(
        missed=missed,
        catch_up=(*kept, *kept_alone),
        live=tuple(live),
        next_fire_at=instant,
        missed_alone=missed_alone,
    )


def _wanted(policy: MisfirePolicy, *, live_count: int) -> int:
    """How many of the overdue instants the policy wants to run."""
    match policy.policy:
        case "run_latest":
            return 0 if live_count else 1
        case "catch_up":
            return max(policy.max - live_count, 0)
        case _:
            return 0
