"""A plan that begins and ends: `start_at` and `end_at` around the instants of any schedule. Whole seconds UTC."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from onbeat.domain.offsets import DAY_S


class Plan(Protocol):
    """The instants of one schedule."""

    @property
    def repeats_daily(self) -> bool:
        """True where many days share a key, so that their bitmaps are worth keeping for a while."""
        ...

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: nothing is left up to the end of year 9999."""
        ...

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        ...

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day: bit k is its second k."""
        ...


class BoundedPlan:
    """The instants of `plan` in `first..last`."""

    __slots__ = ("first", "last", "plan", "repeats_daily")

    def __init__(self, plan: Plan, *, first: int, last: int) -> None:
        self.plan = plan
        self.first = first
        self.last = last
        self.repeats_daily = plan.repeats_daily

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: nothing is left."""
        found = self.plan.first_from(max(second, self.first))
        return found if found is not None and found <= self.last else None

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        start = day * DAY_S
        if start + DAY_S <= self.first or start > self.last:
            return None
        key = self.plan.day_key(day)
        if key is None or (self.first <= start and start + DAY_S - 1 <= self.last):
            return key
        return "bound", day  # cut: like no other

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day."""
        if day * DAY_S + DAY_S <= self.first or day * DAY_S > self.last:
            return 0
        return cut(self.plan.day_bits(day), day, self.first, self.last)


def cut(bits: int, day: int, first: int, last: int) -> int:
    """A day's bitmap without the seconds outside `first..last`."""
    low = max(first - day * DAY_S, 0)
    high = min(last - day * DAY_S + 1, DAY_S)
    return (bits & (1 << high) - 1) >> low << low if high > low else 0
