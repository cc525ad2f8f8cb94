"""Opens connections to the data file, and turns SQLite's errors into onbeat's.

Durability: WAL with `synchronous=FULL`. A commit that returned survives a power cut. No memory map: an I/O error
under a map is a signal, not an answer.
"""

from __future__ import annotations

from typing import Final

import apsw

from onbeat.domain.errors import ConfigError, OnbeatError, StoreUnavailable

BUSY_TIMEOUT_MS: Final = 5_000
WRITER_CACHE_KIB: Final = 65_536
READER_CACHE_KIB: Final = 8_192
OLDEST_SQLITE: Final = (3, 51, 3)  # before it, two connections that checkpoint at once could lose writes

_ENVIRONMENT_ERRORS: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.NoMemError,
    apsw.InterruptError,
    apsw.AbortError,
    apsw.ProtocolError,
    apsw.PermissionsError,
    apsw.AuthError,
    apsw.NoLFSError,
    apsw.ConnectionClosedError,
)


def check_sqlite_version(text: str) -> None:
    """Refuse a SQLite that can lose acknowledged writes. Raises ConfigError."""
    version = tuple(int(part) for part in text.split("."))
    if version < OLDEST_SQLITE:
        raise ConfigError(
            f"SQLite {text} can lose writes; onbeat needs 3.51.3 or newer",
            remedy="upgrade the package apsw, which carries its own SQLite",
        )


def open_writing_connection(path: str) -> apsw.Connection:
    """The one connection that writes and checkpoints; creates the file. Raises ConfigError where that is impossible."""
    check_sqlite_version(apsw.sqlite_lib_version())
    try:
        connection = apsw.Connection(
            path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, statementcachesize=128
        )
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Without it, statements that a partial index could serve are planned anew for every changed binding.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("fullfsync", True)  # macOS: fsync alone does not reach the platter
        connection.pragma("wal_autocheckpoint", 0)  # the writer's loop does it, between two groups
        connection.pragma("mmap_size", 0)
        connection.pragma("cache_size", -WRITER_CACHE_KIB)
        connection.pragma("temp_store", "memory")
        connection.pragma("foreign_keys", False)
    except apsw.Error as error:
        raise ConfigError(f"{path} cannot be opened as a SQLite database: {error}") from error
    return connection


def open_reading_connection(path: str) -> apsw.Connection:
    """A connection that cannot write. Raises StoreUnavailable where the file cannot be read."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, statementcachesize=128)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # Without it, statements that a partial index could serve are planned anew for every changed binding.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.pragma("query_only", True)
        connection.pragma("mmap_size", 0)
        connection.pragma("cache_size", -READER_CACHE_KIB)
        connection.pragma("temp_store", "memory")
    except apsw.Error as error:
        raise as_store_error(error) from error
    connection.create_scalar_function("casefold", _casefold, 1, deterministic=True)
    return connection


def as_store_error(error: BaseException) -> BaseException:
    """What a caller of the store may see of `error`: SQLite's own kinds never leave the engine."""
    if isinstance(error, _ENVIRONMENT_ERRORS):
        return StoreUnavailable(f"the database does not answer: {error}")
    if isinstance(error, apsw.Error):
        return OnbeatError(f"the database refused a statement: {error}")
    return error


def _casefold(*arguments: apsw.SQLiteValue) -> apsw.SQLiteValue:
    # SQLite's own lower() knows ASCII only; names are in any language.
    (text,) = arguments
    return text.casefold() if isinstance(text, str) else text
