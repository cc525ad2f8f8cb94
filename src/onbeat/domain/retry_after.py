"""Reads `Retry-After`: seconds, or a date in any of the three forms of RFC 9110 §5.6.7. Pure; `now` is given."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from onbeat.domain.model import SECOND_US

_SECONDS = re.compile(r"[0-9]+", re.ASCII)
_MANY_DIGITS: Final = 10
_MANY_SECONDS: Final = 9_999_999_999.0  # more than 300 years; whoever plans the retry caps it


def parse_retry_after(value: str, *, now: int) -> float | None:
    """Seconds from `now` (µs UTC) that the receiver asks us to wait: 0 for a date that has passed.

    None: the value means nothing (negative, a fraction, words). A date without a zone, or with -0000, is UTC.
    """
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return float(text) if len(text) <= _MANY_DIGITS else _MANY_SECONDS
    if len(text) > 64:
        return None
    try:
        asked = parsedate_to_datetime(text)
        if asked.tzinfo is None:
            asked = asked.replace(tzinfo=UTC)
        seconds = asked.timestamp() - now / SECOND_US
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, seconds)
