"""The revision of calendars and blackouts in one database: who keeps them in memory sees by it that they changed."""

from __future__ import annotations

from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries

_META = load_queries("meta")


async def read_almanac_revision(connection: Connection) -> int:
    """The revision now."""
    return int(await connection.fetchval(_META["almanac_revision"]))


async def hold_almanac_revision(connection: Connection) -> int:
    """The revision, which nobody raises until the transaction ends."""
    return int(await connection.fetchval(_META["hold_almanac_revision"]))


async def raise_almanac_revision(connection: Connection) -> None:
    """Note a change of this transaction."""
    await connection.execute(_META["raise_almanac_revision"])
