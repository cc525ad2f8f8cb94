"""Transactions on PostgreSQL: connections, their settings, what is tried again, and PostgreSQL's errors as onbeat's.

Every statement runs inside an explicit transaction, and every setting is made for that transaction alone, so that the
engine works behind PgBouncer in transaction mode, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import asyncpg
import structlog
from msgspec.structs import replace

from onbeat.domain.errors import ConfigError, OnbeatError, StoreUnavailable
from onbeat.store.hints import Hint
from onbeat.store.postgres.connections import Connection as Connection
from onbeat.store.postgres.connections import Pool, Way
from onbeat.store.postgres.hints import Hints
from onbeat.store.postgres.looks import Look
from onbeat.store.postgres.one_slot import OneSlotConnection, OneSlotMode

log = structlog.get_logger(__name__)

T = TypeVar("T")
Work = Callable[[Connection], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a transaction waits, in seconds."""

    connection_s: float
    """For a connection: a free one, or a new one."""
    answer_s: float
    """For an answer: longer than the server lets a statement run, so it ends only silent connections."""
    statement_s: float
    """For a statement, before the server ends it."""
    lock_s: float
    """For a lock."""
    tries_last_s: float
    """No try begins later after the first: a database that is silent is told of, not asked again and again."""


PROMPT: Final = Patience(connection_s=3, answer_s=3, statement_s=2, lock_s=1, tries_last_s=2.5)
"""Of what goes on whatever else is asked for: fires, leases, heartbeats. A silent connection holds a loop for 3 s."""

PATIENT: Final = Patience(connection_s=5, answer_s=12, statement_s=10, lock_s=3, tries_last_s=8)
"""Of requests, and of housekeeping. Who waits for a connection in vain is told after 5 s."""

PROMPT_CONNECTIONS: Final = 8
REQUEST_CONNECTIONS: Final = 8

MOST_TRIES: Final = 5
FIRST_WAIT_S: Final = 0.01
ROLL_BACK_WITHIN_S: Final = 2.0
CLOSE_WITHIN_S: Final = 5.0

# Freshly created tables have no statistics, and old ones stale ones: an early trial ran 12 times slower until ANALYZE.
# Every statement of this engine is written to walk an index in nested loops and to stop where it has enough, so other
# plans are switched off. A plan that was made while a table was empty is kept until something analyses the table.
_SETTINGS: Final = """
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;
"""
# Of tables that are spread over servers: what is set is set on each of them, and a statement is planned for the slot
# that it names, since a plan for any slot would be one for all servers.
_SETTINGS_IN_ONE_SLOT: Final = "SET LOCAL citus.propagate_set_commands = 'local';" + _SETTINGS.replace(
    "force_generic_plan", "force_custom_plan"
)
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
BEGIN_READ: Final = _BEGIN_READ + _SETTINGS
# Not READ WRITE, which a standby refuses as a feature that it does not have. So the first write is told what it is.
_BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED;"
BEGIN_WRITE: Final = _BEGIN_WRITE + _SETTINGS

_TRY_AGAIN: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,  # another node changed the schema
)
_UNREACHABLE: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server shuts down, or ended this connection
    asyncpg.IdleInTransactionSessionTimeoutError,  # this process stood still
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,  # its disk
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says of a connection that broke between two of its steps
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, during a failover
    OSError,
    TimeoutError,
)
_LEADS_NOWHERE: Final = (asyncpg.ReadOnlySQLTransactionError, TimeoutError)
"""The server behind the connection is not the one to talk to, or nobody is."""


class LostRaceError(Exception):
    """Another transaction was quicker, and this one has to begin anew. Raised by the work inside a transaction."""


def nothing_to_tell(_result: object) -> None:
    """Of most transactions nobody else has to hear at once."""
    return


class Database:
    """Transactions on the connections of one pool."""

    def __init__(
        self,
        pool: Pool,
        hints: Hints,
        *,
        patience: Patience = PATIENT,
        prompt: Database | None = None,
        one_slot: OneSlotMode | None = None,
    ) -> None:
        """`prompt`: the same database on connections that no request ever holds. None: this one.

        `one_slot`: its tables are spread over servers by slot. None: they are not.
        """
        self._pool = pool
        self.hints = hints
        self._patience = patience
        settings = _SETTINGS if one_slot is None else _SETTINGS_IN_ONE_SLOT
        self._begin_read = _BEGIN_READ + settings + _limits(patience)
        self._begin_write = _BEGIN_WRITE + settings + _limits(patience)
        self._one_slot = one_slot
        self.prompt: Database = prompt or self

    def in_one_slot_mode(self, one_slot: OneSlotMode) -> Database:
        """The same database on the same connections, one slot at a time."""
        prompt = None if self.prompt is self else self.prompt.in_one_slot_mode(one_slot)
        return Database(self._pool, self.hints, patience=self._patience, prompt=prompt, one_slot=one_slot)

    async def read(self, work: Work[T], *, look: Look | None = None) -> T:
        """Run `work` on one snapshot. Raises StoreUnavailable.

        `look`: it is a look into that slot, and only about that.
        """
        if self._one_slot is None:
            return await self._transact(self._begin_read, work)
        slot = None if look is None else look.slot
        one_slot = self._one_slot
        result = await self._transact(
            self._begin_read, lambda connection: work(one_slot.connection(connection, slot=slot).as_connection())
        )
        if look is not None:
            look.end(is_believed=look.is_clean())
        return result

    async def write(
        self,
        work: Work[T],
        *,
        hint: Callable[[T], Hint | None] = nothing_to_tell,
        slot: int | None = None,
        look: Look | None = None,
    ) -> T:
        """Run `work` in one transaction, from its beginning again where another one was in its way. What other
        processes are told of its result goes with it.

        `slot`: it is only about that slot, where the database wants to know. `look`: and it is a look into it.
        It is durable before this returns. Raises StoreUnavailable; then it may have been written, if the connection
        was lost while it was being committed.
        """
        written: list[OneSlotConnection] = []
        told: Hint | None = None

        async def work_and_tell(connection: Connection) -> T:
            nonlocal told
            if self._one_slot is None:
                result = await work(connection)
            else:
                own = self._one_slot.connection(connection, slot=slot if look is None else look.slot)
                written.append(own)
                result = await work(own.as_connection())
            told = hint(result)
            if told is not None and written:
                told = replace(told, ready_in=tuple(sorted(written[-1].ready_in)))
            if told is not None and self.hints.are_wanted:
                await self.hints.send(connection, told)
            return result

        is_clean = False
        try:
            result = await self._transact(self._begin_write, work_and_tell)
            is_clean = look is None or look.is_clean()
        finally:
            if self._one_slot is not None:
                self._one_slot.note_written(written)
            if told is not None:
                self.hints.note(told)
        if look is not None:
            look.end(is_believed=is_clean)
        return result

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """One snapshot for as long as the block lasts. Nothing is tried again. Raises StoreUnavailable."""
        try:
            connection = await _take(self._pool, within_s=self._patience.connection_s)
            try:
                await connection.execute(self._begin_read)
                yield connection
            finally:
                await _roll_back(connection)
                await self._pool.give_back(connection)
        except _UNREACHABLE as error:
            raise _unavailable(error) from error

    async def run(self, statement: str, *bindings: object) -> int:
        """Run one statement in a transaction of its own. Answer: how many rows it changed."""

        async def work(connection: Connection) -> int:
            return int((await connection.execute(statement, *bindings)).rpartition(" ")[2])

        return await self.write(work)

    async def close(self) -> None:
        """End all connections."""
        self.hints.close()
        await self._pool.close(within_s=CLOSE_WITHIN_S)
        if self.prompt is not self:
            await self.prompt.close()

    async def _transact(self, begin: str, work: Work[T]) -> T:
        must_end = asyncio.get_running_loop().time() + self._patience.tries_last_s
        wait_s = FIRST_WAIT_S
        tries = 1
        while True:
            attempt = _Attempt(self._pool, begin, connect_s=self._patience.connection_s)
            try:
                return await attempt.run(work)
            except (*_TRY_AGAIN, *_UNREACHABLE, LostRaceError) as error:
                is_over = tries >= MOST_TRIES or asyncio.get_running_loop().time() >= must_end
                # What a lost connection was told to commit may be there: to write it again could write it twice.
                if is_over or (attempt.is_committing and begin is self._begin_write):
                    raise _unavailable(error) from error
                log.debug("transaction_tried_again", error=str(error) or type(error).__name__, tries=tries)
            except asyncpg.PostgresError as error:
                raise OnbeatError(f"the database refused a statement: {error}") from error
            tries += 1
            await asyncio.sleep(wait_s * (0.5 + random.random()))  # noqa: S311 - spreads tries, guards nothing
            wait_s *= 4


class _Attempt:
    """One try at one transaction."""

    __slots__ = ("_begin", "_connect_s", "_pool", "is_committing")

    def __init__(self, pool: Pool, begin: str, *, connect_s: float) -> None:
        self._pool = pool
        self._begin = begin
        self._connect_s = connect_s
        self.is_committing = False

    async def run(self, work: Work[T]) -> T:
        connection = await _take(self._pool, within_s=self._connect_s)
        try:
            await connection.execute(self._begin)
            result = await work(connection)
            self.is_committing = True
            answer = await connection.execute("COMMIT")
        except _LEADS_NOWHERE:
            self._pool.drop_all(connection)
            raise
        except BaseException:
            await _roll_back(connection)
            raise
        finally:
            await self._pool.give_back(connection)
        self.is_committing = False
        if answer != "COMMIT":
            raise OnbeatError("a statement had failed, and the database has rolled the transaction back")
        return result


async def connect(
    url: str,
    *,
    is_pooled: bool,
    connections: int = REQUEST_CONNECTIONS,
    patience: Patience = PATIENT,
    way: Way | None = None,
    hints: Hints | None = None,
    prompt: Database | None = None,
) -> Database:
    """A Database behind `url`. No connection is made yet.

    `is_pooled`: a pooler stands in between that may give each transaction another server connection, and keeps no
    prepared statements.
    """
    pool = Pool(
        url,
        size=connections,
        connect_s=patience.connection_s,
        answer_s=patience.answer_s,
        is_pooled=is_pooled,
        way=way,
    )
    await pool.open()
    return Database(pool, hints or Hints(None if is_pooled else url), patience=patience, prompt=prompt)


async def connect_node(url: str, *, is_pooled: bool, connections: int) -> Database:
    """The same for a node: beside the `connections` for requests it has some that no request ever holds."""
    way = Way()
    prompt = await connect(url, is_pooled=is_pooled, connections=PROMPT_CONNECTIONS, patience=PROMPT, way=way)
    return await connect(url, is_pooled=is_pooled, connections=connections, way=way, hints=prompt.hints, prompt=prompt)


@contextlib.asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """What fails inside is undone alone, and the transaction around it goes on."""
    await connection.execute("SAVEPOINT inside")
    try:
        yield
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK TO SAVEPOINT inside; RELEASE SAVEPOINT inside")
        raise
    await connection.execute("RELEASE SAVEPOINT inside")


async def _take(pool: Pool, *, within_s: float) -> Connection:
    try:
        return await pool.take(within_s=within_s)
    except ValueError:
        raise unreadable_url() from None  # asyncpg reads the URL when it connects, and may quote it
    except asyncpg.ProtocolViolationError as error:
        # Poolers refuse settings that they do not know, which otherwise come with each connection.
        if "startup parameter" not in str(error):
            raise
        raise ConfigError(
            f"a pooler stands before the database: {error}", field="data", remedy="write ?pooled=1 behind the database"
        ) from None


def _limits(patience: Patience) -> str:
    return (
        f"SET LOCAL statement_timeout = '{patience.statement_s * 1_000:.0f}ms';"
        f"SET LOCAL lock_timeout = '{patience.lock_s * 1_000:.0f}ms';"
    )


async def _roll_back(connection: Connection) -> None:
    if connection.is_closed():
        return
    try:
        await connection.execute("ROLLBACK", timeout=ROLL_BACK_WITHIN_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        connection.terminate()


def unreadable_url() -> ConfigError:
    """What is wrong with a URL, without a word of it: it may hold a password."""
    return ConfigError(
        "not the URL of a PostgreSQL database",
        field="data",
        remedy="write postgresql://user:password@host:5432/database, in a password %2F %23 %3F %40 %25 for / # ? @ %",
    )


def _unavailable(error: BaseException) -> StoreUnavailable:
    return StoreUnavailable(f"the database does not answer: {error or type(error).__name__}")
