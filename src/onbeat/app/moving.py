"""Copies a whole database into one of the other engine: the same jobs, the same run ids, the same leases."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from onbeat.app.backup import key_file_of
from onbeat.config import Settings
from onbeat.domain.errors import ConfigError
from onbeat.services.secret_box import SecretBox, parse_master_key, read_master_key
from onbeat.services.signing_secrets import check_secrets
from onbeat.store.database_url import is_postgres_url
from onbeat.store.moving import MOVED_TABLES, SECRETS, Installation, MovedTable, RowSum, Source, Target
from onbeat.store.postgres.moving import reading_database, writing_database
from onbeat.store.sqlite.datafile import resolve_data_file
from onbeat.store.sqlite.moving import reading_data_file, writing_data_file
from onbeat.store.values import SecretVersion


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """One table that is the same on both sides. `found`: rows that an earlier, killed copy had brought over."""

    name: str
    rows: int
    found: int
    checksum: str


@dataclass(frozen=True, slots=True)
class CopiedDatabase:
    """What is the same now. `key_file`: the master key that the target's nodes need; None: the setting holds it."""

    tables: tuple[CopiedTable, ...]
    slots_before: int
    slots: int
    key_file: Path | None

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)


class Progress(Protocol):
    """Hears how many rows of a table have been copied, of how many."""

    def __call__(self, table: str, *, done: int, rows: int) -> None: ...


async def copy_database(
    settings: Settings, source: str, target: str, *, replaces: bool, progress: Progress
) -> CopiedDatabase:
    """Copy `source` into `target`, which is empty, or holds what an earlier copy of the same source left.

    1. Nobody works on either: the lock of the data file, no live nodes on PostgreSQL. The secrets open.
    2. Table by table, batch by batch, each in one transaction. The target holds the first rows of each table, in the
       order in which the source is read: so a copy that was killed goes on behind as many as there are.
    3. Both sides are read whole and compared by number and checksum of rows.
    4. Only then may nodes serve the target.

    `replaces`: whatever the target holds goes first. Raises ConfigError where one of them cannot be used or they differ
    in the end, DataFileInUse, StoreUnavailable, SchemaTooNew.
    """
    if is_postgres_url(source) == is_postgres_url(target):
        raise ConfigError(
            "a copy goes from a data file to PostgreSQL, or back",
            remedy="use `onbeat db backup` between files, PostgreSQL's own tools between its databases",
        )
    async with _reading(source) as reading:
        key_file = await _check_key(settings, source, reading)
        async with _writing(target, reading.installation, replaces=replaces) as writing:
            found = {table.name: await _copy(table, reading, writing, progress=progress) for table in MOVED_TABLES}
            copied = [await _compare(table, reading, writing, found=found[table.name]) for table in MOVED_TABLES]
            await reading.check_at_rest()
            await writing.finish()
            return CopiedDatabase(tuple(copied), reading.installation.slots, writing.installation.slots, key_file)


def _reading(url: str) -> AbstractAsyncContextManager[Source]:
    return reading_database(url) if is_postgres_url(url) else reading_data_file(resolve_data_file(url))


def _writing(url: str, installation: Installation, *, replaces: bool) -> AbstractAsyncContextManager[Target]:
    if is_postgres_url(url):
        return writing_database(url, installation, replaces=replaces)
    return writing_data_file(resolve_data_file(url), installation, replaces=replaces)


async def _check_key(settings: Settings, source: str, reading: Source) -> Path | None:
    """A copy whose secrets nothing opens would sign nothing. Answer: the key file, where the key is in one."""
    key_file = None if is_postgres_url(source) else key_file_of(resolve_data_file(source))
    if settings.master_key is not None:
        key_file = None
    key = parse_master_key(settings.master_key) if settings.master_key is not None else None
    if key_file is not None:
        key = read_master_key(key_file)
    stored = [SecretVersion(*row) async for rows in reading.read(SECRETS) for row in rows]
    if key is not None:
        check_secrets(SecretBox(key), stored)
    elif stored:
        raise ConfigError(
            "the master key of the signing secrets is missing",
            field="master_key",
            remedy="set master_key, or put the key file beside the data file",
        )
    return key_file if key is not None else None


async def _copy(table: MovedTable, reading: Source, writing: Target, *, progress: Progress) -> int:
    """Answer: how many rows were there already."""
    rows, found = await reading.count(table), await writing.count(table)
    done = found
    async for batch in reading.read(table, skip=found):
        await writing.append(table, batch)
        done += len(batch)
        progress(table.name, done=done, rows=rows)
    return found


async def _compare(table: MovedTable, reading: Source, writing: Target, *, found: int) -> CopiedTable:
    before, after = await _sum(reading, table), await _sum(writing, table)
    if (before.rows, before.checksum) != (after.rows, after.checksum):
        raise ConfigError(
            f"{table.name} differs: {before.rows} rows ({before.checksum}) in the source, "
            f"{after.rows} ({after.checksum}) in the target",
            remedy="if the source was used since an earlier copy was interrupted, begin anew with --force",
        )
    return CopiedTable(table.name, after.rows, found, after.checksum)


async def _sum(place: Source, table: MovedTable) -> RowSum:
    total = RowSum()
    async for rows in place.read(table):
        total.add(rows)
    return total
