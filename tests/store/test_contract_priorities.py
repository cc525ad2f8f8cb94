"""In which order runs that are ready are claimed."""

from __future__ import annotations

import pytest
from tests.store.factories import NOW, SECOND, Maker, new_lease

from onbeat.domain.ids import RunKey
from onbeat.store.contract import Store

MINUTE = 60 * SECOND


async def claim(store: Store, limit: int, *, now: int = NOW, queue: str | None = None) -> list[RunKey]:
    return [run.key for run in await store.leases.claim([new_lease() for _ in range(limit)], now=now, queue=queue)]


async def ready(make: Maker, priority: int, ready_at: int = NOW, *, queue: str | None = None) -> RunKey:
    return await make.pending(await make.job(), ready_at, priority=priority, queue=queue)


@pytest.mark.parametrize("queue", [None, "mail"])
@pytest.mark.order_over_slots
async def test_higher_priorities_are_claimed_first_and_equal_ones_by_age(
    store: Store, make: Maker, queue: str | None
) -> None:
    order = [
        await ready(make, priority, NOW - age, queue=queue)
        for priority, age in ((9, 1), (9, 0), (5, 3), (5, 2), (0, 9))
    ]
    await ready(make, 9, queue="other")
    assert await claim(store, 2, queue=queue) == order[:2]
    assert await claim(store, 10, queue=queue) == order[2:]


@pytest.mark.order_over_slots
async def test_what_waits_grows_older_and_is_not_passed_for_ever(store: Store, make: Maker) -> None:
    waited = await ready(make, 0, NOW - 9 * MINUTE - SECOND)
    urgent = [await ready(make, 9, NOW - number) for number in range(3)]
    younger = await ready(make, 0, NOW - 8 * MINUTE)
    assert await claim(store, 10) == [waited, *reversed(urgent), younger]


async def test_priority_does_not_make_a_run_ready_before_its_time(store: Store, make: Maker) -> None:
    future = [await ready(make, 9, NOW + 1 + number) for number in range(5)]
    now = await ready(make, 0)
    assert await store.leases.next_ready_at(queue=None, now=NOW) == NOW
    assert await claim(store, 10) == [now]
    assert await store.leases.next_ready_at(queue=None, now=NOW) == NOW + 1
    assert await claim(store, 1, now=NOW + 5) == future[:1]


async def test_next_ready_is_the_earliest_of_all_priorities_of_its_queue(store: Store, make: Maker) -> None:
    assert await store.leases.next_ready_at(queue=None, now=NOW) is None
    for priority, ready_at in ((9, NOW + 9), (-55, NOW + 3), (4, NOW + 4)):
        await ready(make, priority, ready_at)
    await ready(make, 5, NOW + 1, queue="mail")
    assert await store.leases.next_ready_at(queue=None, now=NOW) == NOW + 3
    assert await store.leases.next_ready_at(queue="mail", now=NOW) == NOW + 1
