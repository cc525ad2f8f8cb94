"""Bodies are read once, bounded and strictly, before any endpoint sees them.

Python's JSON accepts duplicate keys, NaN, 1e400 and lone surrogates; each of them would be stored as something other
than what the sender meant, or break later. Source: reliability §3.4 F109–F117.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request

from onbeat.domain.errors import OnbeatError

DEEPEST: Final = 64
LONGEST_LENGTH: Final = 19
"""Digits of a Content-Length that could be meant: Python refuses to read thousands of them."""

PARSED_APART: Final = 131_072
"""Larger bodies are parsed on a thread: a batch takes long enough to be felt by the dispatcher in this process."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonRefused(OnbeatError):
    """The body is not acceptable JSON."""

    code = "json_invalid"


class BodyTooLarge(OnbeatError):
    """The body is too large."""

    code = "body_too_large"


class MediaTypeRefused(OnbeatError):
    """The body's media type or encoding is not supported."""

    code = "media_type_unsupported"


async def read_body(request: Request, *, largest: int, media_types: tuple[str, ...]) -> tuple[bytes, Any]:
    """The body as it came and its value; `b""` and None where there is none.

    Raises MediaTypeRefused and BodyTooLarge before reading, where the headers tell, and JsonRefused.
    """
    headers = request.headers
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise MediaTypeRefused("the body is compressed", remedy="send it without Content-Encoding")
    length = headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > largest):
        raise _too_large(largest)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > largest:
            raise _too_large(largest)
        chunks.append(chunk)
    raw = b"".join(chunks)
    if not raw:
        return b"", None
    _check_media_type(headers, media_types)
    value = parse_strictly(raw) if len(raw) <= PARSED_APART else await asyncio.to_thread(parse_strictly, raw)
    return raw, value


def parse_strictly(body: bytes) -> Any:
    """The value. Raises JsonRefused."""
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_float=_finite
        )
        if _SURROGATE_ESCAPE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise JsonRefused("the body is not UTF-8") from None
    except UnicodeEncodeError:
        raise JsonRefused("a text has half of a surrogate pair") from None
    except RecursionError:
        raise JsonRefused(f"the body is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise JsonRefused(f"the body is not JSON: {error}") from None
    _check_depth(value)
    return value


def _too_large(largest: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body may have {largest} bytes at most", remedy="split it, or store data elsewhere")


def _check_media_type(headers: Headers, media_types: tuple[str, ...]) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in media_types:
        raise MediaTypeRefused(
            f"the body is {media_type[:80] or 'of no stated type'}", remedy=f"send it as {media_types[0]}"
        )


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


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise JsonRefused(f"the body is nested deeper than {DEEPEST} levels")
