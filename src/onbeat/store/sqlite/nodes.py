"""Processes that work on this data file. Implements the contract's Nodes."""

from __future__ import annotations

import apsw

from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import NodeInfo

_QUERIES = load_queries("nodes")


class SqliteNodes:
    """Nodes of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def beat(self, info: NodeInfo) -> None:
        bindings = (info.name, info.kind, info.started_at, info.seen_at, info.detail)
        await self._writer.submit(lambda connection: connection.execute(_QUERIES["put_node"], bindings).fetchall())

    async def leave(self, name: str) -> None:
        await self._writer.submit(lambda connection: connection.execute(_QUERIES["drop_node"], (name,)).fetchall())

    async def prune(self, *, seen_before: int) -> None:
        await self._writer.submit(
            lambda connection: connection.execute(_QUERIES["drop_silent_nodes"], (seen_before,)).fetchall()
        )

    async def find(self, *, seen_after: int) -> list[NodeInfo]:
        def read(connection: apsw.Connection) -> list[NodeInfo]:
            return [NodeInfo(*row) for row in connection.execute(_QUERIES["find_nodes"], (seen_after,))]

        return await self._readers.read(read)
