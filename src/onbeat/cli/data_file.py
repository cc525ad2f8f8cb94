"""What can be read of a data file from outside, beside a server that may hold it. Never writes, never creates."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from onbeat.domain.errors import ConfigError
from onbeat.store.sqlite.connection import as_store_error, open_reading_connection
from onbeat.store.sqlite.datafile import filesystem_of, read_mounts, resolve_data_file
from onbeat.store.sqlite.migrate import load_migrations, read_schema_version


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, seen from outside."""

    path: Path
    exists: bool
    size: int
    filesystem: str | None  # None: this system does not tell
    schema_version: int  # 0: no file, or an empty one
    newest_schema_version: int
    holder: str | None  # who has it open for writing
    problems: tuple[str, ...]


def inspect_file(url: str, *, reads_everything: bool = False, may_be_missing: bool = False) -> DataFile:
    """Look at the file. `reads_everything` runs SQLite's integrity check, which takes seconds per gigabyte.

    Raises ConfigError where there is no file, unless it `may_be_missing`; StoreUnavailable where it cannot be read.
    """
    path = resolve_data_file(url)
    exists = path.exists()
    if not exists and not may_be_missing:
        raise ConfigError(f"there is no data file {path}", field="data", remedy="name it with --data or ONBEAT_DATA")
    version, problems = _read(path, reads_everything=reads_everything) if exists else (0, ())
    return DataFile(
        path=path,
        exists=exists,
        size=path.stat().st_size if exists else 0,
        filesystem=filesystem_of(path, mounts=read_mounts()),
        schema_version=version,
        newest_schema_version=len(load_migrations()),
        holder=_holder(path),
        problems=problems,
    )


def _read(path: Path, *, reads_everything: bool) -> tuple[int, tuple[str, ...]]:
    import apsw

    connection = open_reading_connection(str(path))
    try:
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")] if reads_everything else []
        return read_schema_version(connection), tuple(problem for problem in problems if problem != "ok")
    except apsw.Error as error:
        raise as_store_error(error) from error
    finally:
        connection.close()


def _holder(path: Path) -> str | None:
    """Who holds the lock. Tries it for a moment with a shared lock, which keeps nobody out that asks again."""
    try:
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    finally:
        os.close(descriptor)
    return None
