"""A database that one test gives back to the next holds nothing of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from tests.support.citus import spread_database
from tests.support.database import look
from tests.support.freshness import read_content
from tests.support.full_database import fill
from tests.support.postgres import Databases

from onbeat.store.open import open_store
from onbeat.store.values import SecretVersion

SECRET = SecretVersion("default", "any", 1, b"any", 1, None)


def identity(url: str) -> int:
    """Of a database, which it keeps under another name."""
    ((oid,),) = look(url, "SELECT oid::bigint FROM pg_database WHERE datname = current_database()")
    return int(oid)


async def plain_database(databases: Databases) -> str:
    return await databases.create()


@pytest.mark.parametrize("create", [plain_database, spread_database])
async def test_of_all_that_was_written_nothing_is_left(
    databases: Databases, create: Callable[[Databases], Awaitable[str]]
) -> None:
    used = await create(databases)
    fresh, before = await read_content(used), identity(used)
    store = await open_store(used)
    await fill(store, secret=SECRET)
    await store.close()
    look(used, "UPDATE meta SET almanac_revision = 7, unfinished_copy = 'any'")
    assert len((await read_content(used)).rows) > 15
    await databases.drop(used)
    again = await create(databases)
    assert (identity(again), await read_content(again)) == (before, fresh)
    await databases.drop(again)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (x integer)",
        "ALTER TABLE jobs ADD COLUMN more integer",
        "ALTER TABLE jobs ALTER COLUMN name DROP NOT NULL",
        "ALTER TABLE jobs SET (autovacuum_enabled = off)",
        "ALTER TABLE job_keys RENAME TO keys_of_jobs",
        "DROP INDEX clocks_due",
        "DROP TABLE ended_runs_default",
        "CREATE SEQUENCE numbers",
        "CREATE FUNCTION one() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA other",
        "COMMENT ON TABLE jobs IS 'a comment'",
        "ANALYZE",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = ''1MB''', current_database()); END $$",
    ],
)
async def test_a_database_that_is_another_one_now_is_not_used_again(databases: Databases, statement: str) -> None:
    used = await databases.create()
    fresh, before = await read_content(used), identity(used)
    connection = await asyncpg.connect(used)
    await connection.execute(statement)
    await connection.close()
    await databases.drop(used)
    other = await databases.create()
    assert identity(other) != before
    assert await read_content(other) == fresh
    await databases.drop(other)


async def test_a_database_that_lets_nobody_in_any_more_is_not_used_again(databases: Databases) -> None:
    """As a test leaves it that fails in the middle: the next one is not to fail with it."""
    used = await databases.create()
    fresh, name = await read_content(used), used.rpartition("/")[2]
    administrator = await asyncpg.connect(databases.server.url())
    await administrator.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    await administrator.close()
    await databases.drop(used)
    other = await databases.create()
    assert await read_content(other) == fresh
    await databases.drop(other)


async def test_who_is_still_about_from_the_test_before_reaches_nobody(databases: Databases) -> None:
    used = await databases.create()
    straggler = await asyncpg.connect(used)
    await straggler.execute("BEGIN; LOCK TABLE jobs")
    await databases.drop(used)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await straggler.execute("COMMIT")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(used)
    await databases.drop(await databases.create())
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(used)
