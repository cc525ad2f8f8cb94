"""A data file as the source or the target of a move.

The target is filled under another name, `<file>.copy`, and takes its own when it is whole: a server never opens half
of it, and a copy that was killed goes on with what it finds there.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import apsw

from onbeat.clock import host_time_us
from onbeat.domain.errors import ConfigError
from onbeat.store.moving import BATCH_ROWS, Installation, MovedTable, without_nul
from onbeat.store.rows import Row
from onbeat.store.sqlite.connection import as_store_error, open_reading_connection, open_writing_connection
from onbeat.store.sqlite.copying import discard_data_file, put_in_place
from onbeat.store.sqlite.datafile import DataFileLock, read_mounts, refuse_network_filesystem
from onbeat.store.sqlite.migrate import check_not_newer, load_migrations, migrate, read_schema_version
from onbeat.store.sqlite.queries import load_queries

_QUERIES = load_queries("moving")

_ORDERS: Final = {"jobs": "job_id", "backfills": "job_id, number", "ended_runs": "ended_id"}
"""Of tables whose primary key does not begin with the slot. That of ended runs is the order in which they ended."""

_CHECKPOINT_PAGES: Final = 16_384
"""64 MiB: nobody else checkpoints a file that is being filled."""


class DataFileSource:
    """A data file whose lock this process holds."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._installation = _read_installation(connection)

    @property
    def installation(self) -> Installation:
        return self._installation

    async def count(self, table: MovedTable) -> int:
        return int(self._connection.execute(_QUERIES["count_table"].format(table=table.name)).get)

    async def read(self, table: MovedTable, *, skip: int = 0) -> AsyncIterator[list[Row]]:
        statement = _QUERIES["read_rows"].format(
            columns=", ".join(table.columns), table=table.name, order=_order(table)
        )
        cursor: Iterator[Row] = self._connection.execute(statement, (skip,))
        free_texts = table.positions(table.free_texts)
        with _store_errors():
            while rows := list(islice(cursor, BATCH_ROWS)):
                yield without_nul(rows, at=free_texts)

    async def check_at_rest(self) -> None:
        """Always: whoever works on the file holds its lock."""


class DataFileTarget(DataFileSource):
    """A data file that is being filled beside its place."""

    def __init__(self, connection: apsw.Connection, *, draft: Path, path: Path) -> None:
        super().__init__(connection)
        self._draft = draft
        self._path = path

    async def append(self, table: MovedTable, rows: list[Row]) -> None:
        columns, slots = table.columns, self._installation.slots
        # Backfills are found by their job alone here.
        if table.has_slot and table.name != "backfills":
            at = columns.index("job_id")
            columns, rows = ("slot", *columns), [(row[at] % slots, *row) for row in rows]
        statement = _QUERIES["write_row"].format(
            table=table.name, columns=", ".join(columns), values=", ".join("?" * len(columns))
        )
        with _store_errors(), self._connection:
            self._connection.executemany(statement, rows)

    async def finish(self) -> None:
        with _store_errors():
            # Leaving WAL mode folds the log into the file, durably.
            self._connection.pragma("journal_mode", "delete")
        self._connection.close()
        discard_data_file(self._path)
        put_in_place(self._draft, self._path)


@contextlib.asynccontextmanager
async def reading_data_file(path: Path) -> AsyncIterator[DataFileSource]:
    """The file as a source, under its lock.

    Raises DataFileInUse while a process works on it; ConfigError where there is none, or one of an older schema;
    SchemaTooNew; StoreUnavailable.
    """
    _require(path)
    with _locked(path):
        connection = open_reading_connection(str(path))
        try:
            with _store_errors():
                version = read_schema_version(connection)
                check_not_newer(version, newest=len(load_migrations()))
                if version < len(load_migrations()):
                    raise ConfigError(f"{path} has an older schema", remedy="run `onbeat db upgrade` on it first")
                source = DataFileSource(connection)
            yield source
        finally:
            connection.close()


@contextlib.asynccontextmanager
async def writing_data_file(path: Path, installation: Installation, *, replaces: bool) -> AsyncIterator[DataFileTarget]:
    """The file as a target, with what a killed copy of that installation left, unless the copy `replaces`.

    Raises DataFileInUse while a process works on it; ConfigError where a file is there that must not be replaced.
    """
    with _locked(path):
        draft = path.with_name(path.name + ".copy")
        connection = _open_draft(draft, path=path, installation=installation, replaces=replaces)
        try:
            with _store_errors():
                connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
                migrate(connection, migrations=load_migrations(), slots=installation.slots, now=host_time_us())
                connection.execute(
                    _QUERIES["write_installation"],
                    (installation.installation_id, installation.created_at, installation.almanac_revision),
                )
                target = DataFileTarget(connection, draft=draft, path=path)
            yield target
        finally:
            connection.close()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = DataFileLock(path)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise as_store_error(error) from error


def _require(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"there is no data file {path}")


def _open_draft(draft: Path, *, path: Path, installation: Installation, replaces: bool) -> apsw.Connection:
    refuse_network_filesystem(path.parent, mounts=read_mounts())
    if path.exists() and not replaces:
        raise ConfigError(f"{path} is there already", remedy="name another file, or replace it with --force")
    if replaces or not _is_begun(draft, installation):
        _discard(draft)
        draft.touch(mode=0o600)
    return open_writing_connection(str(draft))


def _read_installation(connection: apsw.Connection) -> Installation:
    rows: list[Row] = connection.execute(_QUERIES["read_installation"]).fetchall()
    return Installation(*rows[0])


def _order(table: MovedTable) -> str:
    key = ("slot", *table.key) if table.has_slot else table.key
    return _ORDERS.get(table.name, ", ".join(key))


def _is_begun(draft: Path, installation: Installation) -> bool:
    """Is the draft one of this installation, and of this onbeat?"""
    if not draft.is_file():
        return False
    connection = open_writing_connection(str(draft))
    try:
        if read_schema_version(connection) != len(load_migrations()):
            return False
        found = _read_installation(connection)
        return found.installation_id == installation.installation_id and found.slots == installation.slots
    except (apsw.Error, ConfigError):
        return False
    finally:
        connection.close()


def _discard(draft: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
