"""Moments at the edges: RFC 3339 text to integer µs UTC and back, and local one-shot times.

Inside, a moment is microseconds since 1970-01-01T00:00:00Z. Text without an offset is never guessed at. A leap
second (`23:59:60Z`) is read as the second after it, which is how POSIX clocks count; it cannot be written.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from onbeat.domain.errors import RequestError
from onbeat.domain.model import SECOND_US
from onbeat.domain.offsets import DAY_S, LAST_SECOND, stretches_from
from onbeat.domain.zones import zone

LAST_INSTANT: Final = LAST_SECOND * SECOND_US + SECOND_US - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_SHAPE = r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)"
_INSTANT = re.compile(_LOCAL_SHAPE + r":(\d\d)(?:\.(\d{1,18}))?(?:([Zz])|([+-])(\d\d):(\d\d))?", re.ASCII)
_LOCAL = re.compile(_LOCAL_SHAPE + r"(?::(\d\d))?", re.ASCII)
_SHOWN_LENGTH = 60


def parse_instant(text: str, *, field: str) -> int:
    """µs UTC behind an RFC 3339 text with offset. Raises RequestError.

    Digits beyond the microsecond are dropped. Anything before 1970 or after 9999 is refused.
    """
    match = _INSTANT.fullmatch(text) if isinstance(text, str) and len(text) <= _SHOWN_LENGTH else None
    if match is None:
        raise _refusal(text, "is not an RFC 3339 instant", field, "write it like 2026-05-01T09:00:00Z")
    *parts, fraction, zulu, sign, offset_hours, offset_minutes = match.groups()
    if zulu is None and sign is None:
        raise _refusal(text, "has no UTC offset", field, f"add one: {text}Z for UTC, or an offset such as {text}+02:00")
    offset = timedelta(0)
    if sign is not None:
        if int(offset_hours) > 23 or int(offset_minutes) > 59:
            raise _refusal(text, "has an offset that no clock has", field, "offsets run from -23:59 to +23:59")
        offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes)) * (-1 if sign == "-" else 1)
    year, month, day, hour, minute, second = (int(part) for part in parts)
    is_leap_second = second == 60
    micros = 0 if is_leap_second else int((fraction or "")[:6].ljust(6, "0"))
    try:
        wall = datetime(year, month, day, hour, minute, 59 if is_leap_second else second, micros, tzinfo=UTC)
    except ValueError as error:
        raise _refusal(text, f"is not a date and time: {error}", field, "check it against the calendar") from None
    instant = (wall - _EPOCH - offset) // timedelta(microseconds=1)
    if is_leap_second:
        instant += SECOND_US
        if instant % (DAY_S * SECOND_US):
            raise _refusal(text, "has second 60 where no leap second can be", field, "use seconds 00 to 59")
    if not 0 <= instant <= LAST_INSTANT:
        raise _refusal(text, "is out of range", field, "use an instant from 1970 to 9999")
    return instant


def format_instant(instant: int) -> str:
    """`2026-01-01T00:00:00Z`; a fraction of six digits only where the second is not whole."""
    seconds, micros = divmod(instant, SECOND_US)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%m-%dT%H:%M:%S")
    # strftime leaves out leading zeros of early years on some platforms.
    year = (_EPOCH + timedelta(seconds=seconds)).year
    return f"{year:04d}-{text}.{micros:06d}Z" if micros else f"{year:04d}-{text}Z"


def next_whole_second(instant: int) -> int:
    """The instant itself if its second is whole, else the next one: planned instants are whole, and never early."""
    return -(-instant // SECOND_US) * SECOND_US


def resolve_local(text: str, *, timezone: str, field: str) -> int:
    """µs UTC of a wall-clock time without offset, such as `2026-03-08T02:30`, in a zone.

    A time that does not exist becomes the first instant after the gap; a time that occurs twice means its first
    pass. That is the rule of fixed-time cron jobs too. Raises RequestError, or DefinitionError(`timezone_unknown`).
    """
    zone(timezone)
    local = parse_local(text, field=field)
    for stretch in stretches_from(timezone, max(local - 2 * DAY_S, -2 * DAY_S)):
        if local < stretch.start + stretch.offset:
            found = stretch.start  # it fell into the gap that ends here
        elif local < stretch.end + stretch.offset:
            found = local - stretch.offset
        else:
            continue
        if 0 <= found <= LAST_SECOND:
            return found * SECOND_US
        break
    raise _refusal(text, "is out of range", field, "use an instant from 1970 to 9999")


def parse_local(text: str, *, field: str) -> int:
    """Local seconds behind a wall-clock time without offset, whether or not a clock shows it. Raises RequestError."""
    match = _LOCAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _refusal(text, "is not a local date and time", field, "write it like 2026-05-01T09:00:00")
    try:
        wall = datetime(*(int(part or 0) for part in match.groups()), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError as error:
        raise _refusal(text, f"is not a date and time: {error}", field, "check it against the calendar") from None
    return (wall - _EPOCH) // timedelta(seconds=1)


def write_local(local: int) -> str:
    """`2026-05-01T09:00:00`: what `parse_local` reads."""
    return format_instant(local * SECOND_US).removesuffix("Z")


def parse_moment(text: str, *, timezone: str | None, field: str) -> int:
    """µs UTC behind an RFC 3339 text, or behind a wall-clock time where a zone is at hand. Raises RequestError."""
    has_offset = text[-1:] in ("Z", "z") or "+" in text[10:] or "-" in text[10:]
    if has_offset or timezone is None:
        return parse_instant(text, field=field)
    return resolve_local(text, timezone=timezone, field=field)


def _refusal(text: object, problem: str, field: str, remedy: str) -> RequestError:
    shown = repr(text)
    if len(shown) > _SHOWN_LENGTH:
        shown = shown[:_SHOWN_LENGTH] + "…"
    return RequestError(f"{shown} {problem}", field=field, remedy=remedy)
