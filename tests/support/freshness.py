"""Makes a used database as fresh as it was when it was copied from its template, and proves that it is.

To empty it again takes a tenth of what it takes to drop it and to copy another one. A table without a page has no row:
that is what tells, at once, which tables a test has written to, and afterwards that nothing is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import asyncpg

FIRST_OF_USERS = 16_384
"""The oid of PostgreSQL's first object that is not its own."""

# Ordinary tables that have a page, or that somebody has counted: ANALYZE leaves a figure, and TRUNCATE takes it away.
WRITTEN = f"""
SELECT oid::regclass::text FROM pg_class
WHERE oid >= {FIRST_OF_USERS} AND relkind = 'r' AND (pg_relation_size(oid) > 0 OR reltuples >= 0)
ORDER BY oid
"""  # noqa: S608

# TRUNCATE leaves other figures for the planner than CREATE INDEX, and no plan may depend on what was there before. The
# last statement keeps the server from looking after tables for what earlier tests did to them.
FORGET = f"""
UPDATE pg_class SET relpages = 1, reltuples = 0 WHERE oid >= {FIRST_OF_USERS} AND relkind = 'i' AND reltuples < 0;
DELETE FROM pg_statistic WHERE starelid >= {FIRST_OF_USERS};
SELECT pg_stat_reset();
"""  # noqa: S608

# A row of the catalogue that was added, changed or removed has another number of its transaction, or is not there.
# TRUNCATE changes those of pg_class, so there the columns count that it leaves alone.
_CHANGED = "(SELECT count(*) || ' ' || coalesce(sum(xmin::text::bigint), 0) FROM {catalogue} WHERE {of_users})"
_OF_USERS = {
    "pg_attribute": f"attrelid >= {FIRST_OF_USERS}",
    "pg_depend": "true",
    "pg_description": f"objoid >= {FIRST_OF_USERS}",
    "pg_attrdef": "true",
    "pg_constraint": "true",
    "pg_index": "true",
    "pg_inherits": "true",
    "pg_namespace": "true",
    "pg_proc": "true",
    "pg_rewrite": "true",
    "pg_trigger": "true",
    "pg_type": "true",
    "pg_extension": "true",
}
CATALOGUE = f"""
SELECT
    {", ".join(_CHANGED.format(catalogue=name, of_users=condition) for name, condition in _OF_USERS.items())},
    (
        SELECT sum(hashtextextended(concat_ws(
            ' ', oid, relname, relkind, relnamespace, relowner, relpersistence, relchecks, relhastriggers,
            relispartition, relrowsecurity, relreplident, relacl, reloptions, relpartbound, relpages, reltuples
        ), 0)) FROM pg_class WHERE oid >= {FIRST_OF_USERS}
    ),
    (SELECT string_agg(seqrelid || ' ' || pg_sequence_last_value(seqrelid), ',' ORDER BY seqrelid) FROM pg_sequence),
    (
        SELECT string_agg(setrole || ' ' || setconfig::text, ',' ORDER BY setrole)
        FROM pg_db_role_setting JOIN pg_database AS d ON d.oid = setdatabase WHERE datname = current_database()
    ),
    (SELECT count(*) FROM pg_statistic WHERE starelid >= {FIRST_OF_USERS})
"""  # noqa: S608


@dataclass(frozen=True)
class Content:
    """What a database holds."""

    catalogue: tuple[Any, ...]
    rows: dict[str, str]
    """By table that has a page: all rows, as JSON."""


async def read_content(url: str) -> Content:
    """Of a fresh database, which has few rows."""
    connection = await asyncpg.connect(url)
    try:
        return await _read_content(connection)
    finally:
        await connection.close()


async def refresh(url: str, fresh: Content) -> bool:
    """Remove what is in it, and put back what a fresh one holds. Nobody else is connected.

    False: it is not fresh, since more than rows was changed.
    """
    try:
        connection = await asyncpg.connect(url)
    except asyncpg.PostgresError:
        return False  # a test that failed has left it closed
    try:
        async with connection.transaction():
            await _empty(connection)
            await _put_back(connection, fresh)
        return await _read_content(connection) == fresh
    except asyncpg.PostgresError:
        return False  # what was changed keeps it from being emptied
    finally:
        await connection.close()


async def _empty(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    written = [row[0] for row in await connection.fetch(WRITTEN)]
    if written:
        await connection.execute(f"TRUNCATE {', '.join(written)}")
    await connection.execute(FORGET)


async def _put_back(connection: asyncpg.Connection[asyncpg.Record], fresh: Content) -> None:
    for table, rows in fresh.rows.items():
        await connection.execute(
            f"INSERT INTO {table} OVERRIDING SYSTEM VALUE"  # noqa: S608
            f" SELECT * FROM json_populate_recordset(NULL::{table}, $1)",
            rows,
        )


async def _read_content(connection: asyncpg.Connection[asyncpg.Record]) -> Content:
    catalogue = await connection.fetchrow(CATALOGUE)
    assert catalogue is not None
    rows = {
        table: await connection.fetchval(f"SELECT json_agg(t ORDER BY t::text)::text FROM {table} AS t")  # noqa: S608
        for (table,) in await connection.fetch(WRITTEN)
    }
    return Content(tuple(catalogue), rows)
