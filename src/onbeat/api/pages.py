"""Pages: a limit and an opaque cursor, which carries a checksum so that an edited one is refused."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated

from fastapi import Query

from onbeat.domain.errors import CursorInvalid
from onbeat.store.values import Page

Limit = Annotated[int, Query(ge=1, le=1_000, description="Items per page")]
Cursor = Annotated[str | None, Query(max_length=200, description="`next_cursor` of the page before")]

_CHECKSUM_BYTES = 6


def encode_cursor(after: tuple[int, ...], *, kind: str) -> str:
    """A cursor behind the item with that sort key. `kind` keeps cursors of different lists apart."""
    text = ",".join(str(part) for part in after).encode()
    return base64.urlsafe_b64encode(_checksum(text, kind) + text).decode().rstrip("=")


def read_page(limit: int, cursor: str | None, *, kind: str, parts: int = 2) -> Page:
    """The page asked for. Raises CursorInvalid."""
    if cursor is None:
        return Page(limit=limit)
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        checksum, text = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        after = tuple(int(part) for part in text.split(b","))
    except ValueError:
        raise CursorInvalid(field="cursor", remedy="use next_cursor as it was given") from None
    if checksum != _checksum(text, kind) or len(after) != parts:
        raise CursorInvalid(field="cursor", remedy="use next_cursor as it was given")
    return Page(limit=limit, after=after)


def _checksum(text: bytes, kind: str) -> bytes:
    return hashlib.sha256(kind.encode() + b"\0" + text).digest()[:_CHECKSUM_BYTES]
