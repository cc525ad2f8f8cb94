"""The days in an iCalendar text (RFC 5545): all-day events and their recurrences, as ranges of dates.

Events with times of the day, and cancelled ones, hold no whole day; they are counted and left out. A recurrence
without an end is refused unless the caller says how far to follow it: a calendar must not end where nobody looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from onbeat.domain.calendar import MAX_RANGES, DateRange, join_ranges
from onbeat.domain.errors import DefinitionError

LONGEST_ICS: Final = 1_000_000
"""Characters."""
MAX_EVENTS: Final = 5_000
MAX_OCCURRENCES: Final = 20_000
"""Over all events of a file."""
_DEEPEST: Final = 8  # a calendar, its events, their alarms: real files have three levels
_LONGEST_YEARS: Final = 60  # an occurrence later than this after its event's start is not looked for

# What a year of a rule costs, in years of a yearly one: measured for rules that match nothing, the dearest ones.
_COSTS: Final = {"DAILY": 9, "WEEKLY": 3, "MONTHLY": 1, "YEARLY": 1}
_MAX_COST: Final = 20_000  # some seconds
_LAST_YEAR: Final = 9_999
_CALENDAR_REPEATS: Final = 400  # years, weekdays included


@dataclass(frozen=True, slots=True)
class IcsDays:
    """What an iCalendar text comes to."""

    ranges: tuple[DateRange, ...]
    events: int  # all-day events that were taken
    ignored: int  # events with times of the day, and cancelled ones


class _Recurrences:
    """Follows recurrences, until they have cost too much."""

    def __init__(self, until: date | None) -> None:
        self.until = until
        self._cost = 0

    def days(self, event: Any, start: date) -> Iterator[date]:
        """The days on which an event begins."""
        found = {start, *_dates(event, "RDATE")}
        rule = _one(event, "RRULE")
        if rule is not None:
            found |= set(self._follow(rule, start))
        found -= set(_dates(event, "EXDATE"))
        return (day for day in sorted(found) if self.until is None or day <= self.until)

    def _follow(self, rule: Any, start: date) -> list[date]:
        from dateutil.rrule import rrule, rrulestr

        frequency = str(rule.get("FREQ", [""])[0]).upper()
        if frequency not in _COSTS:
            raise _refusal(
                f"the event on {start} recurs {frequency or 'without FREQ'}", "whole days recur daily or rarer"
            )
        if self.until is None and not rule.get("COUNT") and not rule.get("UNTIL"):
            raise _refusal(
                f"the event on {start} recurs without an end",
                'say how far to follow such events: "until": "2036-12-31"',
                field="until",
            )
        # Without a zone on either side: these are dates. UNTIL may be written with one, which dateutil then demands.
        parts = [f"{name}={','.join(map(_part, values))}" for name, values in rule.items() if name != "UNTIL"]
        last = min(day for day in (_until(rule), self.until, _years_after(start)) if day is not None)
        # A rule that matches nothing more is walked to the year 9999: so it is followed where that is near.
        room = _LAST_YEAR - max(last, start).year
        moved_years = 0 if "BYEASTER" in rule else room // _CALENDAR_REPEATS * _CALENDAR_REPEATS
        occurrences: list[date] = []
        walked_to = _LAST_YEAR - moved_years
        try:
            moved = start.replace(year=start.year + moved_years)
            recurrence = rrulestr(";".join(parts), dtstart=datetime.combine(moved, time()))
            assert isinstance(recurrence, rrule)  # one rule is no set of them
            for moment in recurrence:
                day = moment.date().replace(year=moment.year - moved_years)
                if day > last:
                    walked_to = last.year
                    break
                occurrences.append(day)
                if len(occurrences) > MAX_OCCURRENCES:
                    raise _too_many()
        except (ValueError, TypeError, OverflowError) as error:
            raise _refusal(f"the RRULE of the event on {start} is not understood: {error}", "mend it") from None
        if rule.get("COUNT") and len(occurrences) == int(rule["COUNT"][0]):
            walked_to = occurrences[-1].year if occurrences else start.year
        self._cost += _COSTS[frequency] * max(walked_to - start.year + 1, 1)
        if self._cost > _MAX_COST:
            raise _refusal("its events recur over too many years", "give an earlier `until`", field="until")
        return occurrences


@dataclass(slots=True)
class _Series:
    """The events of one UID: the days on which they begin, each with its length in days."""

    starts: dict[date, int] = field(default_factory=dict)
    replaced: set[date] = field(default_factory=set)  # occurrences that another event stands for, or a cancelled one
    moved: dict[date, int] = field(default_factory=dict)


def read_ics(text: str, *, until: date | None) -> IcsDays:
    """The days of the all-day events in `text`. `until`: recurrences are followed no further than this.

    Raises DefinitionError(`ics_invalid`) naming what is wrong, with `ics` as its field.
    """
    if len(text) > LONGEST_ICS:
        raise _refusal(
            f"the text has {len(text)} characters; at most {LONGEST_ICS} are read", "import it in several calendars"
        )
    series: dict[str, _Series] = {}
    recurrences = _Recurrences(until)
    taken = ignored = occurrences = 0
    for number, event in enumerate(_events(text)):
        if number >= MAX_EVENTS:
            raise _refusal(f"there are more than {MAX_EVENTS} events", "import it in several calendars")
        start = _date(event, "DTSTART")
        own = series.setdefault(str(event.get("UID") or f"event {number}"), _Series())
        is_cancelled = str(event.get("STATUS") or "").upper() == "CANCELLED"
        replaces = _date(event, "RECURRENCE-ID")
        if replaces is not None:
            own.replaced.add(replaces)
        if start is None or is_cancelled:
            ignored += 1
            continue
        taken += 1
        days = _length(event, start)
        if replaces is not None:
            own.moved[start] = days
            continue
        before = len(own.starts)
        own.starts.update(dict.fromkeys(recurrences.days(event, start), days))
        occurrences += len(own.starts) - before
        if occurrences > MAX_OCCURRENCES:
            raise _too_many()
    if not taken:
        raise _refusal(
            "there is no all-day event in it" + (f", and {ignored} that were left out" if ignored else ""),
            "an all-day event has a date without a time, such as DTSTART;VALUE=DATE:20261225",
        )
    ranges = join_ranges(_ranges(series))
    if len(ranges) > MAX_RANGES:
        raise _refusal(f"{len(ranges)} ranges of days are more than {MAX_RANGES}", "give an earlier `until`")
    return IcsDays(ranges=ranges, events=taken, ignored=ignored)


def _events(text: str) -> Iterator[Any]:
    """Every VEVENT, wherever it stands. Walks by hand: the package's own walk recurses as deep as the text."""
    import icalendar

    try:
        roots = icalendar.Calendar.from_ical(text.removeprefix("\ufeff"), multiple=True)  # which Windows puts first
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise _refusal(f"it is not iCalendar text: {str(error)[:200]}", "send the .ics file as it is") from None
    if not roots:
        raise _refusal("it is empty", "send the .ics file as it is")
    level: list[Any] = list(roots)
    for _ in range(_DEEPEST):
        for component in level:
            if component.name == "VEVENT":
                if component.errors:
                    raise _refusal(
                        f"an event has a bad {component.errors[0][0]}: {str(component.errors[0][1])[:200]}",
                        "mend or remove that event",
                    )
                yield component
        level = [child for component in level for child in component.subcomponents]
        if not level:
            return
    raise _refusal(f"its components are nested deeper than {_DEEPEST} levels", "send the .ics file as it is")


def _date(event: Any, name: str) -> date | None:
    """The property, if it is a date without a time."""
    found = _one(event, name)
    value = None if found is None else getattr(found, "dt", None)
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _one(event: Any, name: str) -> Any:
    found = event.get(name)
    if isinstance(found, list):
        raise _refusal(f"an event has {name} more than once", "mend or remove that event")
    return found


def _length(event: Any, start: date) -> int:
    """Days that the event covers. DTEND is the day after; without it an event lasts one day."""
    end = _date(event, "DTEND")
    duration = _one(event, "DURATION")
    if end is not None:
        days = (end - start).days
    elif duration is not None and isinstance(getattr(duration, "dt", None), timedelta):
        days = duration.dt.days
    else:
        return 1
    if days < 0 or days > 366:
        raise _refusal(f"the event on {start} lasts {days} days", "an event may last up to 366 days")
    return max(days, 1)  # some programs write the same day for both


def _years_after(start: date) -> date:
    return date(min(start.year + _LONGEST_YEARS, 9999), 12, 31)


def _too_many() -> DefinitionError:
    return _refusal(f"the events recur more than {MAX_OCCURRENCES} times", "give an earlier `until`", field="until")


def _part(value: Any) -> str:
    return value.to_ical().decode() if hasattr(value, "to_ical") else str(value)


def _until(rule: Any) -> date | None:
    values = rule.get("UNTIL")
    if not values:
        return None
    value = values[0]
    return value.date() if isinstance(value, datetime) else value if isinstance(value, date) else None


def _dates(event: Any, name: str) -> Iterator[date]:
    found = event.get(name)
    for group in found if isinstance(found, list) else [] if found is None else [found]:
        for entry in getattr(group, "dts", ()):
            if isinstance(entry.dt, date) and not isinstance(entry.dt, datetime):
                yield entry.dt


def _ranges(series: dict[str, _Series]) -> Iterator[DateRange]:
    for own in series.values():
        kept = {day: days for day, days in own.starts.items() if day not in own.replaced}
        for start, days in (kept | own.moved).items():
            yield DateRange(start, start + timedelta(days=days - 1))


def _refusal(detail: str, remedy: str, *, field: str = "ics") -> DefinitionError:
    return DefinitionError("ics_invalid", detail, field=field, remedy=remedy)
