"""Lengths of time as people write them: `90`, `"90s"`, `"1h30m"`, `"2d"`, `"PT2H"`. Whole seconds, more than zero.

Days are 86,400 s of elapsed time and know no daylight saving; months and years have no fixed length and are refused.
"""

from __future__ import annotations

import re
from typing import Final

from onbeat.domain.errors import RequestError

LONGEST_S: Final = 100 * 366 * 86_400
"""A length beyond this is a slip of the pen, whatever it is meant for. Each field has its own, tighter bounds."""

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_COMPACT = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII)
_LONGEST_TEXT = 40
_EXAMPLES = 'write whole seconds (90), "90s", "5m", "1h30m", "2d" or "PT2H"'


def parse_duration(value: int | str, *, field: str) -> int:
    """Seconds. Raises RequestError, saying what is wrong with the value."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise RequestError(f"{_shown(value)} is not a length of time", field=field, remedy=_EXAMPLES)
    seconds = value if isinstance(value, int) else _parse_text(value, field)
    if seconds <= 0:
        raise RequestError(f"{_shown(value)} is not more than zero", field=field, remedy="give at least one second")
    if seconds > LONGEST_S:
        raise RequestError(f"{_shown(value)} is longer than 100 years", field=field, remedy=_EXAMPLES)
    return seconds


def _parse_text(text: str, field: str) -> int:
    if len(text) <= _LONGEST_TEXT:
        stripped = text.strip(" ")
        if re.fullmatch(r"\d+", stripped, re.ASCII):
            return int(stripped)
        match = _ISO.fullmatch(stripped.upper()) or _COMPACT.fullmatch(stripped.lower())
        if match is not None and any(match.groups()):
            return sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_S.values(), strict=True))
    raise RequestError(f"{_shown(text)} {_fault(text)}", field=field, remedy=_EXAMPLES)


def _fault(text: str) -> str:
    body = text.strip(" ").upper()
    if len(text) > _LONGEST_TEXT:
        return "is too long to be a length of time"
    if body.startswith(("-", "P-")):
        return "is not more than zero"
    if re.search(r"\d[.,]\d", body):
        return "has a fraction; lengths are whole seconds"
    date_part = body.removeprefix("P").split("T")[0]
    if body.startswith("P") and re.search(r"\d[YM]", date_part, re.ASCII):
        return "counts months or years, which have no fixed length; a cron expression can follow the calendar"
    if re.fullmatch(r".*\d *(Y|YEARS?|MO|MONTHS?)", body, re.ASCII):
        return "counts months or years, which have no fixed length; a cron expression can follow the calendar"
    return "is not a length of time"


def format_duration(seconds: int) -> str:
    """`1h30m`: the shortest text that `parse_duration` reads back. Zero is `0s`."""
    parts: list[str] = []
    rest = seconds
    for unit, size in _UNITS_S.items():
        if unit == "w":  # "14d" is read faster than "2w"
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
