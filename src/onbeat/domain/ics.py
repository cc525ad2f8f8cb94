"""The days in an iCalendar text (RFC 5545): all-day events and their recurrences, as ranges of dates.

Events with times of the day, and cancelled ones, hold no whole day; they are counted and left out. A recurrence
without an end is refused unless the caller says how far to follow it: a calendar must not end where nobody looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
_MOST_NAMED: Final = 150  # values in all BY… parts of a rule
_NAMED_FREELY: Final = 20  # so many more cost as much again: they are gone through for each day
_LARGEST: Final = {"BYMONTH": 12, "BYMONTHDAY": 31, "BYYEARDAY": 366, "BYWEEKNO": 53}
_LONGEST_PERIODS: Final = {"DAILY": 1, "WEEKLY": 7, "MONTHLY": 31, "YEARLY": 366}  # days, of which BYSETPOS picks
_TIMES_OF_DAY: Final = ("BYHOUR", "BYMINUTE", "BYSECOND")
_NUMBER: Final = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_COUNTED_WEEKDAY: Final = re.compile(r"[+-]?(\d{1,2})[A-Z]{2}", re.ASCII)


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
        parts = _day_parts(rule, frequency, start)
        text = ";".join(f"{name}={','.join(values)}" for name, values in parts.items())
        last = min(day for day in (_until(rule), self.until, _years_after(start)) if day is not None)
        # A rule that matches nothing more is walked to the year 9999: so it is followed where that is near.
        moved_years = (_LAST_YEAR - max(last, start).year) // _CALENDAR_REPEATS * _CALENDAR_REPEATS
        occurrences: list[date] = []
        walked_to = _LAST_YEAR - moved_years
        try:
            moved = start.replace(year=start.year + moved_years)
            recurrence = rrulestr(text, dtstart=datetime.combine(moved, time()))
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
        dearer = 1 + len(_named(parts)) // _NAMED_FREELY
        self._cost += _COSTS[frequency] * dearer * max(walked_to - start.year + 1, 1)
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
    from icalendar.timezone import tzp

    try:
        roots = icalendar.Calendar.from_ical(text.removeprefix("\ufeff"), multiple=True)  # which Windows puts first
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise _refusal(f"it is not iCalendar text: {str(error)[:200]}", "send the .ics file as it is") from None
    finally:
        tzp.use_zoneinfo()  # forgets the zones that the text defines: it would keep those of every text for ever
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


def _day_parts(rule: Any, frequency: str, start: date) -> dict[str, list[str]]:
    """What the rule says of days. Checked, since dateutil believes everything: it counts in steps of 0 for ever, takes
    day 0 of a month for every day, and looks for Easter up to the year 9999.

    UNTIL is left out: it may be written with a zone, and these are dates. So are times of the day, as RFC 5545 demands.
    """
    texts = {str(name).upper(): list(dict.fromkeys(map(_text, values))) for name, values in rule.items()}
    parts = {name: values for name, values in texts.items() if name not in ("UNTIL", *_TIMES_OF_DAY)}
    named = _named(parts)
    if len(named) > _MOST_NAMED:
        raise _refusal(
            f"the RRULE of the event on {start} names {len(named)} days, weeks and months",
            f"name up to {_MOST_NAMED} in a rule",
        )
    is_in_year = frequency == "YEARLY" and "BYMONTH" not in parts
    largest = _LARGEST | {"BYSETPOS": _LONGEST_PERIODS[frequency], "BYDAY": 53 if is_in_year else 5}
    for name, value in [*named, *(("INTERVAL", value) for value in parts.get("INTERVAL", ()))]:
        if not _is_sensible(name, value, largest):
            raise _refusal(
                f"the RRULE of the event on {start} is not understood: {name}={value[:20]} has no meaning", "mend it"
            )
    return parts


def _named(parts: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """The days, weeks and months in a rule."""
    return [(name, value) for name, values in parts.items() if name.startswith("BY") for value in values]


def _is_sensible(name: str, value: str, largest: Mapping[str, int]) -> bool:
    if name == "INTERVAL":
        return int(value) >= 1
    if name == "BYDAY":
        counted = _COUNTED_WEEKDAY.fullmatch(value)
        return counted is None or 1 <= int(counted[1]) <= largest[name]
    return name in largest and _NUMBER.fullmatch(value) is not None and 1 <= abs(int(value)) <= largest[name]


def _text(value: Any) -> str:
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
            yield DateRange(start, date.fromordinal(min(start.toordinal() + days - 1, date.max.toordinal())))


def _refusal(detail: str, remedy: str, *, field: str = "ics") -> DefinitionError:
    return DefinitionError("ics_invalid", detail, field=field, remedy=remedy)
