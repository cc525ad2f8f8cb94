"""JSON as it is meant.

Python's JSON accepts duplicate keys, NaN, 1e400 and lone surrogates; each of them would be stored as something other
than what the sender meant, or break later.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from onbeat.domain.errors import OnbeatError

DEEPEST: Final = 64
"""Levels of a body that the API takes."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonRefused(OnbeatError):
    """It is not acceptable JSON."""

    code = "json_invalid"


def parse_strictly(text: bytes, *, deepest: int = DEEPEST) -> Any:
    """The value, at most so many levels deep. Raises JsonRefused."""
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_float=_finite
        )
        if _SURROGATE_ESCAPE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise JsonRefused("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise JsonRefused("a text has half of a surrogate pair") from None
    except RecursionError:
        raise JsonRefused(f"it is nested deeper than {deepest} levels") from None
    except ValueError as error:
        raise JsonRefused(f"it is not JSON: {error}") from None
    _check_depth(value, deepest)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonRefused(f"the key {twice[:60]!a} stands twice in one object", remedy="keep one of the two")
    return found


def _refuse_constant(name: str) -> Any:
    raise JsonRefused(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JsonRefused(f"the number {text[:40]} is too large")
    return number


def _check_depth(value: Any, deepest: int) -> None:
    level = [value]
    for _ in range(deepest):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise JsonRefused(f"it is nested deeper than {deepest} levels")
