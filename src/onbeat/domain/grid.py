"""Intervals and one shots as plans: instants that need no calendar. Times are whole seconds UTC."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from onbeat.domain.offsets import DAY_S, LAST_SECOND


class IntervalGrid:
    """`anchor + k * every` for k >= 0 up to `last`: elapsed time, so that no change of a clock and no restart moves it.

    Bounds are part of the grid, and not around it, so that a lone interval is counted by arithmetic.
    """

    __slots__ = ("anchor", "every", "last", "repeats_daily")

    def __init__(self, *, anchor: int, every: int, first: int = 0, last: int = LAST_SECOND) -> None:
        self.anchor = anchor + max(0, -(-(first - anchor) // every)) * every
        self.every = every
        self.last = last
        self.repeats_daily = DAY_S % every == 0

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: it lies past the last."""
        steps = max(0, -(-(second - self.anchor) // self.every))
        instant = self.anchor + steps * self.every
        return instant if instant <= self.last else None

    def last_until(self, second: int) -> int | None:
        """The last instant `<= second`, or None."""
        second = min(second, self.last)
        if second < self.anchor:
            return None
        return second - (second - self.anchor) % self.every

    def count(self, first: int, last: int) -> int:
        """How many instants there are in `first..last`."""
        low, high = self.first_from(first), self.last_until(last)
        return 0 if low is None or high is None or high < low else (high - low) // self.every + 1

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        first = self.first_from(day * DAY_S)
        if first is None or first >= (day + 1) * DAY_S:
            return None
        return first - day * DAY_S if self.last >= (day + 1) * DAY_S - 1 else ("last", day)

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day."""
        first = self.first_from(day * DAY_S)
        if first is None or first >= (day + 1) * DAY_S:
            return 0
        shift = first - day * DAY_S
        shown = min(self.last - day * DAY_S + 1, DAY_S)
        return (_every_bits(self.every) << shift) & ((1 << shown) - 1)


class OneShot:
    """A single instant."""

    repeats_daily: Final = True

    __slots__ = ("at",)

    def __init__(self, *, at: int) -> None:
        self.at = at

    def first_from(self, second: int) -> int | None:
        """The instant, if it is `>= second`."""
        return self.at if second <= self.at else None

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        return self.at % DAY_S if self.at // DAY_S == day else None

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day."""
        return 1 << self.at % DAY_S if self.at // DAY_S == day else 0


@lru_cache(maxsize=64)
def _every_bits(every: int) -> int:
    """Bits 0, every, 2 * every … of a day, doubled up rather than set one by one."""
    bits, covered = 1, every
    while covered < DAY_S:
        bits |= bits << covered
        covered *= 2
    return bits & ((1 << DAY_S) - 1)
