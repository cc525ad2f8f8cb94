"""The threads that read. Each has its own connection, so a long list never waits for a write, nor a write for it."""

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

READER_COUNT: Final = 2
READ_LASTS_S: Final = 5.0  # a longer read keeps the WAL from being copied, which then grows
STEPS_PER_LOOK: Final = 20_000  # virtual machine steps between two looks at the time: below a millisecond


class Readers:
    """A small pool of reading threads. Each piece of work sees one snapshot of the database."""

    def __init__(self, path: Path, *, count: int = READER_COUNT, read_lasts_s: float = READ_LASTS_S) -> None:
        """Raises StoreUnavailable where the file cannot be read."""
        self._submitted: SimpleQueue[Submission | None] = SimpleQueue()
        self._read_lasts_s = read_lasts_s
        self._is_open = True
        connections = [open_reading_connection(str(path)) for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._run, args=(connection,), name=f"onbeat-reader-{number}", daemon=True)
            for number, connection in enumerate(connections)
        ]
        for thread in self._threads:
            thread.start()

    async def read(self, work: Callable[[apsw.Connection], Value]) -> Value:
        """Run `work` on a snapshot. Raises StoreUnavailable if it takes longer than a read may."""
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._submitted.put(Submission(work, future))
        return await future

    async def close(self) -> None:
        """Finish the reads that were submitted and close the connections. May be called twice."""
        if self._is_open:
            self._is_open = False
            for _ in self._threads:
                self._submitted.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _run(self, connection: apsw.Connection) -> None:
        while (submission := self._submitted.get()) is not None:
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
