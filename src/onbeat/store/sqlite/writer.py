"""The one thread that writes, and the group commit.

Every write is a closure that gets the connection inside a transaction. The thread takes what has been submitted, runs
each piece in the same transaction under its own savepoint, commits once, and only then answers: one fsync for all of
them, and an answer means that the write is durable. A piece that fails is rolled back alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

import apsw

from onbeat.domain.errors import StoreUnavailable
from onbeat.store.sqlite.connection import as_store_error
from onbeat.store.sqlite.handoff import Answer, Submission, deliver

Value = TypeVar("Value")

GROUP_LASTS_S: Final = 0.02  # after that long a group is committed: the first in it must not wait for ever
CHECKPOINT_PAGES: Final = 8_192  # 32 MiB of WAL: copied into the file without waiting for readers
TRUNCATE_PAGES: Final = 16_384  # 64 MiB: readers held the copy back; wait for them, shortly
TRUNCATE_WAIT_MS: Final = 250
IDLE_CHECKPOINT_S: Final = 2.0  # with nothing to write for that long, the WAL is emptied and cut


class BatchRefusedError(Exception):
    """A batch cannot be written with few statements: its work is undone, to be done again piece by piece."""


class Writer:
    """Owns the writing connection from construction to `close`."""

    def __init__(self, connection: apsw.Connection, *, busy_timeout_ms: int) -> None:
        self._connection = connection
        self._busy_timeout_ms = busy_timeout_ms
        self._submitted: SimpleQueue[Submission | None] = SimpleQueue()
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._is_open = True
        self._ended = threading.Event()
        connection.set_wal_hook(self._note_wal_size)
        # A daemon: a program that forgets to close the store may still end, and loses nothing that was answered.
        self._thread = threading.Thread(target=self._run, name="onbeat-writer", daemon=True)
        self._thread.start()

    async def submit(self, work: Callable[[apsw.Connection], Value]) -> Value:
        """Run `work` in a transaction and return its value once that is durable.

        Raises what `work` raised, which then has changed nothing; StoreUnavailable if the commit fails. If the caller
        is cancelled after the work has begun, the write takes place unseen.
        """
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._submitted.put(Submission(work, future))
        return await future

    async def submit_batch(self, work: Callable[[apsw.Connection, bool], Value]) -> Value:
        """Submit `work(connection, one_by_one)`: with False, and where that raises BatchRefusedError with True."""
        try:
            return await self.submit(lambda connection: work(connection, False))
        except BatchRefusedError:
            return await self.submit(lambda connection: work(connection, True))

    async def close(self) -> None:
        """Write what was submitted, empty the WAL, and let go of the connection. May be called twice."""
        if self._is_open:
            self._is_open = False
            self._submitted.put(None)
        await asyncio.to_thread(self._ended.wait)

    def _run(self) -> None:
        try:
            submission = self._wait()
            while submission is not None:
                submission = self._commit_group(submission)
                self._checkpoint_if_large()
                if submission is None and self._is_open:
                    submission = self._wait()
            self._answer_the_late()
        finally:
            with contextlib.suppress(apsw.Error):
                self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._connection.close()
            self._ended.set()

    def _wait(self) -> Submission | None:
        """The next submission; None when the writer is being closed. Empties the WAL when idle."""
        while self._wal_pages:
            try:
                return self._submitted.get(timeout=IDLE_CHECKPOINT_S)
            except Empty:
                if not self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE):
                    continue  # a reader is in the way: look again after the next pause
                self._wal_pages = 0
        return self._submitted.get()

    def _answer_the_late(self) -> None:
        """Submissions that slipped in behind the closing mark."""
        late: list[Answer] = []
        with contextlib.suppress(Empty):
            while True:
                submission = self._submitted.get_nowait()
                if submission is not None:
                    late.append(Answer(submission, error=StoreUnavailable("the store is closed")))
        deliver(late)

    def _commit_group(self, first: Submission) -> Submission | None:
        """Run `first` and what was submitted meanwhile in one transaction, commit, answer. Returns the next if any."""
        members = [first]
        done: list[Answer] = []
        failed: list[Answer] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            group_ends = time.monotonic() + GROUP_LASTS_S
            submission: Submission | None = first
            while submission is not None:
                if not submission.is_abandoned:
                    self._run_member(submission, done=done, failed=failed)
                if time.monotonic() >= group_ends:
                    break
                submission = self._next_submitted()
                if submission is not None:
                    members.append(submission)
            self._connection.execute("COMMIT")
        except BaseException as error:
            # Nothing of the group is durable, whoever in it had succeeded.
            reason = StoreUnavailable(f"the commit failed: {as_store_error(error)}")
            told = {answer.submission for answer in failed}
            done = [Answer(member, error=reason) for member in members if member not in told]
            if not self._connection.getautocommit():
                with contextlib.suppress(apsw.Error):
                    self._connection.execute("ROLLBACK")
        deliver(done + failed)
        return self._next_submitted()

    def _run_member(self, submission: Submission, *, done: list[Answer], failed: list[Answer]) -> None:
        # The first to succeed needs no savepoint: until then a rollback of the whole transaction undoes no neighbour,
        # and a savepoint makes SQLite keep a copy of each page that is changed.
        nested = bool(done)
        if nested:
            self._connection.execute("SAVEPOINT member")
        try:
            value = submission.work(self._connection)
        except BaseException as error:
            failed.append(Answer(submission, error=as_store_error(error)))
            if self._connection.getautocommit():
                # A full disk or an I/O error made SQLite roll the whole transaction back.
                raise
            if nested:
                self._connection.execute("ROLLBACK TO member")
                self._connection.execute("RELEASE member")
            else:
                self._connection.execute("ROLLBACK")
                self._connection.execute("BEGIN IMMEDIATE")
        else:
            if nested:
                self._connection.execute("RELEASE member")
            done.append(Answer(submission, value))

    def _next_submitted(self) -> Submission | None:
        try:
            return self._submitted.get_nowait()
        except Empty:
            return None

    def _note_wal_size(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        if pages < self._wal_pages:  # SQLite began the WAL anew
            self._checkpoint_at = CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_large(self) -> None:
        if self._wal_pages >= self._checkpoint_at:
            is_huge = self._wal_pages >= TRUNCATE_PAGES
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE if is_huge else apsw.SQLITE_CHECKPOINT_PASSIVE)
            # A reader that holds the WAL must not cost every commit another try.
            self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES // 4

    def _checkpoint(self, mode: int) -> bool:
        """Copy the WAL into the file. False: not wholly, because of a reader or the disk; the WAL keeps everything."""
        try:
            self._connection.set_busy_timeout(TRUNCATE_WAIT_MS)
            pages, copied = self._connection.wal_checkpoint(mode=mode)
        except apsw.Error:
            return False
        finally:
            self._connection.set_busy_timeout(self._busy_timeout_ms)
        return pages == copied
