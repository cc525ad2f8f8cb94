"""Who waits for whom among the reads of a data file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw

from onbeat.store.sqlite.connection import open_writing_connection
from onbeat.store.sqlite.readers import SEARCHER_COUNT, Readers


async def test_a_read_of_a_few_rows_never_waits_for_searches(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    open_writing_connection(str(path)).close()
    readers = Readers(path)
    may_end = threading.Event()

    def search(_connection: apsw.Connection) -> None:
        may_end.wait()

    searches = [asyncio.create_task(readers.search(search)) for _ in range(SEARCHER_COUNT + 2)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await readers.read(lambda connection: connection.execute("SELECT 1").get) == 1
    assert not any(task.done() for task in searches)
    may_end.set()
    await asyncio.gather(*searches)
    await readers.close()
