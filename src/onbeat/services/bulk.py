"""One action on everything that a filter finds: page by page, each item by its own call.

An item is judged as it is when its turn comes. Whoever is cut off goes on with the cursor of the last answer, or
begins anew: what is as asked for already is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from onbeat.domain.errors import OnbeatError, StoreUnavailable
from onbeat.store.values import Page

GROUP: Final = 100
"""Items that are acted on together: each in its own transaction, their commits in one group."""

COUNTED_AT_MOST: Final = 10_000
SHOWN_OF_COUNTED: Final = 10
LARGEST_PAGE: Final = 1_000

Item = TypeVar("Item")
Find = Callable[[Page], Awaitable[Sequence[Item]]]
Place = Callable[[Item], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Acted(Generic[Item]):
    """What became of up to `limit` items. `last` None: nothing is left behind them."""

    done: int
    unchanged: int  # were as asked for already
    refused: tuple[tuple[Item, OnbeatError], ...]
    last: Item | None


@dataclass(frozen=True, slots=True)
class Counted(Generic[Item]):
    """What an action would look at: exact, or `COUNTED_AT_MOST` and more."""

    count: int
    more: bool
    first: tuple[Item, ...]


async def act_on_each(
    find: Find[Item],
    act: Callable[[Item], Awaitable[bool]],
    *,
    place: Place[Item],
    after: tuple[int, ...] | None,
    limit: int,
) -> Acted[Item]:
    """Find and act, up to `limit` items behind `after`. `act` answers whether it changed the item.

    Raises StoreUnavailable where the database fails on the way; what was done before that stays done.
    """
    done = unchanged = 0
    refused: list[tuple[Item, OnbeatError]] = []
    last: Item | None = None
    while limit:
        asked = min(GROUP, limit)
        found = await find(Page(limit=asked, after=after))
        answers = await asyncio.gather(*(act(item) for item in found), return_exceptions=True)
        for item, answer in zip(found, answers, strict=True):
            if isinstance(answer, OnbeatError) and not isinstance(answer, StoreUnavailable):
                refused.append((item, answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                done += answer
                unchanged += not answer
        if len(found) < asked:
            return Acted(done, unchanged, tuple(refused), last=None)
        last = found[-1]
        after = place(last)
        limit -= asked
    return Acted(done, unchanged, tuple(refused), last)


async def count_found(find: Find[Item], *, place: Place[Item], after: tuple[int, ...] | None) -> Counted[Item]:
    """How many items there are behind `after`, and the first few."""
    first: tuple[Item, ...] = ()
    count = 0
    page = Page(limit=LARGEST_PAGE, after=after)
    while found := await find(page):
        first = first or tuple(found[:SHOWN_OF_COUNTED])
        count += len(found)
        if count > COUNTED_AT_MOST:
            return Counted(COUNTED_AT_MOST, more=True, first=first)
        if len(found) < page.limit:
            break
        page = replace(page, after=place(found[-1]))
    return Counted(count, more=False, first=first)
