"""One PostgreSQL database as a Store: puts the nouns together over one pool of connections."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from onbeat.domain.errors import ConfigError
from onbeat.store.hints import Hint
from onbeat.store.postgres.access import PostgresAccess
from onbeat.store.postgres.almanac import read_almanac_revision
from onbeat.store.postgres.backfills import PostgresBackfills
from onbeat.store.postgres.blackouts import PostgresBlackouts
from onbeat.store.postgres.calendars import PostgresCalendars
from onbeat.store.postgres.database import Connection, Database, connect, unreadable_url
from onbeat.store.postgres.fires import PostgresFires
from onbeat.store.postgres.jobs import PostgresJobs
from onbeat.store.postgres.leases import PostgresLeases
from onbeat.store.postgres.migrate import Schema, check_serves, load_migrations, read_schema, upgrade
from onbeat.store.postgres.nodes import PostgresNodes
from onbeat.store.postgres.partitions import make_partitions
from onbeat.store.postgres.pauses import PostgresPauses
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.runs import PostgresRuns
from onbeat.store.values import Counts

_META = load_queries("meta")
_NODES = load_queries("nodes")


class PostgresStore:
    """The contract's Store over one database, which other nodes use at the same time."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
        self._jobs = PostgresJobs(database=database, slots=slots)
        self._calendars = PostgresCalendars(database=database, slots=slots)
        self._pauses = PostgresPauses(database=database, slots=slots)
        self._blackouts = PostgresBlackouts(database=database, slots=slots)
        self._fires = PostgresFires(database=database, slots=slots)
        self._backfills = PostgresBackfills(database=database, slots=slots)
        self._leases = PostgresLeases(database=database, slots=slots)
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
        return await self._database.hints.listen(tell)

    def hint_to_others(self, are_there: bool) -> None:
        self._database.hints.send_to_others(are_there)

    async def almanac_revision(self) -> int:
        return await self._database.read(read_almanac_revision)

    async def read_clock(self) -> int:
        """The server's clock, the same for all nodes."""
        return await _read_clock(self._database)

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

        return await self._database.read(read)

    async def close(self) -> None:
        await self._database.close()


async def open_database(url: str, *, create: bool, slots: int) -> PostgresStore:
    """Connect. An empty database gets onbeat's schema; one of an older schema is left for `onbeat db upgrade`.

    Raises StoreUnavailable, SchemaTooNew, or ConfigError where the database cannot serve.
    """
    database = await connect_by_url(url)
    try:
        schema = await database.read(read_schema)
        if schema.version == 0 and create:
            schema = await _upgrade(database, slots=slots)
        check_serves(schema, newest=len(load_migrations()))
        await make_partitions(database)
    except BaseException:
        await database.close()
        raise
    return PostgresStore(database=database, slots=schema.slots)


async def upgrade_database(url: str, *, slots: int) -> tuple[Schema, Schema]:
    """Bring a database to this onbeat's schema while nodes use it. Answer: the schema before and after."""
    database = await connect_by_url(url)
    try:
        before = await database.read(read_schema)
        return before, await _upgrade(database, slots=slots)
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
    """`?pooled=1` is ours: a pooler such as PgBouncer stands before the server. The rest is PostgreSQL's."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        query = urlencode([(name, value) for name, value in options if name != "pooled"])
        pooled = {value for name, value in options if name == "pooled"}
        if pooled <= {"0", "1"}:
            return await connect(urlunsplit(parts._replace(query=query)), is_pooled="1" in pooled)
    except ValueError:
        raise unreadable_url() from None
    raise ConfigError("pooled is neither 0 nor 1", field="data", remedy="write ?pooled=1 behind the database")
