"""A calendar: a named set of days, which schedules exclude or keep to. Pure; days are numbers, 0 is 1970-01-01.

A day belongs to a calendar when any of its rules says so: a date, a weekday, a cron-shaped rule, a public holiday.
Which instants lie on a day depends on a time zone; see calendar_plan.py. The essay is `docs/calendars.md`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import date
from functools import lru_cache
from typing import Final

import msgspec

from onbeat.domain.cron import depends_on_job, parse_cron
from onbeat.domain.cron_fields import WEEKDAY
from onbeat.domain.days import LAST_DAY, DayRule
from onbeat.domain.errors import DefinitionError
from onbeat.domain.public_holidays import check_country, public_holidays
from onbeat.domain.stored import read_stored
from onbeat.domain.zones import zone

CALENDAR_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
MAX_RANGES: Final = 5_000
"""Dates and ranges in one calendar, after neighbours were joined: far more than the holidays of a century."""
MAX_RULES: Final = 50
"""Cron rules, and countries, in one calendar."""

WEEKDAYS: Final = tuple(name.lower() for name in WEEKDAY.names)
"""`sun` to `sat`: the number of a weekday is its place."""

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


class DateRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days from `first` to `last`, both included."""

    first: date
    last: date


class Country(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The public holidays of a country, or of a part of it."""

    country: str
    subdivision: str | None = None


class CalendarRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the store keeps of a calendar, as JSON. Its days are the union of all rules."""

    timezone: str | None = None  # whose days these are; None: those of the schedule's own zone
    dates: tuple[DateRange, ...] = ()
    weekdays: tuple[int, ...] = ()  # Sunday is 0
    cron: tuple[str, ...] = ()  # five fields, minute and hour `*`: a calendar holds whole days
    holidays: tuple[Country, ...] = ()


class Calendar:
    """The days of one calendar, ready to be asked. Immutable; equal to any other of the same name and rules."""

    __slots__ = ("_day_rules", "_firsts", "_hash", "_lasts", "name", "rules")

    def __init__(self, name: str, rules: CalendarRules) -> None:
        """Raises DefinitionError as `check_calendar` does."""
        check_calendar(rules)
        self.name = name
        self.rules = rules
        ranges = join_ranges(rules.dates)
        self._firsts = [day_number(found.first) for found in ranges]
        self._lasts = [day_number(found.last) for found in ranges]
        self._day_rules: tuple[DayRule, ...] = tuple(parse_cron(text, job_id=None).days for text in rules.cron)
        self._hash = hash((name, rules))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calendar) and (self.name, self.rules) == (other.name, other.rules)

    def __hash__(self) -> int:
        return self._hash  # thousands of dates are not to be hashed again for every fire

    def contains(self, day: int) -> bool:
        """True where day number `day` belongs to the calendar."""
        # Day 0 was a Thursday; weekdays count from Sunday 0.
        if (day + 4) % 7 in self.rules.weekdays:
            return True
        place = bisect_right(self._firsts, day)
        if place and day <= self._lasts[place - 1]:
            return True
        if any(rule.matches(day) for rule in self._day_rules):
            return True
        if not self.rules.holidays or not 0 <= day <= LAST_DAY:
            return False
        year = date.fromordinal(day + _EPOCH_ORDINAL).year
        return any(day in public_holidays(place.country, place.subdivision, year) for place in self.rules.holidays)


def check_calendar(rules: CalendarRules) -> None:
    """Refuse rules that cannot be honoured. Raises DefinitionError naming the field.

    Codes: `calendar_invalid`, `timezone_unknown`, `cron_invalid`, `never_fires`, `country_unknown`.
    """
    if rules.timezone is not None:
        zone(rules.timezone)
    if not (rules.dates or rules.weekdays or rules.cron or rules.holidays):
        raise _refusal("a calendar needs at least one rule", None, "give dates, weekdays, cron or holidays")
    for index, found in enumerate(rules.dates):
        if found.last < found.first:
            raise _refusal(
                f"the range ends on {found.last}, before it begins on {found.first}",
                f"dates[{index}]",
                "give the earlier date first",
            )
    if len(join_ranges(rules.dates)) > MAX_RANGES:
        raise _refusal(
            f"{len(rules.dates)} dates and ranges are more than {MAX_RANGES}", "dates", "use several calendars"
        )
    for field, given in (("cron", rules.cron), ("holidays", rules.holidays)):
        if len(given) > MAX_RULES:
            raise _refusal(f"{len(given)} rules are more than {MAX_RULES}", field, "use several calendars")
    for weekday in rules.weekdays:
        if not 0 <= weekday <= 6:
            raise _refusal(f"{weekday} is no weekday", "weekdays", "count from 0, Sunday, to 6, Saturday")
    for index, text in enumerate(rules.cron):
        _check_cron(text, f"cron[{index}]")
    for index, place in enumerate(rules.holidays):
        try:
            check_country(place.country, place.subdivision)
        except DefinitionError as error:
            raise DefinitionError(
                error.reason_code, error.detail, field=f"holidays[{index}].{error.field}", remedy=error.remedy
            ) from None


def _check_cron(text: str, field: str) -> None:
    try:
        expression = parse_cron(text, job_id=None)
    except DefinitionError as error:
        raise DefinitionError(error.reason_code, error.detail, field=field, remedy=error.remedy) from None
    if expression.has_seconds or expression.minute.text != "*" or expression.hour.text != "*":
        raise _refusal(
            f"'{text}' names times of the day, and a calendar holds whole days",
            field,
            "write * for minute and hour, as in '* * 25 12 *'; for hours, use the schedule's own cron or a blackout",
        )
    if depends_on_job(text):
        raise _refusal(f"'{text}' holds an H, and a calendar belongs to no job", field, "name the days")


def day_number(day: date) -> int:
    """0 is 1970-01-01."""
    return day.toordinal() - _EPOCH_ORDINAL


def day_of(number: int) -> date:
    """The date behind a day number."""
    return date.fromordinal(number + _EPOCH_ORDINAL)


# The rules of a calendar are joined when it is checked and again when it is built.
@lru_cache(maxsize=64)
def _joined(ranges: tuple[DateRange, ...]) -> tuple[DateRange, ...]:
    return tuple(_join(sorted(ranges, key=lambda found: found.first)))


def join_ranges(ranges: Iterable[DateRange]) -> tuple[DateRange, ...]:
    """The same days as few ranges, in order: what overlaps or touches becomes one."""
    return _joined(tuple(ranges))


def _join(ranges: Iterable[DateRange]) -> Iterator[DateRange]:
    current: DateRange | None = None
    for found in ranges:
        if current is None:
            current = found
        elif day_number(found.first) <= day_number(current.last) + 1:
            current = DateRange(current.first, max(current.last, found.last))
        else:
            yield current
            current = found
    if current is not None:
        yield current


_DECODER = msgspec.json.Decoder(CalendarRules)
_ENCODER = msgspec.json.Encoder()


def encode_rules(rules: CalendarRules) -> str:
    """The JSON text that the store keeps."""
    return _ENCODER.encode(rules).decode()


def decode_rules(text: str | bytes) -> CalendarRules:
    """The rules behind stored JSON. Raises DefinitionError(`calendar_unreadable`) on anything else."""
    return read_stored(
        _DECODER.decode,
        text,
        code="calendar_unreadable",
        noun="calendar",
        remedy="save it again with PUT /v1/calendars/{name}",
    )


def _refusal(detail: str, field: str | None, remedy: str) -> DefinitionError:
    return DefinitionError("calendar_invalid", detail, field=field, remedy=remedy)
