"""Transactions on PostgreSQL: connections, their settings, what is tried again, and PostgreSQL's errors as onbeat's.

Every statement runs inside an explicit transaction, and every setting is made for that transaction alone, so that the
engine works behind PgBouncer in transaction mode, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeAlias, TypeVar

import asyncpg
import structlog

from onbeat.domain.errors import ConfigError, OnbeatError, StoreUnavailable
from onbeat.store.hints import Hint
from onbeat.store.postgres.hints import Hints

log = structlog.get_logger(__name__)

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
Work = Callable[[Connection], Awaitable[T]]

POOL_SIZE: Final = 10
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 15.0
"""How long a statement may stay unanswered: longer than the server lets it run, so it ends only silent connections."""

MOST_TRIES: Final = 5
TRIES_LAST_S: Final = 8.0
"""No try begins later than this after the first: a database that is silent is told of, not asked again and again."""

FIRST_WAIT_S: Final = 0.01

# Freshly created tables have no statistics, and old ones stale ones: an early trial ran 12 times slower until ANALYZE.
# Every statement of this engine is written to walk an index in nested loops, so other plans are switched off.
_SETTINGS: Final = """
SET LOCAL statement_timeout = '10s';
SET LOCAL lock_timeout = '3s';
SET LOCAL idle_in_transaction_session_timeout = '30s';
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;
"""
_BEGIN_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;" + _SETTINGS
_BEGIN_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;" + _SETTINGS

_TRY_AGAIN: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,  # another node changed the schema
)
_UNREACHABLE: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server shuts down, or ended this connection
    asyncpg.InsufficientResourcesError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says of a connection that broke between two of its steps
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby, during a failover
    OSError,
    TimeoutError,
)


class LostRaceError(Exception):
    """Another transaction was quicker, and this one has to begin anew. Raised by the work inside a transaction."""


def nothing_to_tell(_result: object) -> None:
    """Of most transactions nobody else has to hear at once."""
    return


class Database:
    """A pool of connections, and transactions on them."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], hints: Hints) -> None:
        self._pool = pool
        self.hints = hints

    async def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot. Raises StoreUnavailable."""
        return await self._transact(_BEGIN_READ, work)

    async def write(self, work: Work[T], *, hint: Callable[[T], Hint | None] = nothing_to_tell) -> T:
        """Run `work` in one transaction, from its beginning again where another one was in its way. What other
        processes are told of its result goes with it.

        It is durable before this returns. Raises StoreUnavailable; then it may have been written, if the connection
        was lost while it was being committed.
        """

        async def work_and_tell(connection: Connection) -> T:
            result = await work(connection)
            told = hint(result) if self.hints.are_wanted else None
            if told is not None:
                await self.hints.send(connection, told)
            return result

        return await self._transact(_BEGIN_WRITE, work_and_tell)

    @contextlib.asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """One snapshot for as long as the block lasts. Nothing is tried again. Raises StoreUnavailable."""
        try:
            connection = await _acquire(self._pool)
            try:
                await connection.execute(_BEGIN_READ)
                yield connection
            finally:
                await _roll_back(connection)
                await self._pool.release(connection)
        except _UNREACHABLE as error:
            raise _unavailable(error) from error

    async def run(self, statement: str, *bindings: object) -> int:
        """Run one statement in a transaction of its own. Answer: how many rows it changed."""

        async def work(connection: Connection) -> int:
            return int((await connection.execute(statement, *bindings)).rpartition(" ")[2])

        return await self.write(work)

    async def close(self) -> None:
        """End all connections; what they are doing is waited for a moment."""
        self.hints.close()
        try:
            await asyncio.wait_for(self._pool.close(), CONNECT_TIMEOUT_S)
        except (TimeoutError, OSError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _transact(self, begin: str, work: Work[T]) -> T:
        must_end = asyncio.get_running_loop().time() + TRIES_LAST_S
        wait_s = FIRST_WAIT_S
        tries = 1
        while True:
            attempt = _Attempt(self._pool, begin)
            try:
                return await attempt.run(work)
            except (*_TRY_AGAIN, *_UNREACHABLE, LostRaceError) as error:
                is_over = tries >= MOST_TRIES or asyncio.get_running_loop().time() >= must_end
                # What a lost connection was told to commit may be there: to write it again could write it twice.
                if is_over or (attempt.is_committing and begin is _BEGIN_WRITE):
                    raise _unavailable(error) from error
                log.debug("transaction_tried_again", error=str(error) or type(error).__name__, tries=tries)
            except asyncpg.PostgresError as error:
                raise OnbeatError(f"the database refused a statement: {error}") from error
            tries += 1
            await asyncio.sleep(wait_s * (0.5 + random.random()))  # noqa: S311 - spreads tries, guards nothing
            wait_s *= 4


class _Attempt:
    """One try at one transaction."""

    __slots__ = ("_begin", "_pool", "is_committing")

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], begin: str) -> None:
        self._pool = pool
        self._begin = begin
        self.is_committing = False

    async def run(self, work: Work[T]) -> T:
        connection = await _acquire(self._pool)
        try:
            await connection.execute(self._begin)
            result = await work(connection)
            self.is_committing = True
            answer = await connection.execute("COMMIT")
        except BaseException:
            await _roll_back(connection)
            raise
        finally:
            await self._pool.release(connection)
        self.is_committing = False
        if answer != "COMMIT":
            raise OnbeatError("a statement had failed, and the database has rolled the transaction back")
        return result


async def connect(url: str, *, is_pooled: bool) -> Database:
    """A Database behind `url`. No connection is made yet.

    `is_pooled`: a pooler stands in between that may give each transaction another server connection, and keeps no
    prepared statements.
    """
    pool = asyncpg.create_pool(
        url,
        min_size=0,
        max_size=POOL_SIZE,
        timeout=CONNECT_TIMEOUT_S,
        command_timeout=ANSWER_TIMEOUT_S,
        statement_cache_size=0 if is_pooled else 1_000,
        max_inactive_connection_lifetime=300.0,
        reset=_leave_as_it_is,
    )
    await pool
    return Database(pool, Hints(None if is_pooled else url))


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


async def _acquire(pool: asyncpg.Pool[asyncpg.Record]) -> Connection:
    try:
        return await pool.acquire(timeout=CONNECT_TIMEOUT_S)
    except ValueError:
        raise unreadable_url() from None  # asyncpg reads the URL when it connects, and may quote it


async def _leave_as_it_is(_connection: object) -> None:
    # Nothing is set outside a transaction, so there is nothing to reset, and it would cost a round trip.
    return


async def _roll_back(connection: Connection) -> None:
    if connection.is_closed():
        return
    try:
        await connection.execute("ROLLBACK", timeout=CONNECT_TIMEOUT_S)
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
