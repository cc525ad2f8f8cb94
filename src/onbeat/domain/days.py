"""Which days a cron expression matches: Gregorian arithmetic on day numbers (0 is 1970-01-01).

A month is wholly described by its length and by the weekday of its first day. There are 28 such shapes and each
occurs within the 400 years after which the calendar repeats; so 28 bitmaps answer every question, including
whether the expression can ever match.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Final

from onbeat.domain.cron_fields import LAST, CronField

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
LAST_DAY: Final = date.max.toordinal() - _EPOCH_ORDINAL
"""9999-12-31."""

_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SHORTEST, _LONGEST = 28, 31
_SUNDAY, _SATURDAY = 0, 6


class DayRule:
    """The day-of-month, month and day-of-week fields together.

    Vixie cron's rule: with both day fields restricted, a day matches when either does. Debian's test for "restricted"
    is textual: a field that starts with `*`, such as `*/2`, is not, and then both must match.
    """

    __slots__ = ("_masks", "_months", "both_must_match")

    def __init__(self, days: CronField, months: CronField, weekdays: CronField) -> None:
        self.both_must_match = days.starts_with_star or weekdays.starts_with_star
        self._months = frozenset(months.values)
        # Bit d of a mask stands for day d of a month of that shape.
        self._masks = tuple(
            _month_mask(days, weekdays, length, first, both=self.both_must_match)
            for length in range(_SHORTEST, _LONGEST + 1)
            for first in range(7)
        )

    @property
    def can_match(self) -> bool:
        """True where some day of some year matches."""
        lengths = {length for month in self._months for length in ((28, 29) if month == 2 else (_LENGTHS[month],))}
        return any(self._masks[(length - _SHORTEST) * 7 + first] for length in lengths for first in range(7))

    def matches(self, day: int) -> bool:
        """True where day number `day` matches. False past the end of year 9999."""
        if day > LAST_DAY:
            return False
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        return at.month in self._months and bool(self._mask(at.year, at.month, day - at.day + 1) >> at.day & 1)

    def next(self, day: int) -> int | None:
        """The first matching day number `>= day`. None: there is none before year 10000."""
        if day > LAST_DAY:
            return None
        at = date.fromordinal(day + _EPOCH_ORDINAL)
        year, month, skipped = at.year, at.month, at.day
        first = day - at.day + 1
        while year <= 9999:
            if month in self._months:
                left = self._mask(year, month, first) >> skipped
                if left:
                    return first + skipped - 1 + (left & -left).bit_length() - 1
            first += month_length(year, month)
            skipped = 0
            year, month = (year + 1, 1) if month == 12 else (year, month + 1)
        return None

    def _mask(self, year: int, month: int, first: int) -> int:
        # Day 0 was a Thursday; weekdays count from Sunday 0.
        return self._masks[(month_length(year, month) - _SHORTEST) * 7 + (first + 4) % 7]


@lru_cache(maxsize=4096)
def day_rule(days: CronField, months: CronField, weekdays: CronField) -> DayRule:
    """The rule of three fields; most expressions share a few."""
    return DayRule(days, months, weekdays)


def month_length(year: int, month: int) -> int:
    """28 to 31."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return _LENGTHS[month]


def _month_mask(days: CronField, weekdays: CronField, length: int, first: int, *, both: bool) -> int:
    whole = (1 << length + 1) - 2
    by_day = sum(1 << day for day in days.values)
    if days.last_day:
        by_day |= 1 << length
    if days.last_weekday:
        weekday_of_last = (first + length - 1) % 7
        by_day |= 1 << length - {_SATURDAY: 1, _SUNDAY: 2}.get(weekday_of_last, 0)
    by_weekday = 0
    for day in range(1, length + 1):
        weekday = (first + day - 1) % 7
        is_last = day + 7 > length
        if (
            weekday in weekdays.values
            or (weekday, (day + 6) // 7) in weekdays.nth_weekdays
            or (is_last and (weekday, LAST) in weekdays.nth_weekdays)
        ):
            by_weekday |= 1 << day
    return (by_day & by_weekday if both else by_day | by_weekday) & whole
