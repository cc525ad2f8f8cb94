"""Copies a data file whole, also while a server works on it, and checks the copy."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from onbeat.domain.errors import ConfigError, StoreUnavailable
from onbeat.store.rows import Row
from onbeat.store.sqlite.connection import as_store_error, open_reading_connection, open_writing_connection
from onbeat.store.sqlite.migrate import DEFAULT_SLOTS, check_not_newer, load_migrations, migrate, read_schema_version
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import SecretVersion

_QUERIES = load_queries("backup")

PAGES_AT_ONCE: Final = 4_096
"""16 MiB: between two steps the process hears of a Ctrl-C."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A copy that was found sound, and what is in it."""

    bytes: int
    schema_version: int
    jobs: int
    live_runs: int
    ended_runs: int
    attempts: int
    secrets: tuple[SecretVersion, ...]


@contextlib.contextmanager
def drafting(target: Path) -> Iterator[Path]:
    """An empty file of mode 0600 beside `target`, to be renamed to it by `put_in_place`; gone if it was not.

    Raises ConfigError where the place cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".new", dir=target.parent)
    except OSError as error:
        raise ConfigError(
            f"{target} cannot be written: {error.strerror}", remedy="choose a directory that exists"
        ) from None
    os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)


def copy_data_file(source: Path, draft: Path) -> CopiedFile:
    """Write `source` as of one moment to the empty file `draft`, durably, and check it.

    1. One read transaction holds the moment, however long the copy takes; writers go on beside it.
    2. SQLite's backup interface copies page by page.
    3. The copy leaves WAL mode: it is one file, with nothing beside it.
    4. It is read whole (integrity check), and its rows are counted against the source's of that moment.

    Raises StoreUnavailable where a file cannot be read or written or the copy is not sound, SchemaTooNew, or
    ConfigError where the source is not onbeat's.
    """
    reading = open_reading_connection(str(source))
    try:
        copy = apsw.Connection(str(draft), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with reading:
                version, counts = _describe(reading, source)
                _copy_pages(reading, copy)
            # The draft is worth nothing until it is renamed: it is made durable once, at the end.
            copy.pragma("synchronous", "off")
            copy.pragma("journal_mode", "delete")
            found = [str(row[0]) for row in copy.execute("PRAGMA integrity_check")]
            if found != ["ok"] or _describe(copy, draft) != (version, counts):
                raise StoreUnavailable(f"the copy of {source} is not sound: {found[0]}; nothing was put in place")
            secrets = tuple(SecretVersion(*row) for row in copy.execute(_QUERIES["every_secret"]))
        finally:
            copy.close()
    except apsw.Error as error:
        raise as_store_error(error) from error
    finally:
        reading.close()
    _make_durable(draft)
    jobs, live_runs, ended_runs, attempts = counts
    return CopiedFile(draft.stat().st_size, version, jobs, live_runs, ended_runs, attempts, secrets)


def pause_everything(draft: Path, *, note: str, now: int) -> None:
    """Bring a draft to this onbeat's schema and begin a pause of all its jobs, which a server finds there at its start.

    Raises StoreUnavailable.
    """
    connection = open_writing_connection(str(draft))
    try:
        migrate(connection, migrations=load_migrations(), slots=DEFAULT_SLOTS, now=now)
        with connection:
            connection.execute(_QUERIES["pause_everything"], (note, now))
        # Leaving WAL mode folds the log into the file, durably.
        connection.pragma("journal_mode", "delete")
    except apsw.Error as error:
        raise as_store_error(error) from error
    finally:
        connection.close()


def put_in_place(draft: Path, target: Path) -> None:
    """From here on `target` is the draft's content, whole, also after a power cut."""
    draft.rename(target)
    _make_durable(target.parent)


def discard_data_file(path: Path) -> None:
    """Leave nothing beside a data file that would be read into the one that takes its place. Call it with its lock."""
    if path.exists():
        # Folds the log into the file, so that a crash before the new one is in place leaves the old one whole. A file
        # that is too broken for that is being replaced for this very reason.
        with contextlib.suppress(ConfigError, apsw.Error):
            open_writing_connection(str(path)).close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _describe(connection: apsw.Connection, path: Path) -> tuple[int, Row]:
    version = read_schema_version(connection)
    if version == 0:
        raise ConfigError(f"{path} is empty", remedy="name a data file that onbeat has written")
    check_not_newer(version, newest=len(load_migrations()))
    counts: list[Row] = connection.execute(_QUERIES["count_rows"]).fetchall()
    return version, counts[0]


def _copy_pages(source: apsw.Connection, copy: apsw.Connection) -> None:
    with copy.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(PAGES_AT_ONCE)


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
