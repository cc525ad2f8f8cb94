"""Processes that work on this database. Implements the contract's Nodes."""

from __future__ import annotations

from typing import Final

from onbeat.domain.errors import ConfigError
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import NodeInfo

_QUERIES = load_queries("nodes")

LIVE_WITHIN_US: Final = 10_000_000
"""A node that was heard of in that time may be at work. It beats each second, and its row goes when it is stopped."""


class PostgresNodes:
    """Nodes of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def beat(self, info: NodeInfo) -> None:
        await self._database.prompt.run(
            _QUERIES["put_node"], info.name, info.kind, info.started_at, info.seen_at, info.detail
        )

    async def leave(self, name: str) -> None:
        await self._database.prompt.run(_QUERIES["drop_node"], name)

    async def prune(self, *, seen_before: int) -> None:
        await self._database.prompt.run(_QUERIES["drop_silent_nodes"], seen_before)

    async def find(self, *, seen_after: int) -> list[NodeInfo]:
        async def read(connection: Connection) -> list[NodeInfo]:
            return [NodeInfo(*row) for row in await connection.fetch(_QUERIES["find_nodes"], seen_after)]

        return await self._database.prompt.read(read)


async def check_at_rest(connection: Connection) -> None:
    """Raises ConfigError while nodes are at work."""
    nodes = [row[0] for row in await connection.fetch(_QUERIES["live_nodes"], LIVE_WITHIN_US)]
    if nodes:
        raise ConfigError(
            f"nodes work on the database: {', '.join(nodes)}",
            remedy="stop them; one that was killed counts as gone after 10 s",
        )
