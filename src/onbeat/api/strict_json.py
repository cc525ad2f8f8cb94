"""Bodies are read once, bounded and strictly, before any route sees them.

Python's JSON accepts duplicate keys, NaN, 1e400 and lone surrogates; each of them would be stored as something other
than what the sender meant, or break later. Source: reliability §3.4 F109–F117.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onbeat.api.problems import problem_response

LARGEST_BODY: Final = 1_048_576
LARGEST_BATCH_BODY: Final = 33_554_432
BATCH_PATHS: Final = ("/v1/jobs:batch", "/v1/runs/finish")
MEDIA_TYPES: Final = ("application/json", "application/merge-patch+json")
DEEPEST: Final = 64

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonRefused(ValueError):
    """The text is not acceptable JSON; the message says why."""


def parse_strictly(body: bytes) -> Any:
    """The value. Raises JsonRefused."""
    try:
        value = json.loads(
            body.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_float=_finite
        )
        if _SURROGATE_ESCAPE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except JsonRefused:
        raise
    except UnicodeDecodeError:
        raise JsonRefused("the body is not UTF-8") from None
    except UnicodeEncodeError:
        raise JsonRefused("the body has half a surrogate pair") from None
    except RecursionError:
        raise JsonRefused("the body is nested too deeply") from None
    except ValueError as error:
        raise JsonRefused(f"the body is not JSON: {error}") from None
    _check_depth(value)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonRefused(f"the key {twice[:60]!r} stands twice in one object")
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


class StrictJson:
    """ASGI middleware: refuses a body that is too large, encoded, of another type, or not strict JSON."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        largest = LARGEST_BATCH_BODY if scope["path"] in BATCH_PATHS else LARGEST_BODY
        refusal = _refuse_headers(headers, largest)
        body = b""
        if refusal is None:
            body, fits = await _read(receive, largest)
            if not fits:
                refusal = "body_too_large", f"the body may have {largest} bytes at most"
        if refusal is None and body:
            refusal = _refuse_body(headers, body)
        if refusal is not None:
            await problem_response(*refusal)(scope, receive, send)
            return
        scope.setdefault("state", {})["body"] = body
        await self._app(scope, _replay(body, receive), send)


def _refuse_headers(headers: dict[bytes, bytes], largest: int) -> tuple[str, str] | None:
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        return "media_type_unsupported", "send the body without Content-Encoding"
    length = headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > largest:
        return "body_too_large", f"the body may have {largest} bytes at most"
    return None


def _refuse_body(headers: dict[bytes, bytes], body: bytes) -> tuple[str, str] | None:
    media_type = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
    if media_type not in MEDIA_TYPES:
        return "media_type_unsupported", "send the body as application/json"
    try:
        parse_strictly(body)
    except JsonRefused as error:
        return "json_invalid", str(error)
    return None


async def _read(receive: Receive, largest: int) -> tuple[bytes, bool]:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"", True  # the client has gone; nobody reads the answer
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > largest:
            return b"", False
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks), True


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()  # the disconnect
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
