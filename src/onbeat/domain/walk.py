"""The walk: which instants wall-clock times mean in a zone, across changes of the clock.

The rule (Debian's and Vixie's; why, and the evidence that we walk ourselves, stand in `docs/time.md`):
- A *wildcard* expression (minute or hour starts with `*`, or six fields) follows elapsed time: it fires at every
  instant whose local time matches. In both passes of an overlap, never for a time that a gap leaves out.
- A *fixed-time* expression means times of the day: in an overlap it fires in the first pass only, and all its marks
  inside a gap fire once, together, at the first instant after the gap. Those marks keep the date they have in the gap.
- A *recurrence rule* means times of the day too: rrule_walk.py.
- A schedule that names its own `gap` or `overlap` has that, whichever kind its expression is.

All arithmetic is on whole seconds: UTC, or local (UTC plus the offset of a stretch, see offsets.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Final

from onbeat.domain.cron import CronExpression
from onbeat.domain.model import DstGap, DstOverlap
from onbeat.domain.offsets import (
    DAY_S,
    LAST_SECOND,
    LONGEST_BACKWARD_SHIFT_S,
    Stretch,
    pass_number,
    repeats_from,
    stretch_at,
    stretches_from,
)

WHOLE_DAY: Final = (1 << DAY_S) - 1
"""A day's bitmap with every second set. Bit k of a day's bitmap is second k of that UTC day."""

# Local and UTC day are never further apart than this, so it is safe to resume a search this much before a mark.
_JUMP_SHORT_S = 2 * DAY_S


class WallClockWalk(ABC):
    """Local times in one zone: a kind of schedule says which *marks* there are, this what becomes of them."""

    repeats_daily: Final = True

    __slots__ = ("gap", "is_fixed_time", "overlap", "timezone")

    def __init__(self, *, timezone: str, is_fixed_time: bool, gap: DstGap | None, overlap: DstOverlap | None) -> None:
        self.timezone = timezone
        self.is_fixed_time = is_fixed_time
        self.gap: DstGap = gap or ("shift" if is_fixed_time else "skip")
        self.overlap: DstOverlap = overlap or ("first" if is_fixed_time else "both")

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: there is none up to the end of year 9999."""
        while second <= LAST_SECOND:
            stretch = stretch_at(self.timezone, second)
            if second == stretch.start and self.gap_mark(stretch) is not None:
                return second
            mark = self._mark_from(self._first_pass_from(second + stretch.offset, stretch))
            if mark is None:
                # A second pass near the end of time would be the only way to go on; no zone has one there.
                return None
            instant = mark - stretch.offset
            if instant < stretch.end:
                if self.overlap == "second" and pass_number(self.timezone, instant) == 1:
                    second = stretch_at(self.timezone, instant).end
                    continue
                return instant if instant <= LAST_SECOND else None
            # Nothing in this stretch. Local times already passed may come again in an overlap, but not from further
            # back than the longest shift; where no mark is near, jump to just before the next one.
            ahead = self._mark_from(second + stretch.offset - LONGEST_BACKWARD_SHIFT_S)
            second = stretch.end if ahead is None else max(stretch.end, ahead - _JUMP_SHORT_S)
        return None

    def gap_mark(self, stretch: Stretch) -> int | None:
        """The first local mark inside the gap that ends where `stretch` starts, if it fires there. Local seconds."""
        return (
            self.mark_between(stretch.start + stretch.before, stretch.start + stretch.offset)
            if self.gap == "shift"
            else None
        )

    def mark_between(self, low: int, high: int) -> int | None:
        """The first local second that matches in `low <= local < high`, whether or not the clock ever shows it."""
        if low >= high:
            return None
        mark = self._mark_from(low)
        return mark if mark is not None and mark < high else None

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        start = day * DAY_S
        stretch = stretch_at(self.timezone, start)
        second_pass_s = max(stretch.before - stretch.offset, 0)
        begins_with_change = stretch.start == start and stretch.before != stretch.offset
        if begins_with_change or stretch.start + second_pass_s > start or self._end_of(stretch) < start + DAY_S:
            return day  # the clock changes in this day, or it begins in a second pass: like no other
        local_day, from_second = divmod(start + stretch.offset, DAY_S)
        today = self._local_key(local_day)
        tomorrow = from_second > 0 and self._local_key(local_day + 1)
        return (from_second, today, tomorrow) if today or tomorrow else None

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day."""
        bits = 0
        start, end = day * DAY_S, (day + 1) * DAY_S
        for stretch in stretches_from(self.timezone, start):
            if stretch.start >= end:
                break
            low = max(start, stretch.start)
            if stretch.start >= start and self.gap_mark(stretch) is not None:
                bits |= 1 << stretch.start - start
            low = max(low, self._first_pass_from(low + stretch.offset, stretch) - stretch.offset)
            high = min(end, self._end_of(stretch))
            if low < high:
                bits |= (self._local_bits(low + stretch.offset, high + stretch.offset)) << low - start
        return bits

    def _first_pass_from(self, local: int, stretch: Stretch) -> int:
        """`local`, moved to where the first pass begins again if this job must not fire in a second pass."""
        return max(local, stretch.start + stretch.before) if self.overlap == "first" else local

    def _end_of(self, stretch: Stretch) -> int:
        """Where a stretch ends for this job: before its local times that come again, if the second pass is to fire."""
        return repeats_from(self.timezone, stretch) if self.overlap == "second" else stretch.end

    @abstractmethod
    def _mark_from(self, local: int) -> int | None:
        """The first matching local second `>= local`, as if the clock never changed."""

    @abstractmethod
    def _local_bits(self, low: int, high: int) -> int:
        """Bit k says that local second `low + k` matches. `low <= local < high`, at most a day apart."""

    @abstractmethod
    def _local_key(self, day: int) -> Hashable:
        """Local days with equal keys have equal marks. False in a condition: the day has none."""


class CronWalk(WallClockWalk):
    """One cron expression in one zone."""

    __slots__ = ("_days", "_first_of_day", "_hours", "_minutes", "_seconds", "expression")

    def __init__(
        self,
        expression: CronExpression,
        *,
        timezone: str,
        gap: DstGap | None = None,
        overlap: DstOverlap | None = None,
    ) -> None:
        super().__init__(timezone=timezone, is_fixed_time=expression.is_fixed_time, gap=gap, overlap=overlap)
        self.expression = expression
        self._days = expression.days
        self._hours = expression.hour.values
        self._minutes = expression.minute.values
        self._seconds = expression.second.values
        self._first_of_day = self._hours[0] * 3600 + self._minutes[0] * 60 + self._seconds[0]

    def _local_key(self, day: int) -> bool:
        return self._days.matches(day)

    def _local_bits(self, low: int, high: int) -> int:
        day, from_second = divmod(low, DAY_S)
        times = _time_of_day_bits(self._seconds, self._minutes, self._hours)
        bits = times >> from_second if self._days.matches(day) else 0
        if (day + 1) * DAY_S < high and self._days.matches(day + 1):
            bits |= times << DAY_S - from_second
        return bits & (1 << high - low) - 1

    def _mark_from(self, local: int) -> int | None:
        day, second_of_day = divmod(local, DAY_S)
        if self._days.matches(day):
            found = self._time_from(second_of_day)
            if found is not None:
                return day * DAY_S + found
        matching = self._days.next(day + 1)
        return None if matching is None else matching * DAY_S + self._first_of_day

    def _time_from(self, second_of_day: int) -> int | None:
        """The first matching second of the day `>= second_of_day`."""
        minute_of_day, second = divmod(second_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        at = bisect_left(hours, hour)
        if at < len(hours) and hours[at] == hour:
            found = bisect_left(minutes, minute)
            if found < len(minutes) and minutes[found] == minute:
                exact = bisect_left(seconds, second)
                if exact < len(seconds):
                    return hour * 3600 + minute * 60 + seconds[exact]
                found = bisect_right(minutes, minute)
            if found < len(minutes):
                return hour * 3600 + minutes[found] * 60 + seconds[0]
            at += 1
        return hours[at] * 3600 + minutes[0] * 60 + seconds[0] if at < len(hours) else None


# A bitmap takes 11 kB, so few are kept; jobs share them, as only the times of the day matter.
@lru_cache(maxsize=256)
def _time_of_day_bits(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> int:
    minute_bits = sum(1 << second for second in seconds)
    hour_bits = sum(minute_bits << minute * 60 for minute in minutes)
    return sum(hour_bits << hour * 3600 for hour in hours)
