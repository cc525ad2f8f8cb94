"""Blackouts, on SQLite. Implements the contract's Blackouts."""

from __future__ import annotations

import apsw

from onbeat.store.rows import Row
from onbeat.store.sqlite.almanac import note_change_of_almanac
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import StoredBlackout

_QUERIES = load_queries("blackouts")


class SqliteBlackouts:
    """Blackouts of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredBlackout:
        def write(connection: apsw.Connection) -> StoredBlackout:
            connection.execute(_QUERIES["put_blackout"], (namespace, name, rules, now))
            note_change_of_almanac(connection)
            row: Row = connection.execute(_QUERIES["get_blackout"], (namespace, name)).fetchall()[0]
            return StoredBlackout(*row)

        return await self._writer.submit(write)

    async def get(self, namespace: str, name: str) -> StoredBlackout | None:
        def read(connection: apsw.Connection) -> StoredBlackout | None:
            row = connection.execute(_QUERIES["get_blackout"], (namespace, name)).fetchone()
            return None if row is None else StoredBlackout(*row)

        return await self._readers.read(read)

    async def find(self) -> list[StoredBlackout]:
        return await self._readers.read(
            lambda connection: [StoredBlackout(*row) for row in connection.execute(_QUERIES["find_blackouts"])]
        )

    async def delete(self, namespace: str, name: str) -> bool:
        def write(connection: apsw.Connection) -> bool:
            connection.execute(_QUERIES["delete_blackout"], (namespace, name))
            return note_change_of_almanac(connection)

        return await self._writer.submit(write)
