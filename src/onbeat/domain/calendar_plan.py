"""A schedule behind calendars: which of its instants fall away, and where the others move.

A wrapper around the plan of one schedule, so that searching, counting and cutting off all see the same instants.
Nothing walks instants: per UTC day there is a bitmap of the seconds that are *open*, and local days are moved whole.
Times are whole seconds UTC, or local (UTC plus the offset of the schedule's zone). The rules stand in
`docs/calendars.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from onbeat.domain.bounds import Plan
from onbeat.domain.calendar import Calendar
from onbeat.domain.offsets import DAY_S, LAST_SECOND, Stretch, stretch_at, stretches_from
from onbeat.domain.walk import WHOLE_DAY

LONGEST_ROLL_DAYS: Final = 31
"""An instant that finds no open day within this many days falls away."""

LONGEST_CLOSED_DAYS: Final = 50 * 366
"""A schedule whose calendars leave nothing open for this long has ended. Fifty years: 29 February may have to be a
Sunday, which takes up to 40."""

_REACH_DAYS: Final = LONGEST_ROLL_DAYS + 3  # how far a rolled instant's origin lies from it, in UTC days, at most
_KEPT_DAYS: Final = 64  # bitmaps of 11 kB


@dataclass(frozen=True, slots=True)
class ZonedCalendar:
    """A calendar, with the zone in which its days are read: its own, or the schedule's where it has none."""

    calendar: Calendar
    timezone: str

    def contains(self, second: int) -> bool:
        """True where the instant's local date belongs to the calendar."""
        return self.calendar.contains((second + stretch_at(self.timezone, second).offset) // DAY_S)

    def bits(self, day: int) -> int:
        """The seconds of a UTC day that belong to the calendar."""
        found = 0
        start, end = day * DAY_S, (day + 1) * DAY_S
        for low, high, stretch in _pieces(self.timezone, start, end):
            local = low + stretch.offset
            while local < high + stretch.offset:
                following = min((local // DAY_S + 1) * DAY_S, high + stretch.offset)
                if self.calendar.contains(local // DAY_S):
                    found |= (1 << following - local) - 1 << local - stretch.offset - start
                local = following
        return found


class Gate:
    """When calendars let instants through: a second is open if it lies in one of `only` and in none of `exclude`."""

    __slots__ = ("_exclude", "_kept", "_only")

    def __init__(self, *, exclude: Sequence[ZonedCalendar], only: Sequence[ZonedCalendar]) -> None:
        self._exclude = tuple(exclude)
        self._only = tuple(only)
        # Replaced as a whole when it is full, since threads share it.
        self._kept: dict[int, int] = {}

    def closed_by(self, second: int) -> str | None:
        """The calendar that keeps an instant out: the first that excludes it, or the first of those to keep to."""
        for zoned in self._exclude:
            if zoned.contains(second):
                return zoned.calendar.name
        if self._only and not any(zoned.contains(second) for zoned in self._only):
            return self._only[0].calendar.name
        return None

    def open_bits(self, day: int) -> int:
        """The open seconds of a UTC day."""
        bits = self._kept.get(day)
        if bits is None:
            bits = WHOLE_DAY if not self._only else 0
            for zoned in self._only:
                bits |= zoned.bits(day)
            for zoned in self._exclude:
                bits &= ~zoned.bits(day)
            if len(self._kept) >= _KEPT_DAYS:
                self._kept = {}
            self._kept[day] = bits
        return bits

    def first_open(self, second: int, *, before_day: int) -> int | None:
        """The first open second `>= second`, on a UTC day before `before_day`."""
        for day in range(second // DAY_S, before_day):
            bits = self.open_bits(day)
            if day == second // DAY_S:
                bits = bits >> second % DAY_S << second % DAY_S
            if bits:
                return day * DAY_S + (bits & -bits).bit_length() - 1
        return None

    def first_closed(self, second: int, *, before: int) -> int | None:
        """The first second `>= second` that is not open, before `before`."""
        for day in range(second // DAY_S, (before - 1) // DAY_S + 1):
            bits = WHOLE_DAY & ~self.open_bits(day)
            if day == second // DAY_S:
                bits = bits >> second % DAY_S << second % DAY_S
            if bits:
                found = day * DAY_S + (bits & -bits).bit_length() - 1
                return found if found < before else None
        return None


class FilteredPlan:
    """`roll: skip`: instants that are not open fall away."""

    __slots__ = ("gate", "plan", "repeats_daily")

    def __init__(self, plan: Plan, gate: Gate) -> None:
        self.plan = plan
        self.gate = gate
        self.repeats_daily = plan.repeats_daily

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: there is none, or none in fifty years."""
        last_day = second // DAY_S + LONGEST_CLOSED_DAYS
        while True:
            found = self.plan.first_from(second)
            if found is None or self.gate.closed_by(found) is None:
                return found
            reopened = self.gate.first_open(found, before_day=last_day)
            if reopened is None:
                return None
            second = reopened

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        key = self.plan.day_key(day)
        if key is None:
            return None
        bits = self.gate.open_bits(day)
        return key if bits == WHOLE_DAY else (key, bits) if bits else None

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day."""
        return self.plan.day_bits(day) & self.gate.open_bits(day)


class RolledPlan:
    """Instants that are not open move, at the same local time, to the nearest day of `timezone` where they are."""

    __slots__ = ("_step", "gate", "plan", "repeats_daily", "timezone")

    def __init__(self, plan: Plan, gate: Gate, *, timezone: str, forward: bool) -> None:
        self.plan = plan
        self.gate = gate
        self.timezone = timezone
        self.repeats_daily = plan.repeats_daily
        self._step = 1 if forward else -1

    def first_from(self, second: int) -> int | None:
        """The first instant `>= second`. None: there is none, or none in fifty years."""
        day, last_day = second // DAY_S, second // DAY_S + LONGEST_CLOSED_DAYS
        while day <= min(last_day, LAST_SECOND // DAY_S):
            bits = self.day_bits(day)
            if day == second // DAY_S:
                bits = bits >> second % DAY_S << second % DAY_S
            if bits:
                found = day * DAY_S + (bits & -bits).bit_length() - 1
                return found if found <= LAST_SECOND else None
            # What lands on a day began near it: where nothing is near, the days up to there are empty.
            near = self.plan.first_from(max((day - _REACH_DAYS) * DAY_S, 0))
            if near is None:
                return None
            day = max(day + 1, near // DAY_S - _REACH_DAYS)
        return None

    def day_key(self, day: int) -> Hashable:
        """UTC days with equal keys have equal bitmaps. None: the day is empty."""
        # Only a closed neighbour sends instants here, and a local day reaches into two days of UTC.
        if all(self.gate.open_bits(near) == WHOLE_DAY for near in range(day - 2, day + 3)):
            return self.plan.day_key(day)
        return ("rolled", day)

    def day_bits(self, day: int) -> int:
        """The bitmap of a UTC day: what stays, and what comes."""
        bits = self.plan.day_bits(day) & self.gate.open_bits(day)
        start, end = day * DAY_S, (day + 1) * DAY_S
        for low, high, stretch in _pieces(self.timezone, start, end):
            if low == stretch.start and stretch.offset > stretch.before:
                # The clock goes forward: what was to come in the gap comes together, right after it.
                gap = (stretch.start + stretch.before, stretch.start + stretch.offset)
                if _window(self._landing, *gap):
                    bits |= 1 << low - start
            low = max(low, _first_pass(stretch))
            if low < high:
                bits |= _window(self._landing, low + stretch.offset, high + stretch.offset) << low - start
        return bits

    def moved_to(self, second: int) -> int | None:
        """Where an instant that is not open goes. None: it falls away."""
        local = second + stretch_at(self.timezone, second).offset
        for days in range(1, LONGEST_ROLL_DAYS + 1):
            candidate = from_local(self.timezone, local + self._step * days * DAY_S)
            if self.gate.closed_by(candidate) is None:
                return candidate if 0 <= candidate <= LAST_SECOND else None
        return None

    def _landing(self, day: int) -> int:
        """The local times of local day `day` at which instants of other days land."""
        waiting = self._open_times(day)  # times at which something may still land
        landed = 0
        for days in range(1, LONGEST_ROLL_DAYS + 1):
            if not waiting:
                break
            origin = day - self._step * days
            if origin < 0:
                break
            landed |= self._closed_instants(origin) & waiting
            waiting &= ~self._open_times(origin)  # it would take what comes from further away
        return landed

    def _closed_instants(self, day: int) -> int:
        """The local times of the plan's instants on a local day that are not open. Both passes of an overlap."""
        bits = 0
        for low, high, stretch in _local_pieces(self.timezone, day):
            here = _window(self._closed_on, low, high)
            bits |= here << low + stretch.offset - day * DAY_S
        return bits

    def _closed_on(self, utc_day: int) -> int:
        opened = self.gate.open_bits(utc_day)
        return 0 if opened == WHOLE_DAY else self.plan.day_bits(utc_day) & ~opened

    def _open_times(self, day: int) -> int:
        """The local times of a local day that are open: as `from_local` reads them."""
        bits = 0
        start = day * DAY_S
        for low, high, stretch in _local_pieces(self.timezone, day):
            if stretch.offset > stretch.before:
                gap_low = max(stretch.start + stretch.before, start)
                gap_high = min(stretch.start + stretch.offset, start + DAY_S)
                if gap_low < gap_high and self.gate.closed_by(stretch.start) is None:
                    bits |= (1 << gap_high - gap_low) - 1 << gap_low - start
            low = max(low, _first_pass(stretch))
            if low < high:
                bits |= _window(self.gate.open_bits, low, high) << low + stretch.offset - start
        return bits


def from_local(timezone: str, local: int) -> int:
    """The instant of a local time: the end of the gap where it does not exist, the first pass where it comes twice."""
    for stretch in stretches_from(timezone, local - 2 * DAY_S):
        if local < stretch.start + stretch.offset:
            return stretch.start
        if local < stretch.end + stretch.offset:
            return local - stretch.offset
    raise AssertionError("stretches go on without end")


def _pieces(timezone: str, low: int, high: int) -> Iterator[tuple[int, int, Stretch]]:
    """`low..high` (UTC, exclusive) cut where the clock changes."""
    for stretch in stretches_from(timezone, low):
        if stretch.start >= high:
            return
        yield max(low, stretch.start), min(high, stretch.end), stretch


def _local_pieces(timezone: str, day: int) -> Iterator[tuple[int, int, Stretch]]:
    """The UTC seconds whose local date is `day`, and empty pieces for stretches whose gap touches the day."""
    start, end = day * DAY_S, (day + 1) * DAY_S
    for stretch in stretches_from(timezone, start - 2 * DAY_S):
        if stretch.start + min(stretch.before, stretch.offset) >= end:
            return
        low = max(stretch.start, start - stretch.offset)
        high = min(stretch.end, end - stretch.offset)
        if low < high or (stretch.offset > stretch.before and start < stretch.start + stretch.offset):
            yield low, max(low, high), stretch


def _first_pass(stretch: Stretch) -> int:
    """The first second of a stretch whose local time has not come before."""
    return stretch.start + max(stretch.before - stretch.offset, 0)


def _window(day_bits: Callable[[int], int], low: int, high: int) -> int:
    """Bits `low..high` (exclusive) out of daily bitmaps."""
    bits = 0
    for day in range(low // DAY_S, (high - 1) // DAY_S + 1):
        start = day * DAY_S
        cut = day_bits(day)
        if start < low:
            bits |= cut >> low - start
        else:
            bits |= cut << start - low
    return bits & (1 << max(high - low, 0)) - 1
