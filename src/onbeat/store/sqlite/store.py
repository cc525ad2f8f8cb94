"""One data file as a Store: puts the nouns, the writer and the readers together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw

from onbeat.domain.errors import ConfigError, StoreUnavailable
from onbeat.store.hints import Hint
from onbeat.store.rows import Row
from onbeat.store.sqlite.access import SqliteAccess
from onbeat.store.sqlite.almanac import read_almanac_revision
from onbeat.store.sqlite.backfills import SqliteBackfills
from onbeat.store.sqlite.blackouts import SqliteBlackouts
from onbeat.store.sqlite.calendars import SqliteCalendars
from onbeat.store.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    as_store_error,
    open_reading_connection,
    open_writing_connection,
)
from onbeat.store.sqlite.datafile import DataFileLock, read_mounts, refuse_network_filesystem
from onbeat.store.sqlite.fires import SqliteFires
from onbeat.store.sqlite.jobs import SqliteJobs
from onbeat.store.sqlite.leases import SqliteLeases
from onbeat.store.sqlite.migrate import check_not_newer, load_migrations, migrate, read_schema_version
from onbeat.store.sqlite.nodes import SqliteNodes
from onbeat.store.sqlite.pauses import SqlitePauses
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.runs import SqliteRuns
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import Counts

_META = load_queries("meta")
_FIRES = load_queries("fires")
_NODES = load_queries("nodes")


class SqliteStore:
    """The contract's Store over one data file that this process holds the lock of."""

    def __init__(
        self, *, lock: DataFileLock, writer: Writer, readers: Readers, slots: int, read_time: Callable[[], int]
    ) -> None:
        self._lock: DataFileLock | None = lock
        self._writer = writer
        self._readers = readers
        self._slots = slots
        self._read_time = read_time
        self._jobs = SqliteJobs(writer=writer, readers=readers, slots=slots)
        self._calendars = SqliteCalendars(writer=writer, readers=readers, slots=slots)
        self._pauses = SqlitePauses(writer=writer, readers=readers)
        self._blackouts = SqliteBlackouts(writer=writer, readers=readers)
        self._fires = SqliteFires(writer=writer, readers=readers, slots=slots)
        self._backfills = SqliteBackfills(writer=writer, readers=readers, slots=slots)
        self._leases = SqliteLeases(writer=writer, readers=readers, slots=slots)
        self._runs = SqliteRuns(writer=writer, readers=readers, slots=slots)
        self._nodes = SqliteNodes(writer=writer, readers=readers)
        self._access = SqliteAccess(writer=writer, readers=readers)

    @property
    def jobs(self) -> SqliteJobs:
        return self._jobs

    @property
    def calendars(self) -> SqliteCalendars:
        return self._calendars

    @property
    def pauses(self) -> SqlitePauses:
        return self._pauses

    @property
    def blackouts(self) -> SqliteBlackouts:
        return self._blackouts

    @property
    def fires(self) -> SqliteFires:
        return self._fires

    @property
    def backfills(self) -> SqliteBackfills:
        return self._backfills

    @property
    def leases(self) -> SqliteLeases:
        return self._leases

    @property
    def runs(self) -> SqliteRuns:
        return self._runs

    @property
    def nodes(self) -> SqliteNodes:
        return self._nodes

    @property
    def access(self) -> SqliteAccess:
        return self._access

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def is_shared(self) -> bool:
        """Never: the lock of the data file is this process's."""
        return False

    async def listen(self, _tell: Callable[[Hint], None]) -> bool:
        """No other process writes."""
        return False

    def hint_to_others(self, are_there: bool) -> None:
        """Nobody else is there."""

    async def almanac_revision(self) -> int:
        return await self._readers.read(read_almanac_revision)

    async def read_clock(self) -> int:
        """The host's clock: the file and all that work on it are on one host."""
        return self._read_time()

    async def counts(self) -> Counts:
        def read(connection: apsw.Connection) -> Counts:
            rows: list[Row] = connection.execute(_NODES["job_counts"]).fetchall()
            running = connection.execute(_NODES["count_running"]).get
            return Counts(
                jobs_by_state={row[0]: row[1] for row in rows},
                pending=connection.execute(_NODES["count_live"]).get - running,
                running=running,
                oldest_ready_at=connection.execute(_NODES["oldest_ready_at"]).get,
                next_due_at=connection.execute(_FIRES["next_due_at"], (None,)).get,
            )

        return await self._readers.read(read)

    async def close(self) -> None:
        # The readers go first: an open snapshot would keep the writer from emptying the WAL.
        await self._readers.close()
        await self._writer.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


async def open_data_file(path: Path, *, create: bool, slots: int, read_time: Callable[[], int]) -> SqliteStore:
    """Take the file's lock, bring its schema up to date, start the threads.

    Raises DataFileInUse, SchemaTooNew, or ConfigError where the place cannot hold a data file.
    """
    return await asyncio.to_thread(_open, path, create, slots, read_time)


def check_data_file(path: Path) -> tuple[int, str]:
    """Look at a data file without its lock: its schema version and SQLite's verdict on its pages, "ok" if sound.

    Raises StoreUnavailable where it cannot be read, SchemaTooNew, or ConfigError where it is not onbeat's.
    """
    connection = open_reading_connection(str(path))
    try:
        version = read_schema_version(connection)
        check_not_newer(version, newest=len(load_migrations()))
        return version, str(connection.pragma("quick_check"))
    except apsw.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error
    finally:
        connection.close()


def _open(path: Path, create: bool, slots: int, read_time: Callable[[], int]) -> SqliteStore:
    refuse_network_filesystem(path.parent.resolve(), mounts=read_mounts())
    if not create and not path.exists():
        raise ConfigError(f"there is no data file {path}", remedy="check the path, or let onbeat create it")
    lock = DataFileLock(path)
    try:
        # Under the lock, so that of many processes that start at once exactly one migrates.
        connection = open_writing_connection(str(path))
        try:
            migrate(connection, migrations=load_migrations(), slots=slots, now=read_time())
            slots = connection.execute(_META["slots"]).get
            readers = Readers(path)
        except BaseException as error:
            connection.close()
            raise as_store_error(error) from error
    except BaseException:
        lock.release()
        raise
    writer = Writer(connection, busy_timeout_ms=BUSY_TIMEOUT_MS)
    return SqliteStore(lock=lock, writer=writer, readers=readers, slots=slots, read_time=read_time)
