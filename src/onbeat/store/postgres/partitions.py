"""Partitions of history, one per day UTC of the planned instant: made ahead, and dropped when all in them is old.

A day's runs are dropped in steps, each of which may be the last before a crash: the partition is taken out of its
table, which hides it from everybody; its ranges leave `ended_ranges`; it is dropped. Whoever prunes next goes on with
a partition that was only taken out. The day's attempts follow once no run of that day is left, live or ended.

Making and taking out a partition needs a lock that keeps all others from the table. It is waited for only a moment,
since those who come meanwhile wait behind it; where it is not had, the next round of retention tries again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import asyncpg
import structlog

from onbeat.store.postgres.database import Connection, Database, savepoint
from onbeat.store.postgres.queries import load_queries

log = structlog.get_logger(__name__)

_META = load_queries("meta")
_QUERIES = load_queries("partitions")

DAY_US: Final = 86_400_000_000
DAYS_AHEAD: Final = 7
"""A week in which nobody gets the lock, or every node is down, still leaves each run its partition."""

MOST_DAYS_BACK: Final = 400
"""For which a copy of another database makes partitions: each costs every plan over history a little."""

RUNS: Final = "ended_runs"
ATTEMPTS: Final = "attempts"

# The lock is waited for 0.1 s. Making a partition reads all of the default one under it, which must end before the
# 3 s that others wait for a lock (database.py).
_BRIEFLY: Final = "SET LOCAL lock_timeout = '100ms'; SET LOCAL statement_timeout = '2s'"
_BY_BLOCKS: Final = "SET LOCAL enable_bitmapscan = on"
"""As a BRIN index, which says in which blocks to look, can only be used."""

# A partition that nobody sees any more is worked on without a hurry: a day may have millions of ranges.
_AT_LEISURE: Final = "SET LOCAL statement_timeout = '10min'"
_AT_LEISURE_S: Final = 620.0

_IN_THE_WAY: Final = (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, asyncpg.DeadlockDetectedError)


@dataclass(frozen=True, slots=True)
class Partition:
    """One day of one table."""

    day: date
    table: str

    @property
    def name(self) -> str:
        return f"{self.table}_{self.day:%Y%m%d}"

    @property
    def from_at(self) -> int:
        """Inclusive."""
        return self.day.toordinal() * DAY_US - _EPOCH_US

    @property
    def to_at(self) -> int:
        """Exclusive."""
        return self.from_at + DAY_US

    def write(self, query: str) -> str:
        """A statement about this partition."""
        return _QUERIES[query].format(table=self.table, partition=self.name, from_at=self.from_at, to_at=self.to_at)


_EPOCH_US: Final = date(1970, 1, 1).toordinal() * DAY_US


async def make_partitions(database: Database) -> int:
    """Make those of today, by the database's clock, and of the days ahead. Answer: how many could not be made now.

    A day whose instants lie in the default partition already keeps them there and gets no partition.
    """
    missing = await database.read(_find_missing)
    left = 0
    for partition in missing:
        left += not await _make(database, partition)
    if left:
        log.warning("partitions_not_made", left=left, of=len(missing))
    return left


async def make_past_partitions(database: Database, table: str, instants: Iterable[int]) -> None:
    """Make those of instants up to now that history was brought along for, at most `MOST_DAYS_BACK` days of them.

    What lies before that goes to the default partition, as a backfill's runs do.
    """
    now, existing = await database.read(_read_clock_and_partitions)
    today = datetime.fromtimestamp(now // 1_000_000, UTC).date()
    days = {datetime.fromtimestamp(instant // 1_000_000, UTC).date() for instant in instants}
    for day in sorted(days):
        partition = Partition(day, table)
        if partition not in existing and today - timedelta(days=MOST_DAYS_BACK) <= day <= today:
            await _make(database, partition)


async def drop_partitions(database: Database, *, ended_before: int, limit: int) -> int:
    """Drop the days whose every run ended before that. Answer: how many runs, `limit` where there were more.

    Goes on, oldest day first, until `limit` is reached.
    """
    dropped = 0
    found = await database.read(_find)
    # A day's attempts are looked at after its runs.
    for partition in sorted(found, key=lambda partition: (partition.day, partition.table == ATTEMPTS)):
        if dropped >= limit or partition.to_at > ended_before:
            break
        if found[partition] and not await _take_out(database, partition, ended_before=ended_before):
            continue
        dropped += await _drop(database, partition, most=limit - dropped)
    return dropped


async def count_days_ahead(connection: Connection) -> int:
    """How many of today and the days ahead have their partitions: `DAYS_AHEAD + 1` where all is well."""
    return (2 * (DAYS_AHEAD + 1) - len(await _find_missing(connection))) // 2


async def _find_missing(connection: Connection) -> list[Partition]:
    now, existing = await _read_clock_and_partitions(connection)
    return [partition for partition in _ahead(now) if partition not in existing]


async def _read_clock_and_partitions(connection: Connection) -> tuple[int, dict[Partition, bool]]:
    return await connection.fetchval(_META["read_clock"]), await _find(connection)


async def _find(connection: Connection) -> dict[Partition, bool]:
    """Every partition of a day, and whether it is attached to its table."""
    rows = await connection.fetch(_QUERIES["find_partitions"])
    return {_parse(name): is_attached for name, is_attached in rows}


def _parse(name: str) -> Partition:
    table, _, day = name.rpartition("_")
    return Partition(datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).date(), table)


def _ahead(now: int) -> Iterator[Partition]:
    today = datetime.fromtimestamp(now // 1_000_000, UTC).date()
    for number in range(DAYS_AHEAD + 1):
        for table in (RUNS, ATTEMPTS):
            yield Partition(today + timedelta(days=number), table)


async def _make(database: Database, partition: Partition) -> bool:
    """False: not now, somebody was in the way."""

    async def write(connection: Connection) -> bool:
        if not await connection.fetchval(_QUERIES["try_lock_partitions"]):
            return False
        if await connection.fetchval(partition.write("default_holds_rows"), partition.from_at, partition.to_at):
            return True
        try:
            async with savepoint(connection):
                await connection.execute(_BRIEFLY)
                await connection.execute(partition.write("create_partition"))
        except _IN_THE_WAY:
            return False
        except asyncpg.CheckViolationError:
            pass  # a run of that day came into the default partition since it was looked at
        return True

    return await database.write(write)


async def _take_out(database: Database, partition: Partition, *, ended_before: int) -> bool:
    """False: it is needed, or somebody was in the way."""

    async def is_needed(connection: Connection) -> bool:
        if partition.table == RUNS:
            await connection.execute(_BY_BLOCKS)
            return bool(await connection.fetchval(partition.write("holds_younger"), ended_before))
        return bool(await connection.fetchval(_QUERIES["holds_runs"], partition.from_at, partition.to_at))

    async def write(connection: Connection) -> bool:
        if not await connection.fetchval(_QUERIES["try_lock_partitions"]):
            return False
        try:
            async with savepoint(connection):
                await connection.execute(_BRIEFLY)
                await connection.execute(partition.write("detach_partition"))
                # Asked again under the lock: what was written since is seen now, and nothing is written any more.
                if await is_needed(connection):
                    raise _NeededError
        except (*_IN_THE_WAY, asyncpg.UndefinedTableError, _NeededError):
            return False
        return True

    async def look(connection: Connection) -> bool:
        try:
            async with savepoint(connection):
                return await is_needed(connection)
        except asyncpg.UndefinedTableError:
            return True  # another node dropped it

    return not await database.read(look) and await database.write(write)


async def _drop(database: Database, partition: Partition, *, most: int) -> int:
    """Answer: how many runs it held, `most` where there were more."""

    async def write(connection: Connection) -> int:
        if not await connection.fetchval(_QUERIES["try_lock_partitions"]):
            return 0
        try:
            async with savepoint(connection):
                await connection.execute(_AT_LEISURE)
                rows = int(await connection.fetchval(partition.write("count_rows"), most))
                if partition.table == RUNS:
                    await connection.execute(partition.write("drop_ranges"), timeout=_AT_LEISURE_S)
                await connection.execute(partition.write("drop_partition"), timeout=_AT_LEISURE_S)
        except asyncpg.UndefinedTableError:
            return 0  # another node went on with it
        return rows if partition.table == RUNS else 0

    return await database.write(write)


class _NeededError(Exception):
    """The partition is to stay."""
