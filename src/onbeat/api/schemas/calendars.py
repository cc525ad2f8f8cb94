"""Calendars as they are written and answered. What can be written reads back the same."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, Final, Literal

from pydantic import Field

from onbeat.api.schemas.base import Body, Text, View, moment
from onbeat.domain.calendar import MAX_RANGES, MAX_RULES, WEEKDAYS, CalendarRules, Country, DateRange
from onbeat.domain.errors import DefinitionError
from onbeat.services.calendars import Imported, readable_rules
from onbeat.store.values import StoredCalendar

Weekday = Literal["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

MOST_DATES: Final = 2 * MAX_RANGES
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class DateRangeBody(Body):
    """Days from one date to another, both included."""

    from_: str = Field(alias="from", max_length=32, examples=["2026-12-24"])
    until: str = Field(max_length=32, examples=["2027-01-01"])


class CountryBody(Body):
    """The public holidays of a country, or of a part of it."""

    country: str = Field(max_length=64, examples=["DE"], description="ISO 3166 code")
    subdivision: str | None = Field(None, max_length=64, examples=["BE"])


class CalendarBody(Body):
    """A calendar as it is written: its days are the union of all that is given."""

    timezone: str | None = Field(
        None, max_length=64, description="Whose days these are; without it, those of each schedule's own zone"
    )
    dates: list[str | DateRangeBody] = Field(
        default_factory=list,
        max_length=MOST_DATES,
        examples=[["2026-12-25", {"from": "2026-12-24", "until": "2027-01-01"}]],
    )
    weekdays: list[Weekday] = Field(default_factory=list, max_length=7, examples=[["sat", "sun"]])
    cron: list[str] = Field(
        default_factory=list,
        max_length=MAX_RULES,
        examples=[["* * 25 12 *"]],
        description="Five fields, of which minute and hour are `*`: a calendar holds whole days",
    )
    holidays: list[CountryBody] = Field(default_factory=list, max_length=MAX_RULES)


class ImportBody(Body):
    """An iCalendar text, whose days take the place of the calendar's dates."""

    ics: Text = Field(min_length=1, description="The text of the .ics file; its all-day events are taken")
    until: str | None = Field(
        None, max_length=32, examples=["2036-12-31"], description="Follow recurrences no further than this date"
    )


class CalendarRef(View):
    """A calendar in a few words."""

    name: str
    version: int
    created_at: str
    updated_at: str


class CalendarView(CalendarRef):
    """A calendar as it stands. Where what is stored cannot be read, its rules are empty."""

    timezone: str | None
    dates: list[str | dict[str, str]]
    weekdays: list[Weekday]
    cron: list[str]
    holidays: list[dict[str, str | None]]


class ImportedView(CalendarView):
    """The calendar after an import, and what was found."""

    events: int = Field(description="All-day events that were taken")
    ignored: int = Field(description="Events with times of the day, and cancelled ones")


class CalendarList(View):
    """Every calendar, by name."""

    items: list[CalendarRef]


def read_rules(body: CalendarBody) -> CalendarRules:
    """What the service takes. Raises DefinitionError naming the field."""
    return CalendarRules(
        timezone=body.timezone,
        dates=tuple(_read_range(given, f"dates[{index}]") for index, given in enumerate(body.dates)),
        weekdays=tuple(sorted({WEEKDAYS.index(name) for name in body.weekdays})),
        cron=tuple(dict.fromkeys(body.cron)),
        holidays=tuple(dict.fromkeys(Country(given.country, given.subdivision) for given in body.holidays)),
    )


def read_date(text: str, field: str) -> date:
    """Raises DefinitionError(`calendar_invalid`)."""
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
        problem = "is not a date"
    except ValueError as error:
        problem = f"is not a date: {error}"
    raise DefinitionError(
        "calendar_invalid", f"{text[:40]!a} {problem}", field=field, remedy="write it like 2026-12-25"
    )


def refer_to_calendar(stored: StoredCalendar) -> dict[str, Any]:
    """A CalendarRef, ready to be written as JSON."""
    return {
        "name": stored.name,
        "version": stored.version,
        "created_at": moment(stored.created_at),
        "updated_at": moment(stored.updated_at),
    }


def view_calendar(stored: StoredCalendar) -> dict[str, Any]:
    """A CalendarView, ready to be written as JSON."""
    rules = readable_rules(stored) or CalendarRules()
    return {
        **refer_to_calendar(stored),
        "timezone": rules.timezone,
        "dates": [_view_range(given) for given in rules.dates],
        "weekdays": [WEEKDAYS[weekday] for weekday in rules.weekdays if 0 <= weekday <= 6],
        "cron": list(rules.cron),
        "holidays": [{"country": given.country, "subdivision": given.subdivision} for given in rules.holidays],
    }


def view_import(imported: Imported) -> dict[str, Any]:
    """An ImportedView, ready to be written as JSON."""
    found = imported.found
    return {**view_calendar(imported.calendar), "events": found.events, "ignored": found.ignored}


def _read_range(given: str | DateRangeBody, field: str) -> DateRange:
    if isinstance(given, str):
        day = read_date(given, field)
        return DateRange(day, day)
    return DateRange(read_date(given.from_, f"{field}.from"), read_date(given.until, f"{field}.until"))


def _view_range(given: DateRange) -> str | dict[str, str]:
    first, last = given.first.isoformat(), given.last.isoformat()
    return first if first == last else {"from": first, "until": last}
