"""Walking what a filter finds: in groups, to a limit, past refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onbeat.domain.errors import StateConflict, StoreUnavailable
from onbeat.services.bulk import COUNTED_AT_MOST, GROUP, Find, act_on_each, count_found
from onbeat.store.values import Page


def numbers(count: int, *, pages: list[int] | None = None) -> Find[int]:
    """`0..count-1`, as a store would find them."""

    async def find(page: Page) -> Sequence[int]:
        if pages is not None:
            pages.append(page.limit)
        start = 0 if page.after is None else page.after[0] + 1
        return range(start, min(start + page.limit, count))

    return find


def place(number: int) -> tuple[int, ...]:
    return (number,)


@pytest.mark.parametrize(
    ("there", "counted", "more"),
    [
        (0, 0, False),
        (1, 1, False),
        (999, 999, False),
        (1_000, 1_000, False),
        (1_001, 1_001, False),
        (COUNTED_AT_MOST, COUNTED_AT_MOST, False),
        (COUNTED_AT_MOST + 1, COUNTED_AT_MOST, True),
        (10**9, COUNTED_AT_MOST, True),
    ],
)
async def test_a_count_is_exact_up_to_its_cap(there: int, counted: int, more: bool) -> None:
    answer = await count_found(numbers(there), place=place, after=None)
    assert (answer.count, answer.more) == (counted, more)
    assert list(answer.first) == list(range(min(there, 10)))


async def test_a_count_begins_behind_the_cursor() -> None:
    answer = await count_found(numbers(30), place=place, after=(9,))
    assert (answer.count, answer.first[0]) == (20, 10)


@pytest.mark.parametrize(("there", "limit", "last"), [(5, 1_000, None), (250, 250, 249), (250, 120, 119), (0, 1, None)])
async def test_the_limit_is_kept_in_groups_and_the_last_one_told(there: int, limit: int, last: int | None) -> None:
    pages: list[int] = []
    seen: list[int] = []

    async def act(number: int) -> bool:
        seen.append(number)
        return number % 2 == 0

    acted = await act_on_each(numbers(there, pages=pages), act, place=place, after=None, limit=limit)
    assert seen == list(range(min(there, limit)))
    assert acted.last == last
    assert (acted.done + acted.unchanged, acted.refused) == (len(seen), ())
    assert max(pages) <= GROUP


async def test_refusals_are_collected_and_a_broken_database_stops_the_walk() -> None:
    async def act(number: int) -> bool:
        if number == 7:
            raise StateConflict("seven")
        if number == GROUP + 1:
            raise StoreUnavailable("the disk is gone")
        return True

    acted = await act_on_each(numbers(10_000), act, place=place, after=None, limit=GROUP)
    assert (acted.done, [(number, error.detail) for number, error in acted.refused]) == (GROUP - 1, [(7, "seven")])
    with pytest.raises(StoreUnavailable):
        await act_on_each(numbers(10_000), act, place=place, after=None, limit=1_000)
