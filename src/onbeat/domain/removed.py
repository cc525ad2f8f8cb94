"""What a rule took away: instants that a schedule names and that do not fire, or fire at another time.

For the preview only. The dispatcher never asks; it sees what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import count, islice
from typing import Final

import msgspec

from onbeat.domain.instants import format_instant
from onbeat.domain.model import SECOND_US, AfterFinishSchedule, Bounds, CronSchedule, RruleSchedule, Schedule
from onbeat.domain.offsets import DAY_S, Stretch, format_local, next_change, offset_at
from onbeat.domain.timetable import compile_timetable, walk_of
from onbeat.domain.walk import WallClockWalk

REMOVED_SHOWN: Final = 100
"""At most so many in one preview: a rule can take away thousands."""

CHANGES_WITHIN_S: Final = 400 * DAY_S
"""How far ahead changes of the clock are looked at: both of a year, wherever one begins."""


@dataclass(frozen=True, slots=True)
class RemovedInstant:
    """An instant that a schedule names, and what became of it."""

    second: int  # UTC: where it would stand in the list of instants
    schedule: int  # its schedule's place
    at: int | None  # µs UTC; None: a local time that does not exist
    local: str  # like 'Sun 2025-03-09 02:30'
    moved_to: int | None  # µs UTC; None: it does not fire
    note: str


def removed_instants(
    schedules: tuple[Schedule, ...], *, job_id: int | None, after: int, until: int | None, wanted: int
) -> tuple[RemovedInstant, ...]:
    """What rules took away in `(after, until]` (µs UTC), by time; the first REMOVED_SHOWN.

    `until` None: the schedules end before the preview is full. Then the `wanted` instants that would have followed
    count too, and changes of the clock for the next 400 days.
    """
    found = [
        stream
        for index, schedule in enumerate(schedules)
        if not isinstance(schedule, AfterFinishSchedule)
        for stream in (
            _by_bounds(schedule, index, job_id=job_id, after=after, until=until, wanted=wanted),
            _by_changes(schedule, index, job_id=job_id, after=after, until=until),
        )
    ]
    return tuple(islice(merge(*found, key=lambda removed: (removed.second, removed.schedule)), REMOVED_SHOWN))


def _by_bounds(
    schedule: Schedule, index: int, *, job_id: int | None, after: int, until: int | None, wanted: int
) -> Iterator[RemovedInstant]:
    """Before `start_at`, after `end_at` or the last of `max_fires`."""
    timezone = schedule.timezone if isinstance(schedule, CronSchedule | RruleSchedule) else "UTC"
    free = compile_timetable(
        (msgspec.structs.replace(schedule, **dict.fromkeys(Bounds.__struct_fields__)),), job_id=job_id
    )

    def describe(instant: int, note: str) -> RemovedInstant:
        second = instant // SECOND_US
        offset = offset_at(timezone, second)
        return RemovedInstant(second, index, instant, format_local(second + offset, offset=offset), None, note)

    start_at, ends_at = schedule.start_at, schedule.ends_at
    if start_at is not None:
        instant = free.next_after(after)
        while instant is not None and instant < start_at and (until is None or instant <= until):
            yield describe(instant, f"before start_at, {format_instant(start_at)}")
            instant = free.next_after(instant)
    if ends_at is not None:
        if ends_at == schedule.end_at:
            note = f"after end_at, {format_instant(ends_at)}"
        else:
            note = f"max_fires is {schedule.max_fires}; the last one is at {format_instant(ends_at)}"
        instant = free.next_after(max(after, ends_at))
        following = count()
        while instant is not None and (next(following) < wanted if until is None else instant <= until):
            yield describe(instant, note)
            instant = free.next_after(instant)


def _by_changes(
    schedule: Schedule, index: int, *, job_id: int | None, after: int, until: int | None
) -> Iterator[RemovedInstant]:
    """What changes of the clock take away or move."""
    # Without its calendars, which tell for themselves what they keep out.
    plan = compile_timetable((msgspec.structs.replace(schedule, calendars=None),), job_id=job_id).plans[0]
    walk = walk_of(plan)
    if walk is None:
        return
    is_asked_for = isinstance(schedule, CronSchedule) and schedule.dst_gap is not None
    after_s = max(after // SECOND_US, 0)
    last = after_s + CHANGES_WITHIN_S if until is None else until // SECOND_US
    if schedule.start_at is not None:
        after_s = max(after_s, schedule.start_at // SECOND_US - 1)
    if schedule.ends_at is not None:
        last = min(last, schedule.ends_at // SECOND_US)
    # A change takes away instants up to a day before and after itself.
    looks_until = last + DAY_S
    looks_from = max(after_s - DAY_S, 0)
    change = next_change(walk.timezone, looks_from, within_s=looks_until - looks_from)
    while change is not None:
        if after_s < change.start <= last:
            yield from _in_gap(walk, change, index, is_asked_for=is_asked_for)
        yield from _in_overlap(walk, change, index, after=after_s, last=last)
        change = next_change(walk.timezone, change.start, within_s=looks_until - change.start)


def _in_gap(walk: WallClockWalk, change: Stretch, index: int, *, is_asked_for: bool) -> Iterator[RemovedInstant]:
    is_shifted = walk.gap == "shift"
    if not (is_shifted or is_asked_for or walk.is_fixed_time):
        return  # it follows elapsed time, in which nothing is missing
    moved_to = change.start * SECOND_US if is_shifted else None
    outcome = "it fires at the first moment after the gap" if is_shifted else "dst_gap is skip, so it does not fire"
    note = f"does not exist in {walk.timezone}; {outcome}"
    for mark in _marks(walk, change.start + change.before, change.start + change.offset):
        yield RemovedInstant(change.start, index, None, format_local(mark), moved_to, note)


def _in_overlap(walk: WallClockWalk, change: Stretch, index: int, *, after: int, last: int) -> Iterator[RemovedInstant]:
    if walk.overlap == "both":
        return
    offset = change.offset if walk.overlap == "first" else change.before
    note = f"this local time comes twice in {walk.timezone}; it fires the {walk.overlap} time only"
    for mark in _marks(walk, change.start + change.offset, change.start + change.before):
        second = mark - offset
        if after < second <= last:
            yield RemovedInstant(second, index, second * SECOND_US, format_local(mark, offset=offset), None, note)


def _marks(walk: WallClockWalk, low: int, high: int) -> Iterator[int]:
    mark = walk.mark_between(low, high)
    while mark is not None:
        yield mark
        mark = walk.mark_between(mark + 1, high)
