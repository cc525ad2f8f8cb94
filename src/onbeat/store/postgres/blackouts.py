"""Blackouts as they stand, on PostgreSQL. Implements the contract's Blackouts."""

from __future__ import annotations

from onbeat.store.postgres.almanac import raise_almanac_revision
from onbeat.store.postgres.database import Connection, Database, LostRaceError
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import StoredBlackout

_QUERIES = load_queries("blackouts")


class PostgresBlackouts:
    """Blackouts of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredBlackout:
        async def write(connection: Connection) -> StoredBlackout:
            if await connection.execute(_QUERIES["put_blackout"], namespace, name, rules, now) != "INSERT 0 0":
                await raise_almanac_revision(connection)
            row = await connection.fetchrow(_QUERIES["get_blackout"], namespace, name)
            if row is None:
                raise LostRaceError("the blackout was deleted meanwhile")
            return StoredBlackout(*row)

        return await self._database.write(write)

    async def get(self, namespace: str, name: str) -> StoredBlackout | None:
        async def read(connection: Connection) -> StoredBlackout | None:
            row = await connection.fetchrow(_QUERIES["get_blackout"], namespace, name)
            return None if row is None else StoredBlackout(*row)

        return await self._database.read(read)

    async def find(self) -> list[StoredBlackout]:
        async def read(connection: Connection) -> list[StoredBlackout]:
            return [StoredBlackout(*row) for row in await connection.fetch(_QUERIES["find_blackouts"])]

        return await self._database.prompt.read(read)

    async def delete(self, namespace: str, name: str) -> bool:
        async def write(connection: Connection) -> bool:
            is_deleted = await connection.execute(_QUERIES["delete_blackout"], namespace, name) != "DELETE 0"
            if is_deleted:
                await raise_almanac_revision(connection)
            return is_deleted

        return await self._database.write(write)
