"""The engine behind a PgBouncer that gives each transaction another server connection: `?pooled=1`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from tests.store.factories import NOW, SECOND, Maker, fail, new_lease
from tests.support.pgbouncer import Pooler, pooling, until_it_answers
from tests.support.postgres import Databases

from onbeat.domain.errors import ConfigError, StoreUnavailable
from onbeat.domain.states import RunState
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.database import PROMPT, Connection, connect
from onbeat.store.postgres.migrate import load_migrations
from onbeat.store.postgres.store import upgrade_database

pytestmark = pytest.mark.slow


@pytest.fixture
def pooler(databases: Databases) -> Iterator[Pooler]:
    with pooling(databases.server) as pooler:
        yield pooler


@pytest.fixture
async def direct(databases: Databases) -> AsyncIterator[str]:
    """The URL past the pooler."""
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture
async def url(direct: str, pooler: Pooler) -> str:
    """The URL through it."""
    await until_it_answers(pooler.url(direct))
    return pooler.url(direct)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await open_store(url)
    yield opened
    await opened.close()


async def test_runs_live_and_end_in_transactions_of_any_connection(store: Store) -> None:
    make = Maker(store)
    jobs = await asyncio.gather(*(make.job(max_running=2, tags=("a",), key=f"k{number}") for number in range(30)))

    async def live(number: int) -> None:
        job = jobs[number]
        key, token = await make.running(job, NOW + number)
        await make.finish(key, token, decide=fail())
        assert (await make.view(key)).state is RunState.SUCCEEDED
        assert await store.jobs.get_by_key("default", f"k{number}") == job

    await asyncio.gather(*(live(number) for number in range(30)))
    assert (await store.counts()).jobs_by_state == {"active": 30}
    assert await store.read_clock() > NOW - 10**9 * SECOND


async def test_claims_at_once_take_every_run_once(store: Store, url: str) -> None:
    other = await open_store(url)
    make = Maker(store)
    keys = {await make.pending(await make.job()) for _ in range(40)}
    claimed = await asyncio.gather(
        *(
            node.leases.claim([new_lease() for _ in range(5)], now=NOW, queue=None)
            for node in (store, other)
            for _ in range(6)
        )
    )
    found = [run.key for runs in claimed for run in runs]
    assert sorted(found) == sorted(keys)
    await other.close()


async def test_settings_hold_for_the_transaction_and_are_gone_after_it(direct: str, databases: Databases) -> None:
    with pooling(databases.server, connections=1) as one:
        await until_it_answers(one.url(direct))
        database = await connect(one.url(direct).partition("?")[0], is_pooled=True, patience=PROMPT)

        async def read(connection: Connection) -> list[str]:
            names = ("statement_timeout", "lock_timeout", "enable_seqscan")
            return [str(await connection.fetchval(f"SHOW {name}")) for name in names]

        assert await database.write(read) == await database.read(read) == ["2s", "1s", "off"]
        # The same connection of the server, in somebody else's hands.
        bare = await asyncpg.connect(one.url(direct).partition("?")[0], statement_cache_size=0)
        assert [str(await bare.fetchval(f"SHOW {name}")) for name in ("statement_timeout", "enable_seqscan")] == [
            "0",
            "on",
        ]
        await bare.close()
        await database.close()


async def test_statement_that_lasts_too_long_is_ended_by_the_server(url: str) -> None:
    database = await connect(url.partition("?")[0], is_pooled=True, patience=PROMPT)

    async def sleep(connection: Connection) -> None:
        await connection.execute("SET LOCAL statement_timeout = '50ms'")
        await connection.execute("SELECT pg_sleep(30)")

    with pytest.raises(StoreUnavailable, match="statement timeout"):
        await database.write(sleep)
    await database.close()


async def test_transaction_whose_connection_the_server_ends_is_tried_again(store: Store, url: str, direct: str) -> None:
    database = await connect(url.partition("?")[0], is_pooled=True)
    pids: list[int] = []

    async def work(connection: Connection) -> int:
        pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
        if len(pids) == 1:
            administrator = await asyncpg.connect(direct)
            await administrator.execute(f"SELECT pg_terminate_backend({pids[0]})")
            await administrator.close()
        return int(await connection.fetchval("SELECT 7"))

    assert await database.write(work) == 7
    assert len(pids) == 2
    await database.close()
    await Maker(store).job()


async def test_pooler_that_is_killed_and_comes_back_is_found_again(store: Store, pooler: Pooler, url: str) -> None:
    make = Maker(store)
    job = await make.job()
    pooler.kill()
    with pytest.raises(StoreUnavailable):
        await store.jobs.get(job.job_id)
    pooler.start()
    await until_it_answers(url)
    assert await make.reread(job) == job


async def test_processes_that_upgrade_at_once_through_it_make_one_schema(databases: Databases, pooler: Pooler) -> None:
    empty = await databases.create(has_schema=False)
    await until_it_answers(pooler.url(empty))
    done = await asyncio.gather(*(upgrade_database(pooler.url(empty), slots=16) for _ in range(4)))
    assert {after.version for _before, after in done} == {len(load_migrations())}
    await databases.drop(empty)


async def test_nobody_listens_through_it(store: Store) -> None:
    assert await store.listen(lambda _hint: None) is False


async def test_url_without_pooled_is_told_what_to_write(direct: str, url: str, pooler: Pooler) -> None:
    with pytest.raises(ConfigError, match="pooler") as caught:
        await open_store(pooler.url(direct, options=""))
    assert "pooled=1" in (caught.value.remedy or "")
