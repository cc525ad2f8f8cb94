"""A database seen from outside, beside the nodes that use it. Never writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.migrate import Schema, load_migrations, read_schema
from onbeat.store.postgres.partitions import count_days_ahead
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.store import connect_by_url

_META = load_queries("meta")
_QUERIES = load_queries("inspection")

_CHECKS: Final = {
    "invalid_indexes": "indexes that are not valid: rebuild them with REINDEX",
    "ranges_without_row": "ranges of missed or skipped instants without their row in ended_runs",
    "rows_without_range": "rows of ended_runs with a range that is missing in ended_ranges",
    "runs_live_and_ended": "runs that are live and ended at once",
    "runs_without_job": "live runs whose job is not there",
    "miscounted_states": "states whose count of jobs is wrong",
}
# Whole tables are read, so for once neither time nor plans are bounded.
_AT_LEISURE: Final = """
SET LOCAL statement_timeout = 0;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on;
"""
_CHECK_TIMEOUT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What a database and its server say of themselves."""

    server_version: str
    server_version_number: int  # 180003 is 18.3
    size: int
    is_standby: bool
    unsafe_settings: tuple[str, ...]
    schema: Schema
    newest_schema_version: int
    days_ahead: int | None  # for which history has partitions; None: no schema yet
    now: int  # the server's clock, µs UTC
    problems: tuple[str, ...]


async def inspect_database(url: str, *, reads_everything: bool = False) -> DatabaseFacts:
    """Look at a database. `reads_everything` compares its tables with each other, which takes long on large ones.

    Raises StoreUnavailable, or ConfigError where it is not onbeat's.
    """
    database = await connect_by_url(url)
    try:
        return await database.read(lambda connection: _inspect(connection, reads_everything=reads_everything))
    finally:
        await database.close()


async def _inspect(connection: Connection, *, reads_everything: bool) -> DatabaseFacts:
    (server,) = await connection.fetch(_QUERIES["describe_server"])
    schema = await read_schema(connection)
    return DatabaseFacts(
        server_version=server[0],
        server_version_number=server[1],
        size=server[2],
        is_standby=server[3],
        unsafe_settings=tuple(row[0] for row in await connection.fetch(_QUERIES["unsafe_settings"])),
        schema=schema,
        newest_schema_version=len(load_migrations()),
        days_ahead=await count_days_ahead(connection) if schema.version else None,
        problems=await _check(connection) if schema.version and reads_everything else (),
        now=await connection.fetchval(_META["read_clock"]),
    )


async def _check(connection: Connection) -> tuple[str, ...]:
    await connection.execute(_AT_LEISURE)
    problems = []
    for name, meaning in _CHECKS.items():
        count = await connection.fetchval(_QUERIES[name], timeout=_CHECK_TIMEOUT_S)
        if count:
            problems.append(f"{count} {meaning}")
    return tuple(problems)
