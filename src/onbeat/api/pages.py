"""Pages: a limit and an opaque cursor.

A cursor carries a checksum so that an edited one is refused. It needs no secret: it says only where to go on, and
what may be seen is decided by the filter and the caller's key, not by the cursor.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

from fastapi import Query, Response

from onbeat.api.answers import json_answer
from onbeat.domain.errors import CursorInvalid
from onbeat.store.values import Page

Limit = Annotated[int, Query(ge=1, le=1_000, description="Items per page")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before")]

LARGEST_PAGE: Final = 1_000
_CHECKSUM_BYTES: Final = 6

Item = TypeVar("Item")


def read_page(limit: int, cursor: str | None, *, kind: str, parts: int = 2) -> Page:
    """What to ask the store for: one item more than the page, to know whether there is another page.

    `kind` keeps cursors of different lists apart. Raises CursorInvalid.
    """
    return Page(limit=min(limit + 1, LARGEST_PAGE), after=read_cursor(cursor, kind=kind, parts=parts))


def read_cursor(cursor: str | None, *, kind: str, parts: int = 2) -> tuple[int, ...] | None:
    """The place behind which to go on; None: at the start. Raises CursorInvalid."""
    if cursor is None:
        return None
    refused = CursorInvalid(field="cursor", remedy="use next_cursor as it was given")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        checksum, text = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        after = tuple(int(part) for part in text.split(b","))
    except ValueError:
        raise refused from None
    if checksum != _checksum(text, kind) or len(after) != parts or not all(0 <= part < 2**63 for part in after):
        raise refused
    return after


def page_answer(
    found: Sequence[Item],
    *,
    limit: int,
    kind: str,
    view: Callable[[Item], dict[str, Any]],
    place: Callable[[Item], tuple[int, ...]],
) -> Response:
    """A page of what was found, and the cursor behind its last item where there may be more."""
    items = found[:limit]
    is_last = len(found) < limit or len(found) == limit < LARGEST_PAGE
    next_cursor = None if is_last else encode_cursor(place(items[-1]), kind=kind)
    return json_answer({"items": [view(item) for item in items], "next_cursor": next_cursor})


def encode_cursor(after: tuple[int, ...], *, kind: str) -> str:
    """The cursor for that place in lists of that kind."""
    text = ",".join(str(part) for part in after).encode()
    return base64.urlsafe_b64encode(_checksum(text, kind) + text).decode().rstrip("=")


def _checksum(text: bytes, kind: str) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()[:_CHECKSUM_BYTES]
