"""What bulk calls on jobs and on runs share: count or act, and tell what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from fastapi import Response

from onbeat.api.answers import json_answer
from onbeat.api.pages import encode_cursor, read_cursor
from onbeat.api.problems import response_for
from onbeat.api.schemas.bulk import BulkBody
from onbeat.services.bulk import Find, Place, act_on_each, count_found

PROBLEMS_TOLD: Final = 100

Item = TypeVar("Item")


async def bulk_answer(
    body: BulkBody,
    find: Find[Item],
    act: Callable[[Item], Awaitable[bool]],
    *,
    kind: str,
    place: Place[Item],
    name: Callable[[Item], str],
) -> Response:
    """Count or act, as the body says. Cursors are of `kind`. Raises CursorInvalid."""
    after = read_cursor(body.cursor, kind=kind)
    if body.dry_run:
        counted = await count_found(find, place=place, after=after)
        first = [name(item) for item in counted.first]
        return json_answer({"count": counted.count, "more": counted.more, "first": first})
    acted = await act_on_each(find, act, place=place, after=after, limit=body.limit)
    problems: list[dict[str, Any]] = [
        {"id": name(item), "error": msgspec.Raw(bytes(response_for(error).body))}
        for item, error in acted.refused[:PROBLEMS_TOLD]
    ]
    return json_answer(
        {
            "done": acted.done,
            "unchanged": acted.unchanged,
            "refused": len(acted.refused),
            "problems": problems,
            "next_cursor": None if acted.last is None else encode_cursor(place(acted.last), kind=kind),
        }
    )
