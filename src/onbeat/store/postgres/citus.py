"""Spreads the tables over the servers of a Citus cluster, by slot: `onbeat db upgrade --citus`.

Tables that grow with jobs are distributed by `slot` and lie beside each other, so that a transaction of one slot is one
of one server. Those that are joined with them are on every server. The others stay on the coordinator, which nodes
connect to: few rows, which are read and written by themselves.
"""

from __future__ import annotations

from typing import Final

from onbeat.domain.errors import ExtensionMissing
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.migrate import STEP_TIMEOUT_S, read_schema
from onbeat.store.postgres.nodes import check_at_rest
from onbeat.store.postgres.queries import load_queries

_META: Final = load_queries("meta")
_QUERIES: Final = load_queries("citus")

BY_SLOT: Final = (
    "jobs",
    "clocks",
    "live_runs",
    "ended_runs",
    "ended_ranges",
    "attempts",
    "job_versions",
    "job_counts",
    "after_finish",
    "failing_jobs",
)
"""In this order: the others lie beside the first."""

ON_ALL_SERVERS: Final = ("job_keys",)


async def spread_tables(database: Database) -> bool:
    """Do it, as far as it is not done. Answer: was there anything to do?

    The schema is this onbeat's already. One process at a time does it, in one transaction. Raises ExtensionMissing, or
    ConfigError while a node is at work: it would go on sending statements about many slots.
    """
    return await database.write(_spread)


async def _spread(connection: Connection) -> bool:
    await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
    await connection.execute(_META["lock_schema"], timeout=STEP_TIMEOUT_S)
    if not await connection.fetchval(_QUERIES["has_citus"]):
        raise ExtensionMissing(
            "the extension citus is not in this database",
            remedy="install Citus on the server, run CREATE EXTENSION citus in this database, then this command again",
        )
    schema = await read_schema(connection)
    wanted = [table for table in (*BY_SLOT, *ON_ALL_SERVERS) if not await _is_spread(connection, table)]
    if not wanted and schema.is_distributed:
        return False
    await check_at_rest(connection)
    await connection.execute(_QUERIES["one_server_at_a_time"])
    if not schema.is_distributed:
        await connection.execute(_QUERIES["lay_indexes_by_slot"], timeout=STEP_TIMEOUT_S)
    for table in wanted:
        if table in BY_SLOT:
            beside = "none" if table == BY_SLOT[0] else BY_SLOT[0]
            await connection.execute(_QUERIES["spread_by_slot"], table, beside, timeout=STEP_TIMEOUT_S)
        else:
            await connection.execute(_QUERIES["copy_to_all"], table, timeout=STEP_TIMEOUT_S)
    await connection.execute(_QUERIES["note_spread_tables"])
    return True


async def _is_spread(connection: Connection, table: str) -> bool:
    return bool(await connection.fetchval(_QUERIES["is_spread"], table))
