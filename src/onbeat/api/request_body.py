"""Bodies are read once, bounded and strictly, before any endpoint sees them. Source: reliability §3.4 F109–F117."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.requests import Request

from onbeat.domain.errors import OnbeatError
from onbeat.domain.strict_json import parse_strictly

LONGEST_LENGTH: Final = 19
"""Digits of a Content-Length that could be meant: Python refuses to read thousands of them."""

PARSED_APART: Final = 131_072
"""Larger bodies are parsed on a thread: a batch takes long enough to be felt by the dispatcher in this process."""


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


def _too_large(largest: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body may have {largest} bytes at most", remedy="split it, or store data elsewhere")


def _check_media_type(headers: Headers, media_types: tuple[str, ...]) -> None:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in media_types:
        raise MediaTypeRefused(
            f"the body is {media_type[:80] or 'of no stated type'}", remedy=f"send it as {media_types[0]}"
        )
