"""The rule of calendars a second time, slowly: every instant of a plain timetable is taken up and judged by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from onbeat.domain.calendar import Calendar, day_number
from onbeat.domain.model import SECOND_US, CalendarUse, CronSchedule, Schedule
from onbeat.domain.timetable import compile_timetable
from onbeat.domain.zones import zone

MARGIN_S = 34 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def planned(
    schedule: Schedule, plain: Schedule, calendars: dict[str, Calendar], *, after: int, until: int
) -> list[int]:
    """The instants of `schedule` in `(after, until]`, where `plain` is the same without calendars. µs UTC."""
    use = schedule.calendars
    assert use is not None
    timezone = schedule.timezone if isinstance(schedule, CronSchedule) else "UTC"
    timetable = compile_timetable((plain,), job_id=1)
    found: set[int] = set()
    instant = timetable.next_after(after - MARGIN_S * SECOND_US)
    while instant is not None and instant <= until + MARGIN_S * SECOND_US:
        landed = instant if is_open(use, calendars, instant, timezone) else _roll(use, calendars, instant, timezone)
        if landed is not None and after < landed <= until:
            found.add(landed)
        instant = timetable.next_after(instant)
    return sorted(found)


def is_open(use: CalendarUse, calendars: dict[str, Calendar], instant: int, timezone: str) -> bool:
    def holds(name: str) -> bool:
        calendar = calendars[name]
        local = _local(instant, zone(calendar.rules.timezone or timezone))
        return calendar.contains(day_number(local.date()))

    return (not use.only or any(map(holds, use.only))) and not any(map(holds, use.exclude))


def _roll(use: CalendarUse, calendars: dict[str, Calendar], instant: int, timezone: str) -> int | None:
    if use.roll == "skip":
        return None
    step = timedelta(days=1 if use.roll == "next_business_day" else -1)
    wall = _local(instant, zone(timezone)).replace(tzinfo=None, fold=0)
    for _ in range(31):
        wall += step
        candidate = _instant(wall, zone(timezone))
        if is_open(use, calendars, candidate, timezone):
            return candidate
    return None


def _local(instant: int, at: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=instant)).astimezone(at)


def _instant(wall: datetime, at: ZoneInfo) -> int:
    """The first instant whose local time is not before `wall`, found by looking: the end of a gap, the first pass."""
    guess = wall.replace(tzinfo=at, fold=0).astimezone(UTC)
    if guess.astimezone(at).replace(tzinfo=None) != wall:  # a gap: the first second after it
        guess -= timedelta(days=2)
        step = timedelta(days=2)
        while step >= timedelta(seconds=1):
            # Local time is not monotonic in general, and is across one gap.
            if (guess + step).astimezone(at).replace(tzinfo=None) < wall:
                guess += step
            else:
                step = timedelta(seconds=step.total_seconds() // 2)
        guess += timedelta(seconds=1)
    return (guess - _EPOCH) // timedelta(microseconds=1)
