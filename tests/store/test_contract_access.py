"""The contract of Access and Nodes, and of the Store itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.store.factories import NOW, SECOND

from onbeat.domain.errors import StoreUnavailable
from onbeat.store.contract import RESERVED_FOR_US, Store
from onbeat.store.values import ApiKey, NodeInfo, SavedAnswer, SecretVersion

KEY = ApiKey("k1", "default", "deploy", b"\x01" * 32, ("jobs:read", "jobs:write"), NOW, expires_at=NOW + SECOND)


async def test_key_is_read_back_as_it_was_written(store: Store) -> None:
    await store.access.add_key(KEY)
    await store.access.add_key(replace(KEY, key_id="k2", scopes=(), created_at=NOW + 1))
    assert await store.access.get_key("k1") == KEY
    assert await store.access.get_key("nobody") is None
    assert [key.key_id for key in await store.access.find_keys()] == ["k1", "k2"]


async def test_key_is_revoked_once(store: Store) -> None:
    await store.access.add_key(KEY)
    assert await store.access.revoke_key("k1", now=NOW + 5)
    assert not await store.access.revoke_key("k1", now=NOW + 9)
    assert not await store.access.revoke_key("nobody", now=NOW)
    assert await store.access.get_key("k1") == replace(KEY, revoked_at=NOW + 5)


async def test_last_use_of_a_key_is_noted(store: Store) -> None:
    await store.access.add_key(KEY)
    await store.access.touch_key("k1", now=NOW + 3)
    await store.access.touch_key("nobody", now=NOW + 3)
    assert await store.access.get_key("k1") == replace(KEY, last_used_at=NOW + 3)


async def test_new_secret_version_retires_the_current_ones_of_its_name_only(store: Store) -> None:
    first = SecretVersion("default", "main", 1, b"one", NOW)
    other = SecretVersion("default", "other", 1, b"other", NOW)
    second = SecretVersion("default", "main", 2, b"two", NOW + 1)
    third = SecretVersion("default", "main", 3, b"three", NOW + 2)
    await store.access.add_secret(first, retire_others_at=None)
    await store.access.add_secret(other, retire_others_at=None)
    await store.access.add_secret(second, retire_others_at=NOW + 10)
    await store.access.add_secret(third, retire_others_at=NOW + 20)
    assert await store.access.find_secrets("default", "main") == [
        third,
        replace(second, retires_at=NOW + 20),
        replace(first, retires_at=NOW + 10),
    ]
    assert len(await store.access.find_secrets("default")) == 4
    assert await store.access.find_secrets("elsewhere") == []


async def test_a_secret_version_that_is_taken_is_not_written_again(store: Store) -> None:
    first = SecretVersion("default", "main", 1, b"one", NOW)
    assert await store.access.add_secret(first, retire_others_at=None)
    assert not await store.access.add_secret(replace(first, ciphertext=b"theirs"), retire_others_at=NOW + 10)
    assert await store.access.find_secrets("default", "main") == [first]


async def test_idempotency_key_is_reserved_once_and_then_answers(store: Store) -> None:
    access = store.access
    assert await access.reserve_answer("s", "k", b"f", now=NOW) is None
    assert await access.reserve_answer("s", "k", b"other", now=NOW) == SavedAnswer(b"f", 0, "", b"")
    assert await access.reserve_answer("other scope", "k", b"f", now=NOW) is None
    answer = SavedAnswer(b"f", 201, "location: /jobs/1", b"{}")
    await access.save_answer("s", "k", answer)
    assert await access.reserve_answer("s", "k", b"f", now=NOW) == answer


async def test_a_reservation_whose_maker_died_is_void_after_a_minute(store: Store) -> None:
    access = store.access
    await access.reserve_answer("s", "k", b"f", now=NOW)
    assert await access.reserve_answer("s", "k", b"f", now=NOW + RESERVED_FOR_US) is not None
    assert await access.reserve_answer("s", "k", b"g", now=NOW + RESERVED_FOR_US + 1) is None
    answer = SavedAnswer(b"g", 201, "{}", b"done")
    await access.save_answer("s", "k", answer)
    assert await access.reserve_answer("s", "k", b"g", now=NOW + 3 * RESERVED_FOR_US) == answer


async def test_dropped_reservation_can_be_taken_again(store: Store) -> None:
    await store.access.reserve_answer("s", "k", b"f", now=NOW)
    await store.access.drop_answer("s", "k")
    assert await store.access.reserve_answer("s", "k", b"g", now=NOW) is None


async def test_old_answers_are_pruned_up_to_the_limit(store: Store) -> None:
    for number in range(4):
        await store.access.reserve_answer("s", f"k{number}", b"f", now=NOW + number)
    assert await store.access.prune_answers(before=NOW + 3, limit=2) == 2
    assert await store.access.prune_answers(before=NOW + 3, limit=2) == 1
    assert await store.access.prune_answers(before=NOW + 3, limit=2) == 0
    assert await store.access.reserve_answer("s", "k3", b"f", now=NOW) is not None


async def test_node_beats_are_replaced_by_name_and_found_by_time(store: Store) -> None:
    first = NodeInfo("b", "node", NOW, NOW, '{"pid": 1}')
    worker = NodeInfo("a", "worker", NOW, NOW + 5)
    await store.nodes.beat(first)
    await store.nodes.beat(worker)
    again = replace(first, seen_at=NOW + 9, detail='{"pid": 2}')
    await store.nodes.beat(again)
    assert await store.nodes.find(seen_after=NOW) == [worker, again]
    assert await store.nodes.find(seen_after=NOW + 6) == [again]
    await store.nodes.leave("b")
    await store.nodes.leave("nobody")
    assert await store.nodes.find(seen_after=0) == [worker]
    await store.nodes.prune(seen_before=worker.seen_at)
    assert await store.nodes.find(seen_after=0) == [worker]
    await store.nodes.prune(seen_before=worker.seen_at + 1)
    assert await store.nodes.find(seen_after=0) == []


async def test_clock_of_the_database_goes_on(store: Store) -> None:
    first = await store.read_clock()
    assert NOW - 10 * 365 * 86_400 * SECOND < first <= await store.read_clock()


async def test_closed_store_answers_nothing_and_closes_twice(store: Store) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.jobs.get(1)
    with pytest.raises(StoreUnavailable):
        await store.access.touch_key("k", now=NOW)
