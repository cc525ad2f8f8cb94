"""Transactions on PostgreSQL: what is tried again, what is told as StoreUnavailable, and a pooler in between."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.store.factories import NOW, Maker, new_job
from tests.support.ports import free_port
from tests.support.postgres import DEFAULT_SLOTS, Databases, running_postgres
from tests.support.proxy import proxying

from onbeat.domain.errors import ConfigError, OnbeatError, StoreUnavailable
from onbeat.domain.states import RunState
from onbeat.store.open import open_store
from onbeat.store.postgres.connections import UNHEARD_S, Way
from onbeat.store.postgres.database import (
    MOST_TRIES,
    PATIENT,
    REQUEST_CONNECTIONS,
    Connection,
    Database,
    LostRaceError,
    connect,
    connect_node,
    savepoint,
)
from onbeat.store.postgres.store import upgrade_database


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    made = await databases.create(template=await databases.make_template("template_with_t", fill))
    yield made
    await databases.drop(made)


async def fill(url: str) -> None:
    """With onbeat's schema, and a table for what is tried here."""
    await upgrade_database(url, slots=DEFAULT_SLOTS)
    async with administrating(url) as administrator:
        await administrator.execute("CREATE TABLE t (x integer PRIMARY KEY, n integer NOT NULL DEFAULT 0)")
        await administrator.execute("INSERT INTO t (x) VALUES (1), (2)")


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = await connect(url, is_pooled=False)
    yield opened
    await opened.close()


@contextlib.asynccontextmanager
async def administrating(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection that is none of the engine's."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def count_up(connection: Connection, x: int = 1) -> None:
    await connection.execute("UPDATE t SET n = n + 1 WHERE x = $1", x)


async def counted(url: str, x: int = 1) -> int:
    async with administrating(url) as administrator:
        return int(await administrator.fetchval("SELECT n FROM t WHERE x = $1", x))


async def end_all_connections(url: str) -> int:
    """As a failover does."""
    async with administrating(url) as administrator:
        return len(
            await administrator.fetch(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )


# ---------------------------------------------------------------- tried again


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.SerializationError("40001"),
        asyncpg.DeadlockDetectedError("40P01"),
        asyncpg.LockNotAvailableError("55P03"),
        LostRaceError("somebody was quicker"),
        asyncpg.AdminShutdownError("57P01"),
        ConnectionResetError("reset by peer"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_transaction_that_was_in_anothers_way_begins_anew(database: Database, url: str, error: Exception) -> None:
    tries = 0

    async def work(connection: Connection) -> str:
        nonlocal tries
        tries += 1
        await count_up(connection)
        if tries < 3:
            raise error
        return "done"

    assert await database.write(work) == "done"
    assert (tries, await counted(url)) == (3, 1)


async def test_tries_end_and_nothing_is_left(database: Database, url: str) -> None:
    tries = 0

    async def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await count_up(connection)
        raise LostRaceError("always")

    with pytest.raises(StoreUnavailable, match="always"):
        await database.write(work)
    assert (tries, await counted(url)) == (MOST_TRIES, 0)


async def test_two_transactions_that_wait_for_each_other_both_get_through(database: Database, url: str) -> None:
    both_hold_one = asyncio.Barrier(2)
    have_tried: set[int] = set()

    async def count_both_up(connection: Connection, first: int, second: int) -> None:
        await count_up(connection, first)
        if first not in have_tried:
            have_tried.add(first)
            await both_hold_one.wait()
        await count_up(connection, second)

    await asyncio.gather(
        database.write(lambda connection: count_both_up(connection, 1, 2)),
        database.write(lambda connection: count_both_up(connection, 2, 1)),
    )
    assert (await counted(url, 1), await counted(url, 2)) == (2, 2)


async def test_lost_update_cannot_happen_to_readers_of_a_locked_row(database: Database, url: str) -> None:
    async def work(connection: Connection) -> None:
        n = await connection.fetchval("SELECT n FROM t WHERE x = 1 FOR UPDATE")
        await connection.execute("UPDATE t SET n = $1 WHERE x = 1", n + 1)

    await asyncio.gather(*(database.write(work) for _ in range(50)))
    assert await counted(url) == 50


async def test_error_of_the_work_reaches_the_caller_and_leaves_nothing(database: Database, url: str) -> None:
    async def work(connection: Connection) -> None:
        await count_up(connection)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(work)
    assert await counted(url) == 0


async def test_refused_statement_is_onbeats_error_and_is_not_tried_again(database: Database) -> None:
    with pytest.raises(OnbeatError, match="refused a statement") as caught:
        await database.run("INSERT INTO t (x) VALUES (1)")
    assert not isinstance(caught.value, StoreUnavailable)


async def test_a_swallowed_error_is_not_taken_for_a_commit(database: Database, url: str) -> None:
    async def work(connection: Connection) -> None:
        await count_up(connection)
        with contextlib.suppress(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO t (x) VALUES (1)")

    with pytest.raises(OnbeatError, match="rolled the transaction back"):
        await database.write(work)
    assert await counted(url) == 0


async def test_savepoint_undoes_its_block_alone(database: Database, url: str) -> None:
    async def work(connection: Connection) -> None:
        await count_up(connection)
        with contextlib.suppress(asyncpg.UniqueViolationError):
            async with savepoint(connection):
                await count_up(connection, 2)
                await connection.execute("INSERT INTO t (x) VALUES (1)")
        await count_up(connection)

    await database.write(work)
    assert (await counted(url, 1), await counted(url, 2)) == (2, 0)


async def test_read_sees_one_snapshot_and_cannot_write(database: Database, url: str) -> None:
    async def read(connection: Connection) -> tuple[int, int]:
        before = await connection.fetchval("SELECT n FROM t WHERE x = 1")
        await database.write(count_up)
        return before, await connection.fetchval("SELECT n FROM t WHERE x = 1")

    assert await database.read(read) == (0, 0)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await database.read(count_up)
    assert await counted(url) == 1


async def test_cancelled_work_leaves_nothing_and_its_connection_is_good(database: Database, url: str) -> None:
    async def work(connection: Connection) -> None:
        await count_up(connection)
        await connection.execute("SELECT pg_sleep(30)")

    task = asyncio.create_task(database.write(work))
    async with administrating(url) as other:  # a statement that the server has not begun cannot be cancelled there
        while not await other.fetchval("SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep')"):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await database.write(count_up)
    assert await counted(url) == 1


# ---------------------------------------------------------------- lost connections


async def test_connections_that_were_ended_between_two_calls_are_not_noticed(database: Database, url: str) -> None:
    await asyncio.gather(*(database.write(count_up) for _ in range(REQUEST_CONNECTIONS)))
    assert await end_all_connections(url) > 0
    await asyncio.gather(*(database.write(count_up) for _ in range(REQUEST_CONNECTIONS)))
    assert await counted(url) == 2 * REQUEST_CONNECTIONS


async def test_connection_that_is_ended_in_a_transaction_begins_it_anew(database: Database, url: str) -> None:
    tries = 0

    async def work(connection: Connection) -> None:
        nonlocal tries
        tries += 1
        await count_up(connection)
        if tries == 1:
            await end_all_connections(url)
        await count_up(connection)

    await database.write(work)
    assert (tries, await counted(url)) == (2, 2)


async def test_connection_that_is_lost_in_a_commit_is_told_and_not_tried_again(url: str) -> None:
    async with LossyServer(url) as lossy:
        database = await connect(lossy.url, is_pooled=False)
        tries = 0

        async def work(connection: Connection) -> None:
            nonlocal tries
            tries += 1
            await count_up(connection)
            lossy.drops_answers = True

        with pytest.raises(StoreUnavailable):
            await database.write(work)
        assert (tries, await counted(url)) == (1, 1)  # it was committed, and only the word of it was lost

        lossy.drops_answers = False
        await database.write(count_up)
        assert await counted(url) == 2
        await database.close()


async def test_connection_that_is_lost_at_the_end_of_a_read_reads_again(url: str) -> None:
    async with LossyServer(url) as lossy:
        database = await connect(lossy.url, is_pooled=False)
        tries = 0

        async def work(connection: Connection) -> int:
            nonlocal tries
            tries += 1
            n = int(await connection.fetchval("SELECT n FROM t WHERE x = 1"))
            lossy.drops_answers = tries == 1
            return n

        async def answer_again() -> None:
            while tries < 1 or lossy.connections:
                await asyncio.sleep(0.001)
            lossy.drops_answers = False

        healing = asyncio.create_task(answer_again())
        assert await database.read(work) == 0
        await healing
        assert tries == 2
        await database.close()


class LossyServer:
    """Stands before a server. While it drops answers, what is asked still arrives, and then the connection breaks."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.drops_answers = False
        self.connections = 0
        self.url = ""

    async def __aenter__(self) -> LossyServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._parts._replace(netloc=f"onbeat@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            theirs, ours = await asyncio.open_connection(self._parts.hostname, self._parts.port)
            asking = asyncio.create_task(_copy(reader, ours))
            while (answer := await theirs.read(65_536)) and not self.drops_answers:
                writer.write(answer)
                await writer.drain()
            asking.cancel()
            ours.close()
            writer.close()
        finally:
            self.connections -= 1


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["in order", "crash"])
async def test_server_that_restarts_loses_nothing_acknowledged_and_is_found_again(how: signal.Signals) -> None:
    with running_postgres() as server:
        databases = Databases(server)
        store = await open_store(await databases.create())
        make = Maker(store)
        acknowledged: list[int] = []
        refused = 0
        is_over = asyncio.Event()

        async def create() -> None:
            nonlocal refused
            while not is_over.is_set():
                job = new_job()
                try:
                    await store.jobs.create([job], now=NOW)
                    acknowledged.append(job.job_id)
                except StoreUnavailable:
                    refused += 1

        writers = [asyncio.create_task(create()) for _ in range(4)]
        while len(acknowledged) < 20:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(server.stop, how=how)
        while refused < 4:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(server.start)
        before = len(acknowledged)
        while len(acknowledged) < before + 20:
            await asyncio.sleep(0.005)
        is_over.set()
        await asyncio.gather(*writers)
        for job_id in acknowledged:
            assert await store.jobs.get(job_id) is not None
        assert (await make.view(await make.pending(await make.job(), NOW))).state is RunState.PENDING
        await store.close()


# ---------------------------------------------------------------- limits


async def test_statement_that_takes_too_long_is_ended(url: str) -> None:
    database = await connect(url, is_pooled=False, patience=replace(PATIENT, statement_s=0.05))
    with pytest.raises(StoreUnavailable, match="statement timeout"):
        await database.read(lambda connection: connection.execute("SELECT pg_sleep(30)"))
    await database.close()


async def test_lock_that_is_not_got_is_given_up(url: str) -> None:
    database = await connect(url, is_pooled=False, patience=replace(PATIENT, lock_s=0.02))
    async with administrating(url) as other:
        await other.execute("BEGIN; UPDATE t SET n = 9 WHERE x = 1")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await database.write(count_up)
    await database.close()


@contextlib.asynccontextmanager
async def all_held(database: Database) -> AsyncIterator[None]:
    """Every connection for requests is in use."""
    are_done = asyncio.Event()
    have_begun = asyncio.Barrier(REQUEST_CONNECTIONS + 1)

    async def hold(_connection: Connection) -> None:
        await have_begun.wait()
        await are_done.wait()

    holders = [asyncio.create_task(database.write(hold)) for _ in range(REQUEST_CONNECTIONS)]
    await have_begun.wait()
    try:
        yield
    finally:
        are_done.set()
        await asyncio.gather(*holders)


async def test_call_that_gets_no_connection_is_told_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async with all_held(database):
        monkeypatch.setattr(database, "_patience", replace(PATIENT, connection_s=0.05, tries_last_s=0))
        with pytest.raises(StoreUnavailable):
            await database.write(count_up)
        monkeypatch.undo()
    await database.write(count_up)


async def test_what_must_go_on_has_connections_that_requests_never_hold(url: str) -> None:
    database = await connect_node(url, is_pooled=False, connections=REQUEST_CONNECTIONS)
    async with all_held(database):
        await asyncio.gather(*(database.prompt.write(count_up) for _ in range(50)))
    assert await counted(url) == 50
    await database.close()


async def test_silent_database_is_not_asked_again_and_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(0)
        patience = replace(PATIENT, connection_s=0.2, tries_last_s=0.1)
        url = f"postgresql://onbeat@127.0.0.1:{silent.getsockname()[1]}/x"
        database = await connect(url, is_pooled=False, patience=patience)
        with pytest.raises(StoreUnavailable):
            await database.write(count_up)
        asked = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                asked += 1
        assert asked == 1
        await database.close()


async def test_once_a_connection_falls_silent_none_that_was_made_before_is_used_again(url: str) -> None:
    async with proxying(urlsplit(url).port or 0) as proxy:
        through = urlsplit(url)._replace(netloc=f"onbeat@127.0.0.1:{proxy.port}").geturl()
        patience = replace(PATIENT, answer_s=0.5, tries_last_s=0)
        way = Way()
        database, other = [
            await connect(through, is_pooled=False, patience=patience, way=way, connections=3) for _ in range(2)
        ]
        await asyncio.gather(*(each.write(count_up) for each in (database, other) for _ in range(3)))
        made = proxy.accepted_count
        proxy.to_client.stall()
        with pytest.raises(StoreUnavailable):
            await database.read(count_up)
        # As after a router that forgot its connections: these never speak again, and new ones do.
        proxy.forget()
        await asyncio.gather(*(each.read(read_one) for each in (database, other) for _ in range(3)))
        assert proxy.accepted_count > made + 3
        await database.close()
        await other.close()


async def read_one(connection: Connection) -> None:
    await connection.fetchval("SELECT n FROM t WHERE x = 1")


async def test_server_that_became_read_only_is_left_for_its_successor(url: str) -> None:
    name = urlsplit(url).path[1:]
    database = await connect(url, is_pooled=False)
    async with administrating(url) as administrator:
        await administrator.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await database.write(count_up)
        await administrator.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    # A session has the setting from its beginning: only a new connection finds out that the server can be written.
    await database.write(count_up)
    assert await counted(url) == 1
    await database.close()


async def test_sockets_notice_that_nobody_is_there(database: Database) -> None:
    async def look(connection: Any) -> tuple[int, int, str]:
        ours = connection._transport.get_extra_info("socket")
        return (
            ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            await connection.fetchval("SHOW tcp_user_timeout"),
        )

    assert await database.read(look) == (1, UNHEARD_S * 1_000, str(UNHEARD_S * 1_000))


async def test_server_that_is_not_there_is_unavailable_also_when_the_store_opens() -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await open_store(f"postgresql://onbeat@127.0.0.1:{free_port()}/onbeat")


async def test_database_that_is_not_there_is_unavailable(databases: Databases) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await open_store(databases.server.url("nowhere"))


@pytest.mark.parametrize(
    "query", ["pooled=yes", "pooled=", "connections=0", "connections=201", "connections=", "connections=ten"]
)
async def test_options_of_the_url_are_checked(databases: Databases, query: str) -> None:
    with pytest.raises(ConfigError, match=query.split("=")[0]):
        await open_store(f"{databases.server.url()}?{query}")


async def test_settings_end_with_the_transaction(database: Database) -> None:
    async def read(connection: Connection) -> str:
        return str(await connection.fetchval("SHOW enable_seqscan"))

    assert await database.read(read) == "off"
    connection = await database._pool.take(within_s=5)
    assert await connection.fetchval("SHOW enable_seqscan") == "on"
    await database._pool.give_back(connection)
