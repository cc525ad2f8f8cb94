"""A zone as stretches of constant UTC offset: the ground that the cron walk stands on.

Inside a stretch, local time is `utc + offset` and everything is plain arithmetic on integers. What is special
happens only where one stretch meets the next: a gap (the clock jumps forward) or an overlap (it jumps back).
All times here are whole seconds; "local seconds" are seconds since 1970-01-01T00:00 on the wall clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from onbeat.domain.zones import zone

DAY_S: Final = 86_400
LAST_SECOND: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: nothing is planned after it."""

LONGEST_BACKWARD_SHIFT_S: Final = DAY_S
"""More than any clock has been put back since 1970 (Vostok 1994: 7 h). A test holds it against the wheel."""

# Changes lie at least a week apart in every zone since 1970 (same test), so looking once a day finds each.
_PROBE_S = DAY_S
_WINDOW_S = 64 * DAY_S
# Windows reach this far into their neighbours, so that a stretch around an instant always knows what was before it.
_MARGIN_S = 3 * DAY_S
# Past the last rule change of any year and far enough from the end for datetime to convert.
_LAST_PROBE = LAST_SECOND - 2 * DAY_S


class Stretch(NamedTuple):
    """Instants `start <= u < end` that share one offset. `before` is the offset just before `start`.

    `before == offset` says that `start` is only where our window begins and no change of the clock.
    """

    start: int
    end: int
    offset: int
    before: int


def offset_at(timezone: str, second: int) -> int:
    """Local minus UTC, in seconds, at an instant."""
    local = datetime.fromtimestamp(min(second, _LAST_PROBE), zone(timezone))
    offset = local.utcoffset()
    assert offset is not None  # an aware datetime has one
    return offset.days * DAY_S + offset.seconds


def stretch_at(timezone: str, second: int) -> Stretch:
    """The stretch around an instant, cut to a window of some weeks."""
    stretches = _stretches(timezone, second // _WINDOW_S)
    for stretch in stretches:
        if second < stretch.end:
            return stretch
    raise AssertionError("a window covers its own instants")


def stretches_from(timezone: str, second: int) -> Iterator[Stretch]:
    """The stretches from the one around `second` on, without end."""
    while True:
        stretch = stretch_at(timezone, second)
        yield stretch
        second = stretch.end


def next_change(timezone: str, second: int, *, within_s: int) -> Stretch | None:
    """The first stretch that begins with a change of the clock in `(second, second + within_s]`."""
    for stretch in stretches_from(timezone, second):
        if stretch.start > second + within_s or stretch.start > LAST_SECOND:
            return None
        if stretch.start > second and stretch.before != stretch.offset:
            return stretch
    return None


def pass_number(timezone: str, second: int) -> int | None:
    """1 or 2 where an instant's local time comes twice; None where it comes once."""
    stretch = stretch_at(timezone, second)
    if second < stretch.start + stretch.before - stretch.offset:
        return 2
    return 1 if repeats_from(timezone, stretch) <= second < stretch.end else None


def repeats_from(timezone: str, stretch: Stretch) -> int:
    """The instant of a stretch from which on its local times come again after it; its end where none do.

    Exact for a stretch as `stretch_at` gives it, asked about instants up to two days past the one it was asked for.
    """
    following = stretch_at(timezone, stretch.end)
    if following.start < stretch.end:
        return stretch.end  # only our window ends here
    return stretch.end - max(following.before - following.offset, 0)


@lru_cache(maxsize=16_384)
def _stretches(timezone: str, window: int) -> tuple[Stretch, ...]:
    first = window * _WINDOW_S - _MARGIN_S
    last = (window + 1) * _WINDOW_S + _MARGIN_S
    found: list[Stretch] = []
    start, offset, before = first, offset_at(timezone, first), None
    low = first
    while low < last:
        high = min(low + _PROBE_S, last)
        new = offset_at(timezone, high)
        if new != offset:
            change = _first_with(timezone, new, low, high)
            found.append(Stretch(start, change, offset, offset if before is None else before))
            start, offset, before = change, new, offset
        low = high
    found.append(Stretch(start, last, offset, offset if before is None else before))
    return tuple(found)


def _first_with(timezone: str, offset: int, low: int, high: int) -> int:
    """The first second in `(low, high]` from which on `offset` holds."""
    while high - low > 1:
        middle = (low + high) // 2
        if offset_at(timezone, middle) == offset:
            high = middle
        else:
            low = middle
    return high


def format_offset(offset: int) -> str:
    """`-0400`; with seconds where history has them: `-034352`."""
    sign, size = ("-", -offset) if offset < 0 else ("+", offset)
    text = f"{sign}{size // 3600:02d}{size // 60 % 60:02d}"
    return text + f"{size % 60:02d}" if size % 60 else text


def format_local(local: int, *, offset: int | None = None) -> str:
    """`Sun 2025-03-09 03:00 -0400`; seconds only where they are not zero; no offset for a time that does not exist."""
    at = datetime.fromtimestamp(local, UTC)
    # strftime gives names in the host's language.
    weekday = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[at.weekday()]
    text = f"{weekday} {at:%Y-%m-%d %H:%M}" if not at.second else f"{weekday} {at:%Y-%m-%d %H:%M:%S}"
    return text if offset is None else f"{text} {format_offset(offset)}"
