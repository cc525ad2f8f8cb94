"""Brings a database to this onbeat's schema: numbered migrations, forward only, each in one transaction.

A step is either an expansion, which nodes of the release before go on working with, or a contraction, which they do
not: its first line is then `-- serves from: N`, the oldest schema version whose code works with what the step leaves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from onbeat.domain.errors import ConfigError, SchemaTooNew
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.queries import load_queries

_QUERIES = load_queries("meta")
_SERVES_FROM: Final = re.compile(r"\A-- serves from: (\d+)\n")
STEP_TIMEOUT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    script: str

    @property
    def serves_from(self) -> int | None:
        """The oldest schema version whose code works with this one. None: all that worked with the one before."""
        found = _SERVES_FROM.match(self.script)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Schema:
    """What a database says of itself. Version 0: it is empty."""

    version: int = 0
    serves_from: int = 0
    slots: int = 0
    is_half_copied: bool = False
    """A copy of another database into it was begun and not finished."""
    is_distributed: bool = False
    """Its tables are spread over servers by slot."""


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


async def read_schema(connection: Connection) -> Schema:
    """The schema as it is. Raises ConfigError on a database that is not onbeat's."""
    if await connection.fetchval(_QUERIES["has_meta"]):
        return Schema(*(await connection.fetchrow(_QUERIES["read_meta"]) or ()))
    if await connection.fetchval(_QUERIES["has_tables"]):
        raise ConfigError(
            "the database's schema holds tables of another program",
            remedy="give onbeat a database, or a schema, of its own; nothing was changed",
        )
    return Schema()


def check_serves(schema: Schema, *, newest: int) -> None:
    """Raises SchemaTooNew where this onbeat is too old for the database, ConfigError where it is too new for it.

    ConfigError also where the database is a part of another one.
    """
    if schema.is_half_copied:
        raise ConfigError(
            "the database is being filled by `onbeat db copy`, which has not finished",
            remedy="wait for it, or run the same copy again",
        )
    if schema.serves_from > newest:
        raise SchemaTooNew(
            f"the database has schema version {schema.version}, which serves onbeats from schema {schema.serves_from}; "
            f"this one knows versions up to {newest}",
            remedy="start the newer onbeat that upgraded it, or restore a backup from before the upgrade",
        )
    if schema.version < newest:
        raise ConfigError(
            f"the database has schema version {schema.version}, this onbeat needs {newest}",
            remedy="run `onbeat db upgrade` first; nodes that run go on working",
        )


async def upgrade(database: Database, *, migrations: Sequence[Migration], slots: int, now: int) -> Schema:
    """Apply what is missing, in order, one process at a time. A crash leaves the database at the last whole step.

    `slots` and `now` are used only where the database is empty.
    """
    while True:
        schema, is_done = await database.write(
            lambda connection: _apply_next(connection, migrations=migrations, slots=slots, now=now)
        )
        if is_done:
            return schema


async def _apply_next(
    connection: Connection, *, migrations: Sequence[Migration], slots: int, now: int
) -> tuple[Schema, bool]:
    """Apply one step. Answer: the schema after it, and whether it is the newest."""
    # Waiting for another node's step, and a step over large tables, take longer than a statement may.
    await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
    await connection.execute(_QUERIES["lock_schema"], timeout=STEP_TIMEOUT_S)
    schema = await read_schema(connection)
    if schema.version >= len(migrations):
        return schema, True
    step = migrations[schema.version]
    await connection.execute(step.script, timeout=STEP_TIMEOUT_S)
    serves_from = step.serves_from or schema.serves_from or step.number
    if step.number == 1:
        await connection.execute(_QUERIES["describe"], step.number, serves_from, slots, now)
    else:
        await connection.execute(_QUERIES["raise_schema_version"], step.number, serves_from)
    return await read_schema(connection), step.number == len(migrations)
