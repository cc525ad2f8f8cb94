"""Recurrence rules (RFC 5545 RRULE) as text: read, checked and made complete with what `dtstart` gives.

Strict where programs differ: what the RFC leaves undefined or forbids is refused, with what to write instead.
Everything is wall-clock time. Weekdays count from Monday 0; local seconds are those of offsets.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from onbeat.domain.errors import DefinitionError
from onbeat.domain.offsets import DAY_S

Frequency = Literal["YEARLY", "MONTHLY", "WEEKLY", "DAILY"]

MOST_TIMES_A_DAY: Final = 24
MOST_COUNTED: Final = 10_000
LONGEST_RULE: Final = 1_000
"""Characters."""

_LONGEST_INTERVALS: Final[dict[Frequency, int]] = {"YEARLY": 100, "MONTHLY": 1_200, "WEEKLY": 5_200, "DAILY": 36_500}
"""A century each: more is a slip of the pen."""

_LONGEST_PERIODS: Final[dict[Frequency, int]] = {"YEARLY": 366, "MONTHLY": 31, "WEEKLY": 7, "DAILY": 1}
"""Days."""

_WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_NUMBER = re.compile(r"[+-]?\d{1,3}", re.ASCII)
_WEEKDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_UNTIL = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?", re.ASCII)
_DAY_PARTS: Final = ("BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY")
_PARTS: Final = frozenset(
    ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYHOUR", "BYMINUTE", "BYSECOND", "BYSETPOS", *_DAY_PARTS)
)
_ELSEWHERE: Final = {
    "DTSTART": "give dtstart and timezone beside the rule",
    "EXDATE": "put the dates into a calendar and name it in exclude",
    "RDATE": "give each further instant as a schedule of its own, with at",
    "EXRULE": "put the days into a calendar and name it in exclude",
    "RRULE": "write one schedule for each rule: a job fires at the union of them",
}
_DENSER: Final = {"HOURLY": "1h", "MINUTELY": "1m", "SECONDLY": "1s"}


@dataclass(frozen=True, slots=True)
class DayFilter:
    """Which days of a year a rule names, whatever its interval. An empty set names every day."""

    months: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()  # negative ones count from the end
    year_days: frozenset[int] = frozenset()
    week_numbers: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()  # (weekday, n)
    nth_in_year: bool = False  # n counts in the year; else in the month
    week_start: int = 0


@dataclass(frozen=True, slots=True)
class RecurrenceRule:
    """A rule, complete: nothing is left to take from `dtstart`."""

    frequency: Frequency
    interval: int
    days: DayFilter
    times: tuple[int, ...]  # seconds of the day, in order
    positions: tuple[int, ...]  # BYSETPOS: which instants of each period; empty: all
    count: int | None
    until_local: int | None  # local seconds, inclusive
    until_instant: int | None  # seconds UTC, inclusive


def parse_rrule(text: str, *, dtstart: int) -> RecurrenceRule:
    """The rule behind `text`, beginning at local second `dtstart`. Raises DefinitionError(`rrule_invalid`)."""
    parts = _split(text)
    frequency = _frequency(parts)
    for name, allowed in (
        ("BYWEEKNO", ("YEARLY",)),
        ("BYYEARDAY", ("YEARLY",)),
        ("BYMONTHDAY", ("YEARLY", "MONTHLY", "DAILY")),
    ):
        if name in parts and frequency not in allowed:
            raise _refusal(f"{name} has no meaning with FREQ={frequency}", f"use it with FREQ={' or '.join(allowed)}")
    if "COUNT" in parts and "UNTIL" in parts:
        raise _refusal("COUNT and UNTIL exclude each other", "leave one of them out")
    until_local, until_instant = _until(parts["UNTIL"]) if "UNTIL" in parts else (None, None)
    times = _times(parts, dtstart % DAY_S)
    return RecurrenceRule(
        frequency=frequency,
        interval=_single(parts, "INTERVAL", most=_LONGEST_INTERVALS[frequency]) or 1,
        days=_days(parts, frequency, datetime.fromtimestamp(dtstart, UTC)),
        times=times,
        positions=_positions(parts, most=min(_LONGEST_PERIODS[frequency] * len(times), 366)),
        count=_single(parts, "COUNT", most=MOST_COUNTED),
        until_local=until_local,
        until_instant=until_instant,
    )


def _split(text: str) -> dict[str, str]:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_RULE:
        raise _refusal(
            f"a rule is text of 1 to {LONGEST_RULE} characters", "write it like FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9"
        )
    rule = text.strip().upper().removeprefix("RRULE:")
    for name, remedy in _ELSEWHERE.items():
        if re.search(rf"(?:^|[\s;]){name}\b", rule):
            what = "a second RRULE" if name == "RRULE" else name
            raise _refusal(f"{what} is not part of a rule", remedy)
    if len(rule.split()) > 1:
        raise _refusal("a rule is one line without spaces", "write the rule alone, such as FREQ=WEEKLY;BYDAY=MO")
    parts: dict[str, str] = {}
    for part in rule.removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        if name not in _PARTS or not equals or not value:
            raise _refusal(f"{part[:40]!r} is no part of a rule", "parts look like FREQ=WEEKLY or BYDAY=MO,WE")
        if name in parts:
            raise _refusal(f"{name} stands there twice", "give its values in one list, such as BYDAY=MO,WE")
        parts[name] = value
    return parts


def _frequency(parts: dict[str, str]) -> Frequency:
    written = parts.get("FREQ", "")
    if written in _DENSER:
        raise _refusal(
            f"FREQ={written} is denser than a day",
            f'use every, such as {{"every": "{_DENSER[written]}"}}, or cron for wall-clock times',
        )
    if written not in _LONGEST_INTERVALS:
        raise _refusal(
            f"FREQ={written[:20]} is no frequency" if written else "the rule has no FREQ",
            f"give FREQ={', '.join(_LONGEST_INTERVALS)}",
        )
    return written


def _days(parts: dict[str, str], frequency: Frequency, start: datetime) -> DayFilter:
    months = _numbers(parts, "BYMONTH", 1, 12)
    month_days = _numbers(parts, "BYMONTHDAY", 1, 31, signed=True)
    weekdays, nth_weekdays = _weekdays(parts, frequency)
    if "BYWEEKNO" in parts and "BYDAY" not in parts:
        raise _refusal("programs differ in which days BYWEEKNO alone means", "say which with BYDAY, such as BYDAY=MO")
    if not any(name in parts for name in _DAY_PARTS):
        if frequency == "YEARLY" and not months:
            months = {start.month}
        if frequency in ("YEARLY", "MONTHLY"):
            month_days = {start.day}
        if frequency == "WEEKLY":
            weekdays = {start.weekday()}
    week_numbers = _numbers(parts, "BYWEEKNO", 1, 53, signed=True)
    if week_numbers and min(week_numbers) < -51:
        raise _refusal("a week is counted from the end of a year up to -51", "count it from the front: BYWEEKNO=1")
    week_start = parts.get("WKST", "MO")
    if week_start not in _WEEKDAYS:
        raise _refusal(f"WKST={week_start[:20]} is no day of the week", f"use one of {', '.join(_WEEKDAYS)}")
    return DayFilter(
        months=frozenset(months),
        month_days=frozenset(month_days),
        year_days=frozenset(_numbers(parts, "BYYEARDAY", 1, 366, signed=True)),
        week_numbers=frozenset(week_numbers),
        weekdays=frozenset(weekdays),
        nth_weekdays=frozenset(nth_weekdays),
        nth_in_year=frequency == "YEARLY" and not months,
        week_start=_WEEKDAYS.index(week_start),
    )


def _weekdays(parts: dict[str, str], frequency: Frequency) -> tuple[set[int], set[tuple[int, int]]]:
    plain: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        match = _WEEKDAY.fullmatch(item)
        number = None if match is None or match[1] is None else int(match[1])
        if match is None or (number is not None and not 1 <= abs(number) <= 53):
            raise _refusal(f"{item[:20]!r} in BYDAY is no day of the week", "write MO, or -1FR for the last Friday")
        if number is None:
            plain.add(_WEEKDAYS.index(match[2]))
        elif frequency not in ("YEARLY", "MONTHLY") or "BYWEEKNO" in parts:
            beside = "BYWEEKNO" if "BYWEEKNO" in parts else f"FREQ={frequency}"
            raise _refusal(f"BYDAY={item} counts days, which has no meaning with {beside}", f"write BYDAY={match[2]}")
        else:
            nth.add((_WEEKDAYS.index(match[2]), number))
    return plain, nth


def _times(parts: dict[str, str], start: int) -> tuple[int, ...]:
    hours = _numbers(parts, "BYHOUR", 0, 23) or {start // 3600}
    minutes = _numbers(parts, "BYMINUTE", 0, 59) or {start // 60 % 60}
    seconds = _numbers(parts, "BYSECOND", 0, 59) or {start % 60}
    if len(hours) * len(minutes) * len(seconds) > MOST_TIMES_A_DAY:
        raise _refusal(
            f"the rule names more than {MOST_TIMES_A_DAY} times a day", "use every, or cron for wall-clock times"
        )
    return tuple(
        sorted(hour * 3600 + minute * 60 + second for hour in hours for minute in minutes for second in seconds)
    )


def _positions(parts: dict[str, str], *, most: int) -> tuple[int, ...]:
    if "BYSETPOS" in parts and not any(name.startswith("BY") and name != "BYSETPOS" for name in parts):
        raise _refusal("BYSETPOS picks from what other BY… parts name, and there are none", "leave it out")
    return tuple(sorted(_numbers(parts, "BYSETPOS", 1, most, signed=True)))


def _single(parts: dict[str, str], name: str, *, most: int) -> int | None:
    written = parts.get(name)
    if written is None:
        return None
    if not (written.isascii() and written.isdigit() and len(written) <= 9 and 1 <= int(written) <= most):
        raise _refusal(f"{name}={written[:20]} is not a number from 1 to {most}", "give another, or leave it out")
    return int(written)


def _numbers(parts: dict[str, str], name: str, least: int, most: int, *, signed: bool = False) -> set[int]:
    found: set[int] = set()
    for item in parts[name].split(",") if name in parts else ():
        size: Callable[[int], int] = abs if signed else int
        if not _NUMBER.fullmatch(item) or not least <= size(int(item)) <= most:
            also = f", or -{most} to -{least}" if signed else ""
            raise _refusal(f"{item[:20]!r} in {name} is not {least} to {most}{also}", "give numbers in that range")
        found.add(int(item))
    return found


def _until(written: str) -> tuple[int | None, int | None]:
    """The wall-clock second or the instant after which nothing fires."""
    match = _UNTIL.fullmatch(written)
    if match is None:
        raise _refusal(f"UNTIL={written[:20]} is no moment", "write UNTIL=20261231T235959, or with a Z for UTC")
    if match[2] is None:
        raise _refusal("programs differ in whether the day of UNTIL is in", f"give its time: UNTIL={written}T235959")
    try:
        moment = datetime.strptime(match[1] + match[2], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise _refusal(f"UNTIL={written} is not on the calendar", "give a day and a time that exist") from None
    second = int(moment.timestamp())
    return (None, second) if match[3] else (second, None)


def _refusal(detail: str, remedy: str) -> DefinitionError:
    return DefinitionError("rrule_invalid", detail, field="rrule", remedy=remedy)
