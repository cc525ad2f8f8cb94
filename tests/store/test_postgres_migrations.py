"""How a PostgreSQL database comes to its schema while many nodes are there, and which nodes it serves then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.postgres import Databases

from onbeat.domain.errors import ConfigError, SchemaTooNew
from onbeat.store.open import open_store
from onbeat.store.postgres import store as engine
from onbeat.store.postgres.migrate import Migration, Schema, check_serves, load_migrations
from onbeat.store.postgres.store import upgrade_database

NEWEST = len(load_migrations())


@pytest.fixture
async def empty(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database without a schema."""
    url = await databases.create(has_schema=False)
    yield url
    await databases.drop(url)


def _add_step(patched: pytest.MonkeyPatch, script: str) -> None:
    """Give onbeat one more migration than it has."""
    steps = (*load_migrations(), Migration(NEWEST + 1, "next", script))
    patched.setattr(engine, "load_migrations", lambda: steps)


async def test_nodes_that_start_at_once_on_an_empty_database_all_serve(empty: str) -> None:
    stores = await asyncio.gather(*(open_store(empty, slots=16) for _ in range(6)))
    assert {store.slots for store in stores} == {16}
    await asyncio.gather(*(store.close() for store in stores))


async def test_an_empty_database_is_left_empty_where_none_is_to_be_made(empty: str) -> None:
    with pytest.raises(ConfigError) as raised:
        await open_store(empty, create=False)
    assert "onbeat db upgrade" in (raised.value.remedy or "")
    assert (await upgrade_database(empty, slots=16))[0] == Schema()


async def test_an_older_schema_is_refused_until_it_is_upgraded(empty: str) -> None:
    old_node = await open_store(empty)
    with pytest.MonkeyPatch.context() as patched:
        _add_step(patched, "ALTER TABLE meta ADD COLUMN added text;")
        with pytest.raises(ConfigError) as raised:
            await open_store(empty)
        assert "onbeat db upgrade" in (raised.value.remedy or "")
        upgrades = await asyncio.gather(*(upgrade_database(empty, slots=256) for _ in range(4)))
        assert {after.version for _before, after in upgrades} == {NEWEST + 1}
        await (await open_store(empty)).close()
    # The step was an expansion: nodes of the release before go on, and may start.
    assert await old_node.read_clock() > 0
    await old_node.close()
    await (await open_store(empty)).close()


async def test_a_contraction_keeps_older_nodes_out(empty: str) -> None:
    await (await open_store(empty)).close()
    with pytest.MonkeyPatch.context() as patched:
        _add_step(patched, f"-- serves from: {NEWEST + 1}\nALTER TABLE meta ADD COLUMN added text;")
        await upgrade_database(empty, slots=256)
    with pytest.raises(SchemaTooNew):
        await open_store(empty)


async def test_a_step_that_fails_leaves_the_schema_as_it_was(empty: str) -> None:
    await (await open_store(empty)).close()
    with pytest.MonkeyPatch.context() as patched:
        _add_step(patched, "ALTER TABLE meta ADD COLUMN added text; SELECT 1 / 0;")
        with pytest.raises(Exception, match="division by zero"):
            await upgrade_database(empty, slots=256)
    await (await open_store(empty)).close()


def test_what_serves_whom() -> None:
    check_serves(Schema(version=3, serves_from=2, slots=1), newest=2)
    with pytest.raises(SchemaTooNew):
        check_serves(Schema(version=3, serves_from=3, slots=1), newest=2)
    with pytest.raises(ConfigError):
        check_serves(Schema(version=1, serves_from=1, slots=1), newest=2)
