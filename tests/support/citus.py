"""A stand-in for Citus, which cannot be had here: its functions, which only note that they were called.

So the tests see which statements `onbeat db upgrade --citus` sends, in which order, and how the engine works afterwards
on one ordinary server. What Citus makes of those statements, no test here has seen.
"""

from __future__ import annotations

import functools
from typing import Final

import asyncpg
from tests.support.postgres import Databases

from onbeat.store.postgres.store import upgrade_database

FEW_SLOTS: Final = 16
"""So many are looked into by one call."""

SCHEMA: Final = "stands_in_for_citus"

STAND_IN = f"""
SET allow_system_table_mods = on;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
SELECT 9990, 'citus', 10, 'public'::regnamespace, false, '0';
RESET allow_system_table_mods;
CREATE SCHEMA {SCHEMA};
CREATE TABLE {SCHEMA}.pg_dist_partition (
    number integer GENERATED ALWAYS AS IDENTITY, logicalrelid regclass PRIMARY KEY, kind text, distributed_by text,
    colocate_with text
);
CREATE FUNCTION {SCHEMA}.create_distributed_table(
    table_name regclass, distribution_column text, colocate_with text DEFAULT 'default'
) RETURNS void LANGUAGE sql AS $$
    INSERT INTO {SCHEMA}.pg_dist_partition (logicalrelid, kind, distributed_by, colocate_with)
    VALUES (table_name, 'distributed', distribution_column, colocate_with)
$$;
CREATE FUNCTION {SCHEMA}.create_reference_table(table_name regclass) RETURNS void LANGUAGE sql AS $$
    INSERT INTO {SCHEMA}.pg_dist_partition (logicalrelid, kind) VALUES (table_name, 'reference')
$$;
"""  # noqa: S608


async def put_stand_in(url: str) -> None:
    """Into one database, where its functions are found as those of the extension are: without a schema's name."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(STAND_IN)
        name = url.rpartition("/")[2]
        await connection.execute(f"ALTER DATABASE {name} SET search_path = public, {SCHEMA}")
    finally:
        await connection.close()


async def spread_database(databases: Databases) -> str:
    """The URL of a new database whose tables are spread over few slots."""
    template = await databases.make_template(
        "spread_template", functools.partial(spread, slots=FEW_SLOTS), search_path=f"public, {SCHEMA}"
    )
    return await databases.create(template=template)


async def spread(url: str, *, slots: int) -> None:
    """Make a database with onbeat's schema, or without any, one whose tables are spread by slot."""
    await put_stand_in(url)
    await upgrade_database(url, slots=slots, on_citus=True)
