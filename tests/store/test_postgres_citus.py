"""`onbeat db upgrade --citus`: what it sends, in which order, and when it refuses.

Citus itself cannot be had here: tests/support/citus.py stands in for it and notes the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.store.factories import NOW, Maker, new_run
from tests.support.citus import FEW_SLOTS, SCHEMA, put_stand_in, spread
from tests.support.postgres import DEFAULT_SLOTS, Databases

from onbeat.domain.errors import ConfigError, ExtensionMissing
from onbeat.store.open import open_store
from onbeat.store.postgres import citus
from onbeat.store.postgres.citus import BY_SLOT, ON_ALL_SERVERS
from onbeat.store.postgres.looks import MOST_LOOKS
from onbeat.store.postgres.store import upgrade_database
from onbeat.store.values import NodeInfo

pytestmark = pytest.mark.slow

CALLS = (
    f"SELECT logicalrelid::text, kind, distributed_by, colocate_with FROM {SCHEMA}.pg_dist_partition ORDER BY number"  # noqa: S608
)
EXPECTED = [
    ("jobs", "distributed", "slot", "none"),
    *((table, "distributed", "slot", "jobs") for table in BY_SLOT[1:]),
    *((table, "reference", None, None) for table in ON_ALL_SERVERS),
]


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """The URL of an ordinary database of this onbeat's schema."""
    made = await databases.create()
    yield made
    await databases.drop(made)


async def fetch(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def indexes(url: str) -> dict[str, str]:
    rows = await fetch(url, "SELECT indexname::text, indexdef FROM pg_indexes WHERE schemaname = 'public'")
    return {str(row[0]): str(row[1]) for row in rows}


async def is_distributed(url: str) -> bool:
    return (await fetch(url, "SELECT is_distributed FROM meta")) == [(True,)]


async def test_without_the_extension_it_is_refused_and_nothing_is_changed(url: str) -> None:
    before = await indexes(url)
    with pytest.raises(ExtensionMissing, match="citus") as caught:
        await upgrade_database(url, slots=1, on_citus=True)
    assert caught.value.code == "extension_missing"
    assert "CREATE EXTENSION citus" in (caught.value.remedy or "")
    assert await indexes(url) == before
    assert not await is_distributed(url)


async def test_tables_are_spread_in_order_beside_the_first(url: str) -> None:
    await spread(url, slots=FEW_SLOTS)
    assert await fetch(url, CALLS) == EXPECTED
    assert await is_distributed(url)
    found = await indexes(url)
    for name in ("live_claimable", "live_leased", "live_retries", "clocks_due_by_slot"):
        assert "(slot, " in found[name], name


async def test_every_table_with_a_slot_is_spread_or_lies_on_the_coordinator_on_purpose(url: str) -> None:
    rows = await fetch(
        url,
        "SELECT table_name::text FROM information_schema.columns AS c JOIN information_schema.tables USING (table_name)"
        " WHERE c.table_schema = 'public' AND column_name = 'slot' AND table_type = 'BASE TABLE'"
        " AND table_name !~ '_(default|[0-9]{8})$'",
    )
    assert {row[0] for row in rows} == {*BY_SLOT, "backfills"}


async def test_unique_indexes_of_spread_tables_begin_with_the_slot(url: str) -> None:
    """Citus promises uniqueness within one server only."""
    for definition in (await indexes(url)).values():
        table = definition.partition(" ON public.")[2].partition(" ")[0].removeprefix("ONLY public.")
        if table in BY_SLOT and "UNIQUE" in definition:
            assert "(slot, " in definition, definition


async def test_second_time_changes_nothing_and_a_new_table_follows(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await spread(url, slots=FEW_SLOTS)
    before, after = await upgrade_database(url, slots=1, on_citus=True)
    assert before == after
    assert await fetch(url, CALLS) == EXPECTED
    monkeypatch.setattr(citus, "BY_SLOT", (*BY_SLOT, "backfills"))  # as a later schema would bring one
    await upgrade_database(url, slots=1, on_citus=True)
    assert await fetch(url, CALLS) == [*EXPECTED, ("backfills", "distributed", "slot", "jobs")]


async def test_processes_that_do_it_at_once_do_it_once(url: str) -> None:
    await put_stand_in(url)
    await asyncio.gather(*(upgrade_database(url, slots=1, on_citus=True) for _ in range(4)))
    assert await fetch(url, CALLS) == EXPECTED


async def test_nodes_at_work_are_in_the_way(url: str) -> None:
    await put_stand_in(url)
    store = await open_store(url)
    now = await store.read_clock()
    await store.nodes.beat(NodeInfo("node-1", "node", now, now, "{}"))
    with pytest.raises(ConfigError, match="node-1"):
        await upgrade_database(url, slots=1, on_citus=True)
    assert await fetch(url, CALLS) == []
    await store.nodes.leave("node-1")
    await store.close()
    await upgrade_database(url, slots=1, on_citus=True)
    assert await is_distributed(url)


async def test_step_that_fails_leaves_nothing_half_done(url: str) -> None:
    await put_stand_in(url)
    before = await indexes(url)
    await fetch(
        url,
        f"INSERT INTO {SCHEMA}.pg_dist_partition (logicalrelid, kind) VALUES ('meta', 'local') RETURNING 1",  # noqa: S608
    )
    await fetch(url, "DROP TABLE failing_jobs")
    with pytest.raises(Exception, match="failing_jobs"):
        await upgrade_database(url, slots=1, on_citus=True)
    assert await fetch(url, CALLS) == [("meta", "local", None, None)]
    assert await indexes(url) == {name: text for name, text in before.items() if "failing_jobs" not in name}
    assert not await is_distributed(url)


async def test_runs_from_before_go_on_afterwards(url: str) -> None:
    store = await open_store(url)
    make = Maker(store)
    job = await make.job(next_fire_at=NOW)
    key = await make.pending(job)
    await store.close()
    await spread(url, slots=FEW_SLOTS)
    store = await open_store(url)
    claimed = None
    for _ in range(DEFAULT_SLOTS // MOST_LOOKS):  # a new process has looked into all slots by then
        claimed = claimed or await Maker(store).claim_one()
    assert claimed is not None
    assert claimed.key == key
    for _ in range(DEFAULT_SLOTS // MOST_LOOKS - 1):
        await store.fires.next_due_at()
    assert await store.fires.next_due_at() == NOW
    assert (await Maker(store).runs(job, new_run(NOW + 1, lane=None)))[0].key.job_id == job.job_id
    await store.close()
