"""Backfills: which instants of the past become runs after all, and what that leaves of the marks they lay in. Pure.

Moments are µs UTC. The rules stand in `docs/backfill.md`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from onbeat.domain.blackout import Blackout
from onbeat.domain.misfire import InstantRange, Instants

MOST_INSTANTS: Final = 100_000
"""In the range of one backfill, and so also the most that it can create."""

MAX_RATE_PER_S: Final = 50
DEFAULT_RATE_PER_S: Final = 1


class BackfillOrder(StrEnum):
    """Which instants come first."""

    OLDEST = "oldest"
    NEWEST = "newest"


class BackfillState(StrEnum):
    """How far a backfill is."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Span:
    """Moments `start <= t < end`."""

    start: int
    end: int


def first_of(timetable: Instants, span: Span, *, order: BackfillOrder, number: int) -> tuple[int, ...]:
    """The first `number` planned instants of a span, in the order in which they are made up for."""
    if span.end <= span.start:
        return ()
    if order is BackfillOrder.NEWEST:
        return timetable.newest(number, span.start - 1, span.end - 1)[::-1]
    found: list[int] = []
    instant = timetable.next_after(span.start - 1)
    while instant is not None and instant < span.end and len(found) < number:
        found.append(instant)
        instant = timetable.next_after(instant)
    return tuple(found)


def left_after(span: Span, last: int, *, order: BackfillOrder) -> Span:
    """What is left of a span once everything up to `last` has been looked at."""
    return Span(last + 1, span.end) if order is BackfillOrder.OLDEST else Span(span.start, last)


def adds_up(timetable: Instants, mark: InstantRange) -> bool:
    """True where a collapsed mark says what its timetable says: the same ends, the same number of instants."""
    return (
        timetable.next_after(mark.first - 1) == mark.first
        and timetable.latest(mark.first - 1, mark.last) == mark.last
        and timetable.count(mark.first - 1, mark.last) == mark.count
    )


def cut_out(timetable: Instants, mark: InstantRange, instants: Sequence[int]) -> tuple[InstantRange, ...]:
    """What is left of a mark that adds up without some of its instants: the pieces between them, oldest first."""
    pieces: list[InstantRange] = []
    after = mark.first - 1
    for end in [*sorted(instants), mark.last + 1]:
        first, last = timetable.next_after(after), timetable.latest(after, end - 1)
        if first is not None and last is not None:
            pieces.append(InstantRange(first, last, timetable.count(after, end - 1)))
        after = end
    return tuple(pieces)


def blacked_out(blackouts: Sequence[Blackout], instants: Sequence[int]) -> frozenset[int]:
    """Those of the instants that lie in a window."""
    ascending = sorted(instants)
    if not ascending:
        return frozenset()
    return frozenset(
        instant
        for blackout in blackouts
        for window in blackout.windows(after=ascending[0] - 1, until=ascending[-1])
        for instant in ascending[bisect_left(ascending, window.start) : bisect_left(ascending, window.end)]
    )
