"""A database as the source or the target of a move.

The target is marked in `meta` while it is being filled, and no node opens it then. The mark is a token of the process
that fills it: where another one takes over, the first may write no more.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from onbeat.domain.errors import ConfigError
from onbeat.store.moving import BATCH_ROWS, MOVED_TABLES, Installation, MovedTable
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.migrate import check_serves, load_migrations, read_schema
from onbeat.store.postgres.nodes import check_at_rest
from onbeat.store.postgres.partitions import ATTEMPTS, RUNS, make_past_partitions
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.store import connect_by_url, upgrade_database
from onbeat.store.rows import Row

_META = load_queries("meta")
_QUERIES = load_queries("moving")

_ORDERS: Final = {"ended_runs": "finished_at, job_id, scheduled_at"}
"""A data file's retention expects the order in which runs ended."""

_MADE: Final = ("job_keys", "job_counts", "ended_ranges")
"""Tables that are made out of others."""

# Whole tables are read and large batches written, so neither time nor plans are bounded.
_AT_LEISURE: Final = """
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
"""
_TIMEOUT_S: Final = 3_600.0


class DatabaseSource:
    """A database that no node works on, as of one moment."""

    def __init__(self, database: Database, snapshot: Connection, installation: Installation) -> None:
        self._database = database
        self._snapshot = snapshot
        self._installation = installation

    @property
    def installation(self) -> Installation:
        return self._installation

    async def count(self, table: MovedTable) -> int:
        return await _count(self._snapshot, table)

    async def read(self, table: MovedTable, *, skip: int = 0) -> AsyncIterator[list[Row]]:
        async for rows in _read(self._snapshot, table, skip=skip):
            yield rows

    async def check_at_rest(self) -> None:
        await self._database.read(check_at_rest)


class DatabaseTarget:
    """A database that is being filled."""

    def __init__(self, database: Database, installation: Installation, token: str) -> None:
        self._database = database
        self._installation = installation
        self._token = token

    @property
    def installation(self) -> Installation:
        return self._installation

    async def count(self, table: MovedTable) -> int:
        return await self._database.read(lambda connection: _count(connection, table))

    async def read(self, table: MovedTable, *, skip: int = 0) -> AsyncIterator[list[Row]]:
        async with self._database.snapshot() as snapshot:
            await snapshot.execute(_AT_LEISURE)
            async for rows in _read(snapshot, table, skip=skip):
                yield rows

    async def check_at_rest(self) -> None:
        await self._database.read(check_at_rest)

    async def append(self, table: MovedTable, rows: list[Row]) -> None:
        if table.name in (RUNS, ATTEMPTS):
            at = table.columns.index("scheduled_at")
            await make_past_partitions(self._database, table.name, {row[at] for row in rows})
        contents = [_content(table, rows, slots=self._installation.slots), *_made_of(table, rows, self._installation)]

        async def write(connection: Connection) -> None:
            await self._hold(connection)
            for name, columns, records in contents:
                if records:
                    await connection.copy_records_to_table(name, records=records, columns=columns, timeout=_TIMEOUT_S)

        await self._database.write(write)

    async def finish(self) -> None:
        async def write(connection: Connection) -> None:
            await self._hold(connection)
            await check_at_rest(connection)
            await connection.execute(_QUERIES["finish_copy"])

        await self._database.write(write)

    async def _hold(self, connection: Connection) -> None:
        await connection.execute(_AT_LEISURE)
        if not await connection.fetchval(_QUERIES["hold_copy"], self._token):
            raise ConfigError("another process has taken over the copy into this database")


@contextlib.asynccontextmanager
async def reading_database(url: str) -> AsyncIterator[DatabaseSource]:
    """The database as a source. Raises ConfigError where a node works on it or its schema is not this onbeat's."""
    database = await connect_by_url(url)
    try:
        schema = await database.read(read_schema)
        if schema.version == 0:
            raise ConfigError("the database to copy is empty")
        check_serves(schema, newest=len(load_migrations()))
        await database.read(check_at_rest)
        async with database.snapshot() as snapshot:
            await snapshot.execute(_AT_LEISURE)
            found = await snapshot.fetchrow(_QUERIES["read_installation"])
            assert found is not None  # check_serves saw it
            yield DatabaseSource(database, snapshot, Installation(*tuple(found)[:4]))
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def writing_database(url: str, installation: Installation, *, replaces: bool) -> AsyncIterator[DatabaseTarget]:
    """The database as a target, with what a killed copy of that installation left, unless the copy `replaces`.

    Raises ConfigError where a node works on it, its schema is not this onbeat's, or it holds what must not be replaced.
    """
    database = await connect_by_url(url)
    try:
        schema = await database.read(read_schema)
        if schema.version == 0:
            _before, schema = await upgrade_database(url, slots=installation.slots)
        check_serves(replace(schema, is_half_copied=False), newest=len(load_migrations()))
        token = secrets.token_hex(16)
        await database.write(lambda connection: _begin(connection, installation, token=token, replaces=replaces))
        yield DatabaseTarget(database, replace(installation, slots=schema.slots), token)
    finally:
        await database.close()


async def _begin(connection: Connection, installation: Installation, *, token: str, replaces: bool) -> None:
    await connection.execute(_AT_LEISURE)
    await connection.execute(_META["lock_schema"])
    await check_at_rest(connection)
    found = await connection.fetchrow(_QUERIES["read_installation"])
    assert found is not None
    if replaces:
        tables = ", ".join([*(table.name for table in MOVED_TABLES), *_MADE])
        await connection.execute(_QUERIES["empty_tables"].format(tables=tables))
    elif found["unfinished_copy"] is None:
        await _refuse_rows(connection)
    elif found["installation_id"] != installation.installation_id:
        raise ConfigError("the target holds an unfinished copy of another database", remedy="replace it with --force")
    await connection.execute(
        _QUERIES["begin_copy"],
        token,
        installation.installation_id,
        installation.created_at,
        installation.almanac_revision,
    )


async def _refuse_rows(connection: Connection) -> None:
    holding = [
        table.name
        for table in MOVED_TABLES
        if await connection.fetchval(_QUERIES["holds_any"].format(table=table.name))
    ]
    if holding:
        raise ConfigError(
            f"the target is not empty: it has rows in {', '.join(holding)}",
            remedy="name an empty database, or replace all that this one holds with --force",
        )


async def _count(connection: Connection, table: MovedTable) -> int:
    await connection.execute(_AT_LEISURE)
    return int(await connection.fetchval(_QUERIES["count_table"].format(table=table.name), timeout=_TIMEOUT_S))


async def _read(connection: Connection, table: MovedTable, *, skip: int) -> AsyncIterator[list[Row]]:
    key = ("slot", *table.key) if table.has_slot else table.key
    statement = _QUERIES["read_rows"].format(
        columns=", ".join(_as_travelling(table, column) for column in table.columns),
        table=table.name,
        order=_ORDERS.get(table.name, ", ".join(key)),
    )
    cursor = await connection.cursor(statement, skip, timeout=_TIMEOUT_S)
    while rows := await cursor.fetch(BATCH_ROWS, timeout=_TIMEOUT_S):
        yield [tuple(row) for row in rows]


def _as_travelling(table: MovedTable, column: str) -> str:
    if column in table.flags:
        return f"{column}::integer"
    return f"nullif({column}, '')" if column in table.blanks else column


def _content(table: MovedTable, rows: list[Row], *, slots: int) -> tuple[str, tuple[str, ...], list[Row]]:
    """A table's name, its columns, and the rows as this engine holds them."""
    columns, records = table.columns, rows
    if table.flags or table.blanks:
        flags, blanks = table.positions(table.flags), table.positions(table.blanks)
        records = [_as_held(row, flags, blanks) for row in rows]
    if table.has_slot:
        at = table.columns.index("job_id")
        columns, records = ("slot", *columns), [(row[at] % slots, *row) for row in records]
    if table.name == "jobs":
        key, name = columns.index("key"), columns.index("name")
        columns = (*columns, "folded_name", "folded_key")
        records = [(*row, row[name].casefold(), None if row[key] is None else row[key].casefold()) for row in records]
    return table.name, columns, records


def _as_held(row: Row, flags: tuple[int, ...], blanks: tuple[int, ...]) -> Row:
    held = list(row)
    for at in flags:
        held[at] = bool(held[at])
    for at in blanks:
        held[at] = held[at] or ""
    return tuple(held)


def _made_of(
    table: MovedTable, rows: list[Row], installation: Installation
) -> list[tuple[str, tuple[str, ...], list[Row]]]:
    """What other tables hold because of these rows."""
    slots = installation.slots
    if table.name == "jobs":
        job_id, namespace, key, state = table.positions(("job_id", "namespace", "key", "state"))
        keys = [(row[namespace], row[key], row[job_id]) for row in rows if row[key] is not None]
        counts = [(row[job_id] % slots, row[state], 1) for row in rows]
        return [
            ("job_keys", ("namespace", "key", "job_id"), keys),
            ("job_counts", ("slot", "state", "count"), counts),
        ]
    if table.name == "ended_runs":
        job_id, scheduled_at, count, until = table.positions(("job_id", "scheduled_at", "count", "until"))
        ranges = [(row[job_id] % slots, row[job_id], row[scheduled_at], row[until]) for row in rows if row[count] > 1]
        return [("ended_ranges", ("slot", "job_id", "scheduled_at", "until"), ranges)]
    return []
