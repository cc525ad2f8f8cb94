"""The threads that read. Each has its own connection, so a long list never waits for a write, nor a write for it.

Reads of a few rows have a thread to themselves: every claim begins with one, and must not stand in line behind
somebody who searches a million jobs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar

import apsw

from onbeat.domain.errors import StoreUnavailable
from onbeat.store.sqlite.connection import as_store_error, open_reading_connection
from onbeat.store.sqlite.handoff import Answer, Submission, deliver

Value = TypeVar("Value")

SEARCHER_COUNT: Final = 2
READ_LASTS_S: Final = 5.0  # a longer read keeps the WAL from being copied, which then grows
STEPS_PER_LOOK: Final = 20_000  # virtual machine steps between two looks at the time: below a millisecond


class Readers:
    """One thread for reads of a few rows, some for searches. Each piece of work sees one snapshot of the database."""

    def __init__(self, path: Path, *, searchers: int = SEARCHER_COUNT, read_lasts_s: float = READ_LASTS_S) -> None:
        """Raises StoreUnavailable where the file cannot be read."""
        self._reads: SimpleQueue[Submission | None] = SimpleQueue()
        self._searches: SimpleQueue[Submission | None] = SimpleQueue()
        self._read_lasts_s = read_lasts_s
        self._is_open = True
        queues = [self._reads, *[self._searches] * searchers]
        connections = [open_reading_connection(str(path)) for _ in queues]
        self._threads = [
            threading.Thread(target=self._run, args=(queue, connection), name=f"onbeat-reader-{number}", daemon=True)
            for number, (queue, connection) in enumerate(zip(queues, connections, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, work: Callable[[apsw.Connection], Value]) -> Value:
        """Run `work`, which looks at a few rows, on a snapshot.

        Raises StoreUnavailable if it takes longer than a read may.
        """
        return await self._submit(self._reads, work)

    async def search(self, work: Callable[[apsw.Connection], Value]) -> Value:
        """The same for work that may walk over many rows before it finds what it looks for."""
        return await self._submit(self._searches, work)

    async def close(self) -> None:
        """Finish the reads that were submitted and close the connections. May be called twice."""
        if self._is_open:
            self._is_open = False
            self._reads.put(None)
            for _ in self._threads[1:]:
                self._searches.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def _submit(self, queue: SimpleQueue[Submission | None], work: Callable[[apsw.Connection], Value]) -> Value:
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        queue.put(Submission(work, future))
        return await future

    def _run(self, queue: SimpleQueue[Submission | None], connection: apsw.Connection) -> None:
        while (submission := queue.get()) is not None:
            if not submission.is_abandoned:
                deliver([self._answer(connection, submission)])
        connection.close()

    def _answer(self, connection: apsw.Connection, submission: Submission) -> Answer:
        must_end = time.monotonic() + self._read_lasts_s
        connection.set_progress_handler(lambda: time.monotonic() > must_end, STEPS_PER_LOOK)
        try:
            # One snapshot for all statements: a run on its way into history is seen once, never twice or not at all.
            connection.execute("BEGIN")
            try:
                return Answer(submission, submission.work(connection))
            finally:
                connection.set_progress_handler(None)
                if not connection.getautocommit():
                    connection.execute("ROLLBACK")
        except apsw.InterruptError:
            return Answer(submission, error=StoreUnavailable(f"a read took longer than {self._read_lasts_s:g} s"))
        except BaseException as error:
            return Answer(submission, error=as_store_error(error))
