"""Which instants calendars keep out of a plan, told to people: by whom, how many, and where they go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from onbeat.domain.bounds import BoundedPlan, Plan
from onbeat.domain.calendar_plan import FilteredPlan, RolledPlan
from onbeat.domain.model import SECOND_US
from onbeat.domain.offsets import DAY_S, offset_at
from onbeat.domain.timetable import walk_of

MOST_TOLD: Final = 1_000
"""Entries that are told of one schedule."""

# Local days begin on quarters of an hour UTC, so inside one the calendars do not change their mind.
_PIECE_S: Final = 900


@dataclass(frozen=True, slots=True)
class KeptOut:
    """Instants of one local day that a calendar keeps out: from `at` to `until`, both planned, `count` in all."""

    at: int  # µs UTC
    until: int
    count: int
    calendar: str
    moved_to: int | None  # where the first of them goes, at the same local time; None: they fall away


def kept_out(plan: Plan, *, after: int, until: int) -> list[KeptOut]:
    """What a plan's calendars, if it has any, keep out in `(after, until]` (µs UTC), at most MOST_TOLD entries."""
    behind = plan
    while isinstance(behind, BoundedPlan):
        behind = behind.plan
    if not isinstance(behind, FilteredPlan | RolledPlan):
        return []
    walk = walk_of(plan)
    timezone = "UTC" if walk is None else walk.timezone
    told: list[KeptOut] = []
    for found in _pieces(plan, behind, max(after // SECOND_US + 1, 0), until // SECOND_US):
        last = told[-1] if told else None
        if (
            last is not None
            and last.calendar == found.calendar
            and _local_day(timezone, last.at) == _local_day(timezone, found.at)
        ):
            told[-1] = replace(last, until=found.until, count=last.count + found.count)
        elif len(told) >= MOST_TOLD:
            break
        else:
            told.append(found)
    return told


def _pieces(whole: Plan, plan: FilteredPlan | RolledPlan, second: int, last: int) -> Iterator[KeptOut]:
    while second <= last:
        closed = plan.gate.first_closed(second, before=last + 1)
        found = None if closed is None else plan.plan.first_from(closed)
        if found is None or found > last:
            return
        calendar = plan.gate.closed_by(found)
        if calendar is None:
            second = found + 1
            continue
        second = min((found // _PIECE_S + 1) * _PIECE_S, last + 1)
        start = found // DAY_S * DAY_S
        bits = plan.plan.day_bits(found // DAY_S) >> found - start & (1 << second - found) - 1
        moved_to = plan.moved_to(found) if isinstance(plan, RolledPlan) else None
        if moved_to is not None and whole.first_from(moved_to) != moved_to:
            moved_to = None  # after end_at, or before start_at
        yield KeptOut(
            at=found * SECOND_US,
            until=(found + bits.bit_length() - 1) * SECOND_US,
            count=bits.bit_count(),
            calendar=calendar,
            moved_to=None if moved_to is None else moved_to * SECOND_US,
        )


def _local_day(timezone: str, instant: int) -> int:
    second = instant // SECOND_US
    return (second + offset_at(timezone, second)) // DAY_S
