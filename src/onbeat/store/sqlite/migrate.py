"""Brings a data file to this onbeat's schema: numbered migrations, forward only, each in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import apsw

from onbeat.domain.errors import ConfigError, SchemaTooNew
from onbeat.store.sqlite.queries import load_queries

DEFAULT_SLOTS: Final = 256

_QUERIES = load_queries("meta")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    script: str


def load_migrations() -> tuple[Migration, ...]:
    """The steps in `migrations/`, in order; numbers run from 1 without a gap."""
    found = sorted(
        (entry.name, entry.read_text(encoding="utf-8"))
        for entry in files(__package__).joinpath("migrations").iterdir()
        if entry.name.endswith(".sql")
    )
    migrations = tuple(Migration(int(name.partition("_")[0]), name.removesuffix(".sql"), text) for name, text in found)
    if [step.number for step in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError("migrations are not numbered 1, 2, 3 …")
    return migrations


def read_schema_version(connection: apsw.Connection) -> int:
    """The schema's version; 0 for an empty file. Raises ConfigError on a database that is not onbeat's."""
    if connection.execute(_QUERIES["has_meta"]).get:
        return int(connection.execute(_QUERIES["schema_version"]).get)
    if connection.execute(_QUERIES["has_tables"]).get:
        raise ConfigError(
            "the file is a SQLite database of another program",
            remedy="give onbeat a file of its own; nothing was changed",
        )
    return 0


def check_not_newer(version: int, *, newest: int) -> None:
    """Raises SchemaTooNew."""
    if version > newest:
        raise SchemaTooNew(
            f"the database has schema version {version}; this onbeat knows versions up to {newest}",
            remedy="start the newer onbeat that wrote it, or restore a backup from before the upgrade",
        )


def migrate(connection: apsw.Connection, *, migrations: Sequence[Migration], slots: int, now: int) -> None:
    """Apply what is missing, in order. A crash in between leaves the file at the last whole step.

    `slots` and `now` are used only when the file is new. Call it while holding the file's lock.
    """
    version = read_schema_version(connection)
    check_not_newer(version, newest=len(migrations))
    for step in migrations[version:]:
        with connection:
            connection.execute(step.script)
            if step.number == 1:
                connection.execute(_QUERIES["describe"], (step.number, slots, now))
            else:
                connection.execute(_QUERIES["raise_schema_version"], (step.number,))
