"""The local instants that a recurrence rule names: computed year by year, never walked from its beginning.

A year is one of 28 shapes (its length, the weekday of 1 January, the length of the year before), which is all that
the days of a rule depend on: so they are found once for each shape, as a bitmap, and a year costs some µs. All
seconds here are local; what they become in UTC is the walk's to say.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import lru_cache
from itertools import groupby
from typing import Final

from onbeat.domain.days import LAST_DAY, month_length
from onbeat.domain.errors import DefinitionError
from onbeat.domain.offsets import DAY_S
from onbeat.domain.rrule import DayFilter, RecurrenceRule

SEARCHED_YEARS: Final = 400
"""The calendar repeats after them. A rule with a longer rest has come to its end."""

_SEARCHED_WITHOUT_INTERVAL = 48  # every shape of two years in a row comes again within 40

COUNTED_YEARS: Final = 100
"""COUNT must be reached in so many."""

_KEPT_YEARS = 4
_LAST_YEAR = 9999
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_THURSDAY = 3  # day 0 was one


class Recurrence:
    """The local seconds of one rule, from `start` on."""

    __slots__ = ("_first", "_kept", "_last", "_last_day", "_start_period", "rule")

    def __init__(self, rule: RecurrenceRule, *, start: int, last: int | None) -> None:
        self.rule = rule
        self._first = start
        self._last = LAST_DAY * DAY_S + DAY_S - 1 if last is None else last
        # Replaced as a whole when it is full, since threads share it.
        self._kept: dict[int, array[int]] = {}
        # Counting asks for each day twice in a row. Replaced as one, for threads.
        self._last_day: tuple[int, tuple[int, ...]] = (-1, ())
        self._start_period = self._period(start // DAY_S)
        if rule.count is not None:
            self._last = self._last_of(rule.count)
            self._kept = {}

    def first_from(self, second: int) -> int | None:
        """The first mark `>= second`. None: there is none, or none in SEARCHED_YEARS."""
        second = max(second, self._first)
        if second > self._last:
            return None
        year = self._chunk(second // DAY_S)
        searched = _SEARCHED_WITHOUT_INTERVAL if self.rule.interval == 1 else SEARCHED_YEARS
        final = min(year + searched, self._chunk(self._last // DAY_S))
        while year <= final:
            marks = self._marks(year)
            at = bisect_left(marks, second)
            if at < len(marks):
                return marks[at]
            year += 1
        return None

    def count(self, low: int, high: int) -> int:
        """How many marks there are with `low <= mark < high`."""
        low, high = max(low, self._first), min(high, self._last + 1)
        if low >= high:
            return 0
        counted = 0
        for year in range(self._chunk(low // DAY_S), self._chunk((high - 1) // DAY_S) + 1):
            marks = self._marks(year)
            counted += bisect_left(marks, high) - bisect_left(marks, low)
        return counted

    def times_of(self, day: int) -> tuple[int, ...]:
        """The marks of a day, in seconds of it."""
        known, times = self._last_day
        if known != day:
            times = self._find_times(day)
            self._last_day = (day, times)
        return times

    def _find_times(self, day: int) -> tuple[int, ...]:
        start = day * DAY_S
        if start + DAY_S <= self._first or start > self._last:
            return ()
        marks = self._marks(self._chunk(day))
        low = bisect_left(marks, start)
        if low == len(marks) or marks[low] >= start + DAY_S:
            return ()
        return tuple([mark - start for mark in marks[low : bisect_left(marks, start + DAY_S)]])

    def _last_of(self, count: int) -> int:
        year = self._chunk(self._first // DAY_S)
        for counted in range(year, min(year + COUNTED_YEARS, _LAST_YEAR) + 1):
            marks = self._marks(counted)
            if len(marks) >= count:
                return marks[count - 1]
            count -= len(marks)
        is_cut = year + COUNTED_YEARS > _LAST_YEAR
        within = f"by the end of year {_LAST_YEAR}" if is_cut else f"within {COUNTED_YEARS} years of dtstart"
        raise DefinitionError(
            "rrule_invalid",
            f"COUNT is not reached {within}",
            field="rrule",
            remedy="leave it out, or give UNTIL",
        )

    def _chunk(self, day: int) -> int:
        """The year in which the period of a day begins: a week may reach into the next one."""
        if self.rule.frequency == "WEEKLY":
            day -= (day + _THURSDAY - self.rule.days.week_start) % 7
        return date.fromordinal(day + _EPOCH_ORDINAL).year

    def _marks(self, year: int) -> array[int]:
        """The marks of the periods that begin in a year."""
        marks = self._kept.get(year)
        if marks is None:
            marks = array("q", self._expanded(year))
            marks = marks[bisect_left(marks, self._first) : bisect_right(marks, self._last)]
            if len(self._kept) >= _KEPT_YEARS:
                self._kept = {}
            self._kept[year] = marks
        return marks

    def _expanded(self, year: int) -> Iterator[int]:
        rule = self.rule
        days = self._days(year)
        if rule.interval > 1 and rule.frequency in ("WEEKLY", "DAILY"):
            days = [day for day in days if (self._period(day) - self._start_period) % rule.interval == 0]
        if not rule.positions:
            return (day * DAY_S + time for day in days for time in rule.times)
        return (mark for _period, named in groupby(days, self._period) for mark in self._picked(list(named)))

    def _picked(self, days: list[int]) -> list[int]:
        """What BYSETPOS leaves of a period."""
        times = self.rule.times
        size = len(days) * len(times)
        places = {place - 1 if place > 0 else size + place for place in self.rule.positions}
        return [
            days[place // len(times)] * DAY_S + times[place % len(times)]
            for place in sorted(places)
            if 0 <= place < size
        ]

    def _days(self, year: int) -> list[int]:
        """The days that the rule names, of the periods that begin in a year. Weeks and days are not left out yet."""
        rule = self.rule
        if rule.frequency == "YEARLY" and (year - self._start_period) % rule.interval:
            return []
        if rule.frequency == "MONTHLY" and rule.interval > 1:
            due = [at for at in range(1, 13) if (year * 12 + at - self._start_period) % rule.interval == 0]
            months = (rule.days.months or frozenset(range(1, 13))).intersection(due)
            return _days_of_year(replace(rule.days, months=months), year) if months else []
        days = _days_of_year(rule.days, year)
        if rule.frequency != "WEEKLY":
            return days
        following = _days_of_year(rule.days, year + 1, first=7) if year < _LAST_YEAR else []
        return [day for day in days + following if self._chunk(day) == year]

    def _period(self, day: int) -> int:
        """Which period a day lies in, counted on and on."""
        match self.rule.frequency:
            case "DAILY":
                return day
            case "WEEKLY":
                return (day + _THURSDAY - self.rule.days.week_start) // 7
            case "MONTHLY":
                at = date.fromordinal(day + _EPOCH_ORDINAL)
                return at.year * 12 + at.month
            case "YEARLY":
                return date.fromordinal(day + _EPOCH_ORDINAL).year


def _days_of_year(days: DayFilter, year: int, *, first: int = 366) -> list[int]:
    """The day numbers that a filter names among the `first` days of a year."""
    january = date(year, 1, 1).toordinal() - _EPOCH_ORDINAL
    mask = _year_mask(days, isleap(year), (january + _THURSDAY) % 7, isleap(year - 1)) & (1 << first) - 1
    found: list[int] = []
    while mask:
        lowest = mask & -mask
        found.append(january + lowest.bit_length() - 1)
        mask ^= lowest
    return found


@lru_cache(maxsize=4096)
def _year_mask(days: DayFilter, is_leap: bool, january: int, after_leap: bool) -> int:
    """Bit k says that day k of a year of that shape matches. `january` is the weekday of its first day."""
    length = 366 if is_leap else 365
    mask, day = 0, 0
    for month in range(1, 13):
        size = month_length(2000 if is_leap else 2001, month)
        for at in range(1, size + 1):
            if (
                (not days.months or month in days.months)
                and (not days.month_days or at in days.month_days or at - size - 1 in days.month_days)
                and (not days.year_days or day + 1 in days.year_days or day - length in days.year_days)
                and _matches_weekday(
                    days, (january + day) % 7, *((day, length) if days.nth_in_year else (at - 1, size))
                )
                and (not days.week_numbers or _matches_week(days, day, length, january, 366 if after_leap else 365))
            ):
                mask |= 1 << day
            day += 1
    return mask


def _matches_weekday(days: DayFilter, weekday: int, place: int, size: int) -> bool:
    """`place` counts from 0 in the month or year of `size` days in which the n of `-1FR` counts."""
    if not days.weekdays and not days.nth_weekdays:
        return True
    return (
        weekday in days.weekdays
        or (weekday, place // 7 + 1) in days.nth_weekdays
        or (weekday, -((size - 1 - place) // 7) - 1) in days.nth_weekdays
    )


def _matches_week(days: DayFilter, day: int, length: int, january: int, length_before: int) -> bool:
    """The week's number, from the front or the back. Week 1 is the first with at least four days in its year."""
    first = _first_week(january, days.week_start)
    following = length + _first_week((january + length) % 7, days.week_start)
    if day < first:
        start, end = _first_week((january - length_before) % 7, days.week_start) - length_before, first
    elif day >= following:
        return 1 in days.week_numbers  # of the year after; rrule.py refuses to count as far from its end
    else:
        start, end = first, following
    return (day - start) // 7 + 1 in days.week_numbers or -((end - 1 - day) // 7) - 1 in days.week_numbers


def _first_week(january: int, week_start: int) -> int:
    """On which day of a year, from 0, its week 1 begins; negative where that is in the year before."""
    into = (january - week_start) % 7
    return -into if into <= 3 else 7 - into
