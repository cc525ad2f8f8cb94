"""Pauses of many jobs at once, and which pauses are over, on PostgreSQL. Implements the contract's Pauses.

Whoever makes a job active holds its namespace's pauses until the transaction ends, and reads them after that. Whoever
begins a pause waits for those first, so a pause that is acknowledged misses no job: what was active before can be
found, what comes after sees it. The end of a pause waits likewise, so that no job goes over to one that is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import storable_text
from onbeat.store.values import Pause

_QUERIES = load_queries("pauses")


class PostgresPauses:
    """Pauses of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def begin(self, pause: Pause) -> None:
        async def write(connection: Connection) -> None:
            await connection.execute(_QUERIES["lock_pauses_alone"], pause.namespace)
            await connection.execute(
                _QUERIES["put_pause"], pause.namespace, pause.tag, storable_text(pause.note), pause.paused_at,
                pause.until, pause.cancels,
            )  # fmt: skip

        await self._database.write(write)

    async def find(self) -> list[Pause]:
        async def read(connection: Connection) -> list[Pause]:
            return [Pause(*row) for row in await connection.fetch(_QUERIES["find_pauses"])]

        return await self._database.read(read)

    async def note_spread(self, namespace: str, tag: str) -> None:
        await self._database.run(_QUERIES["note_spread"], namespace, tag)

    async def end(self, namespace: str, tag: str, *, ended_at: int) -> bool:
        async def write(connection: Connection) -> bool:
            await connection.execute(_QUERIES["lock_pauses_alone"], namespace)
            return await connection.execute(_QUERIES["end_pause"], ended_at, namespace, tag) == "UPDATE 1"

        return await self._database.write(write)

    async def drop(self, namespace: str, tag: str) -> None:
        await self._database.run(_QUERIES["drop_pause"], namespace, tag)

    async def jobs_held_by(self, namespace: str, tag: str, *, limit: int) -> list[int]:
        return await self._job_ids(_QUERIES["jobs_held_by"], namespace, tag, limit)

    async def jobs_over(self, *, now: int, limit: int) -> list[int]:
        return await self._job_ids(_QUERIES["pauses_over"], now, limit)

    async def _job_ids(self, query: str, *bindings: object) -> list[int]:
        async def read(connection: Connection) -> list[int]:
            return [row[0] for row in await connection.fetch(query, *bindings)]

        return await self._database.read(read)


class HoldingPauses:
    """The pauses of some namespaces that hold, and go on holding until the transaction ends."""

    def __init__(self, pauses: Iterable[tuple[str, str, str | None]]) -> None:
        self._by_namespace: dict[str, dict[str, str | None]] = {}
        for namespace, tag, note in pauses:
            self._by_namespace.setdefault(namespace, {})[tag] = note

    def covering(self, namespace: str, tags: tuple[str, ...]) -> tuple[str, str | None] | None:
        """The tag and note of a pause that covers such a job: that of everything, else the first tag's. None: none."""
        pauses = self._by_namespace.get(namespace)
        if not pauses:
            return None
        tag = min((tag for tag in ("", *tags) if tag in pauses), default=None)
        return None if tag is None else (tag, pauses[tag])


async def hold_pauses(connection: Connection, namespaces: Iterable[str]) -> HoldingPauses:
    """Keep pauses of these namespaces from beginning and ending, and read them."""
    names = sorted(set(namespaces))
    await connection.execute(_QUERIES["lock_pauses"], names)
    rows = await connection.fetch(_QUERIES["pauses_that_hold"], names)
    return HoldingPauses((row[0], row[1], row[2]) for row in rows)
