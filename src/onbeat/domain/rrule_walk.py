"""A recurrence rule in a zone: its marks are times of the day, so changes of the clock do to them what cron has."""

from __future__ import annotations

from onbeat.domain.offsets import DAY_S, stretch_at, stretches_from
from onbeat.domain.recurrence import Recurrence
from onbeat.domain.rrule import RecurrenceRule
from onbeat.domain.walk import WallClockWalk


class RruleWalk(WallClockWalk):
    """One rule in one zone, beginning at local second `dtstart`."""

    __slots__ = ("_marks",)

    def __init__(self, rule: RecurrenceRule, *, dtstart: int, timezone: str) -> None:
        super().__init__(timezone=timezone, is_fixed_time=True, gap=None, overlap=None)
        last = rule.until_local
        if rule.until_instant is not None:
            last = self._last_local(rule.until_instant)
        self._marks = Recurrence(rule, start=dtstart, last=last)

    def count(self, first: int, last: int) -> int:
        """How many instants there are in `first..last`: from one change of the clock to the next, no day by itself."""
        counted = 0
        for stretch in stretches_from(self.timezone, first):
            if stretch.start > last:
                break
            low = max(first, stretch.start) + stretch.offset
            high = min(last + 1, stretch.end) + stretch.offset
            if stretch.start >= first and self.gap_mark(stretch) is not None:
                # Together with a mark at the first instant after the gap, if there is one.
                counted += self.mark_between(low, low + 1) is None
            counted += self._marks.count(self._first_pass_from(low, stretch), high)
            first = stretch.end  # the next one may begin before that, where our window on the zone does
        return counted

    def _last_local(self, instant: int) -> int:
        """The last local second that fires no later than an instant."""
        if instant < 0:
            return -1
        stretch = stretch_at(self.timezone, instant)
        return self._first_pass_from(instant + stretch.offset + 1, stretch) - 1

    def _mark_from(self, local: int) -> int | None:
        return self._marks.first_from(local)

    def _local_bits(self, low: int, high: int) -> int:
        bits = 0
        for day in range(low // DAY_S, (high - 1) // DAY_S + 1):
            for time in self._marks.times_of(day):
                if low <= day * DAY_S + time < high:
                    bits |= 1 << day * DAY_S + time - low
        return bits

    def _local_key(self, day: int) -> tuple[int, ...]:
        return self._marks.times_of(day)
