"""One PostgreSQL database as a Store: puts the nouns together over one pool of connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onbeat.domain.errors import ConfigError
from onbeat.store.hints import Hint
from onbeat.store.postgres.access import PostgresAccess
from onbeat.store.postgres.almanac import read_almanac_revision
from onbeat.store.postgres.backfills import PostgresBackfills
from onbeat.store.postgres.blackouts import PostgresBlackouts
from onbeat.store.postgres.calendars import PostgresCalendars
from onbeat.store.postgres.citus import spread_tables
from onbeat.store.postgres.database import (
    REQUEST_CONNECTIONS,
    Connection,
    Database,
    connect,
    connect_node,
    unreadable_url,
)
from onbeat.store.postgres.fires import PostgresFires
from onbeat.store.postgres.jobs import PostgresJobs
from onbeat.store.postgres.leases import PostgresLeases
from onbeat.store.postgres.looks import Looks
from onbeat.store.postgres.migrate import Schema, check_serves, load_migrations, read_schema, upgrade
from onbeat.store.postgres.nodes import PostgresNodes
from onbeat.store.postgres.one_slot import OneSlotMode
from onbeat.store.postgres.partitions import make_partitions
from onbeat.store.postgres.pauses import PostgresPauses
from onbeat.store.postgres.queries import load_one_slot_statements, load_queries
from onbeat.store.postgres.runs import PostgresRuns
from onbeat.store.values import Counts

_META = load_queries("meta")
_NODES = load_queries("nodes")

_OUR_OPTIONS = frozenset({"pooled", "connections"})
MOST_CONNECTIONS = 200


class PostgresStore:
    """The contract's Store over one database, which other nodes use at the same time."""

    def __init__(self, *, database: Database, slots: int, looks: Looks | None = None) -> None:
        """`looks`: the database wants one slot at a time (`one_slot.py`). None: it does not care."""
        self._database = database
        self._slots = slots
        self._looks = looks
        self._jobs = PostgresJobs(database=database, slots=slots)
        self._calendars = PostgresCalendars(database=database, slots=slots)
        self._pauses = PostgresPauses(database=database, slots=slots)
        self._blackouts = PostgresBlackouts(database=database, slots=slots)
        self._fires = PostgresFires(database=database, slots=slots, looks=None if looks is None else looks.clocks)
        self._backfills = PostgresBackfills(database=database, slots=slots)
        self._leases = PostgresLeases(database=database, slots=slots, looks=looks)
        self._runs = PostgresRuns(database=database, slots=slots)
        self._nodes = PostgresNodes(database=database, slots=slots)
        self._access = PostgresAccess(database=database, slots=slots)

    @property
    def jobs(self) -> PostgresJobs:
        return self._jobs

    @property
    def calendars(self) -> PostgresCalendars:
        return self._calendars

    @property
    def pauses(self) -> PostgresPauses:
        return self._pauses

    @property
    def blackouts(self) -> PostgresBlackouts:
        return self._blackouts

    @property
    def fires(self) -> PostgresFires:
        return self._fires

    @property
    def backfills(self) -> PostgresBackfills:
        return self._backfills

    @property
    def leases(self) -> PostgresLeases:
        return self._leases

    @property
    def runs(self) -> PostgresRuns:
        return self._runs

    @property
    def nodes(self) -> PostgresNodes:
        return self._nodes

    @property
    def access(self) -> PostgresAccess:
        return self._access

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def is_shared(self) -> bool:
        """Always: other nodes may be there at any time."""
        return True

    async def listen(self, tell: Callable[[Hint], None]) -> bool:
        looks = self._looks
        if looks is None:
            return await self._database.hints.listen(tell)

        def heed_and_tell(hint: Hint) -> None:
            looks.heed(hint)
            tell(hint)

        return await self._database.hints.listen(heed_and_tell)

    def hint_to_others(self, are_there: bool) -> None:
        self._database.hints.send_to_others(are_there)

    async def almanac_revision(self) -> int:
        return await self._database.prompt.read(read_almanac_revision)

    async def read_clock(self) -> int:
        """The server's clock, the same for all nodes."""
        return await _read_clock(self._database.prompt)

    async def counts(self) -> Counts:
        async def read(connection: Connection) -> Counts:
            rows = await connection.fetch(_NODES["job_counts"])
            (figures,) = await connection.fetch(_NODES["live_figures"])
            live, running, oldest_ready_at, next_due_at = figures
            return Counts(
                jobs_by_state={row[0]: row[1] for row in rows},
                pending=live - running,
                running=running,
                oldest_ready_at=oldest_ready_at,
                next_due_at=next_due_at,
            )

        return await self._database.prompt.read(read)

    async def close(self) -> None:
        await self._database.close()


async def open_database(url: str, *, create: bool, slots: int) -> PostgresStore:
    """Connect. An empty database gets onbeat's schema; one of an older schema is left for `onbeat db upgrade`.

    Raises StoreUnavailable, SchemaTooNew, or ConfigError where the database cannot serve.
    """
    address = _read_url(url)
    database = await connect_node(address.url, is_pooled=address.is_pooled, connections=address.connections)
    try:
        schema = await database.read(read_schema)
        if schema.version == 0 and create:
            schema = await _upgrade(database, slots=slots)
        check_serves(schema, newest=len(load_migrations()))
        await make_partitions(database)
    except BaseException:
        await database.close()
        raise
    if not schema.is_distributed:
        return PostgresStore(database=database, slots=schema.slots)
    looks = Looks(schema.slots)
    mode = OneSlotMode(load_one_slot_statements(), looks=looks)
    return PostgresStore(database=database.in_one_slot_mode(mode), slots=schema.slots, looks=looks)


async def upgrade_database(url: str, *, slots: int, on_citus: bool = False) -> tuple[Schema, Schema]:
    """Bring a database to this onbeat's schema while nodes use it. Answer: the schema before and after.

    `on_citus`: then spread its tables over the servers of the cluster, while no node uses it. What is spread stays so,
    and tables that a later schema brings are spread by the same call.
    """
    database = await connect_by_url(url)
    try:
        before = await database.read(read_schema)
        after = await _upgrade(database, slots=slots)
        if on_citus:
            await spread_tables(database)
            after = await database.read(read_schema)
        return before, after
    finally:
        await database.close()


async def _upgrade(database: Database, *, slots: int) -> Schema:
    now = await _read_clock(database)
    schema = await upgrade(database, migrations=load_migrations(), slots=slots, now=now)
    await make_partitions(database)
    return schema


async def _read_clock(database: Database) -> int:
    async def read(connection: Connection) -> int:
        return int(await connection.fetchval(_META["read_clock"]))

    return await database.read(read)


async def connect_by_url(url: str) -> Database:
    """For a command, which no request competes with."""
    address = _read_url(url)
    return await connect(address.url, is_pooled=address.is_pooled, connections=address.connections)


@dataclass(frozen=True, slots=True)
class _Address:
    """The URL as PostgreSQL knows it, and what is ours of it."""

    url: str
    is_pooled: bool
    connections: int


def _read_url(url: str) -> _Address:
    """`?pooled=1` is ours: a pooler such as PgBouncer stands before the server; so is `?connections=8`, how many
    connections requests may hold at once. The rest is PostgreSQL's.
    """
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise unreadable_url() from None
    query = urlencode([(name, value) for name, value in options if name not in _OUR_OPTIONS])
    ours = {name: value for name, value in options if name in _OUR_OPTIONS}
    pooled, connections = ours.get("pooled", "0"), ours.get("connections", str(REQUEST_CONNECTIONS))
    if pooled not in ("0", "1"):
        raise ConfigError("pooled is neither 0 nor 1", field="data", remedy="write ?pooled=1 behind the database")
    if not (connections.isascii() and connections.isdigit() and 1 <= int(connections) <= MOST_CONNECTIONS):
        raise ConfigError(
            f"connections is not a number from 1 to {MOST_CONNECTIONS}",
            field="data",
            remedy=f"write ?connections={REQUEST_CONNECTIONS} behind the database",
        )
    return _Address(urlunsplit(parts._replace(query=query)), pooled == "1", int(connections))
