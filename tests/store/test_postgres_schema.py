"""The schema on PostgreSQL as the catalogue describes it, against the one on record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import asyncpg
from tests.support.postgres import Databases

OF_A_DAY = re.compile(r"_[0-9]{8}(_|$)")
"""Partitions, of which there are others tomorrow."""

COLUMNS = """
SELECT c.relname::text, a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
    || CASE WHEN d.oid IS NULL THEN '' ELSE
        CASE WHEN a.attgenerated = 's' THEN ' GENERATED AS ' ELSE ' DEFAULT ' END || pg_get_expr(d.adbin, d.adrelid)
    END
FROM pg_class AS c
INNER JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
ORDER BY c.relname, a.attnum
"""
CONSTRAINTS = """
SELECT c.relname::text, pg_get_constraintdef(k.oid)
FROM pg_class AS c
INNER JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype <> 'n'
WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
ORDER BY c.relname, 2
"""
OPTIONS = """
SELECT c.relname::text, coalesce('WITH ' || array_to_string(c.reloptions, ', '), '')
    || coalesce('PARTITION BY ' || pg_get_partkeydef(c.oid), '')
    || coalesce('PARTITION ' || pg_get_expr(c.relpartbound, c.oid), '')
FROM pg_class AS c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
    AND (c.reloptions IS NOT NULL OR c.relkind = 'p' OR c.relispartition)
ORDER BY c.relname
"""
INDEXES = """
SELECT t.relname::text, pg_get_indexdef(i.indexrelid)
FROM pg_index AS i
INNER JOIN pg_class AS c ON c.oid = i.indexrelid
INNER JOIN pg_class AS t ON t.oid = i.indrelid
WHERE c.relnamespace = 'public'::regnamespace ORDER BY t.relname, c.relname
"""
VIEWS = """
SELECT c.relname::text, pg_get_viewdef(c.oid) FROM pg_class AS c
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v'
"""


async def dump_schema(url: str) -> str:
    connection = await asyncpg.connect(url)
    parts = [
        [(row[0], row[1]) for row in await connection.fetch(query)]
        for query in (COLUMNS, CONSTRAINTS, OPTIONS, INDEXES, VIEWS)
    ]
    await connection.close()
    names = sorted({row[0] for rows in parts for row in rows if not OF_A_DAY.search(row[0])})
    return "\n".join(_describe(name, parts) for name in names)


def _describe(name: str, parts: Sequence[Sequence[tuple[str, str]]]) -> str:
    lines = [row[1] for rows in parts for row in rows if row[0] == name]
    return "\n".join([name, *(f"    {line}" for text in lines for line in text.strip().splitlines()), ""])


async def test_all_migrations_make_the_schema_on_record(databases: Databases) -> None:
    url = await databases.create()
    recorded = Path(__file__).with_name("postgres_schema.txt")
    found = await dump_schema(url)
    await databases.drop(url)
    assert found == recorded.read_text(), "changed on purpose? then write the new dump to postgres_schema.txt"
