"""Pauses of many jobs at once, and which pauses are over, on SQLite. Implements the contract's Pauses."""

from __future__ import annotations

import apsw

from onbeat.store.rows import Row, encode_strings, storable_text
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import Pause

_QUERIES = load_queries("pauses")


class SqlitePauses:
    """Pauses of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def begin(self, pause: Pause) -> None:
        row = (
            pause.namespace, pause.tag, storable_text(pause.note), pause.paused_at, pause.until, int(pause.cancels),
        )  # fmt: skip
        await self._write("put_pause", row)

    async def find(self) -> list[Pause]:
        def read(connection: apsw.Connection) -> list[Pause]:
            return [
                Pause(row[0], row[1], row[2], row[3], row[4], bool(row[5]), bool(row[6]), row[7])
                for row in connection.execute(_QUERIES["find_pauses"])
            ]

        return await self._readers.read(read)

    async def note_spread(self, namespace: str, tag: str) -> None:
        await self._write("note_spread", (namespace, tag))

    async def end(self, namespace: str, tag: str, *, ended_at: int) -> bool:
        return await self._write("end_pause", (ended_at, namespace, tag)) > 0

    async def drop(self, namespace: str, tag: str) -> None:
        await self._write("drop_pause", (namespace, tag))

    async def jobs_held_by(self, namespace: str, tag: str, *, limit: int) -> list[int]:
        return await self._job_ids(_QUERIES["jobs_held_by"], (namespace, tag, limit))

    async def jobs_over(self, *, now: int, limit: int) -> list[int]:
        return await self._job_ids(_QUERIES["pauses_over"], (now, limit))

    async def _job_ids(self, query: str, bindings: Row) -> list[int]:
        return await self._readers.read(
            lambda connection: [job_id for (job_id,) in connection.execute(query, bindings)]
        )

    async def _write(self, query: str, bindings: Row) -> int:
        """Run one statement; answer: how many rows it changed."""

        def write(connection: apsw.Connection) -> int:
            connection.execute(_QUERIES[query], bindings)
            return connection.changes()

        return await self._writer.submit(write)


def covering_pause(connection: apsw.Connection, namespace: str, tags: tuple[str, ...]) -> tuple[str, str | None] | None:
    """The tag and note of a pause that covers such a job. None: none does."""
    for tag, note in connection.execute(_QUERIES["covering_pause"], (namespace, encode_strings(tags))):
        return tag, note
    return None
