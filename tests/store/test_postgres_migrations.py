"""The schema on PostgreSQL: who may open which, steps that fail or race, and an upgrade under nodes that go on."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest
from tests.store.factories import NOW, SECOND, Maker, new_run, retry
from tests.support.postgres import DEFAULT_SLOTS, Databases

import onbeat.store.postgres.store
from onbeat.domain.errors import ConfigError, OnbeatError, SchemaTooNew
from onbeat.domain.states import JobState
from onbeat.store.open import open_store
from onbeat.store.postgres.database import Database, connect
from onbeat.store.postgres.migrate import Migration, Schema, load_migrations, read_schema, upgrade
from onbeat.store.postgres.store import upgrade_database
from onbeat.store.values import FirePlan, JobChange, JobFilter, Page

NEWEST = len(load_migrations())
EXPANSION = Migration(NEWEST + 1, "more", "ALTER TABLE jobs ADD COLUMN more bigint NOT NULL DEFAULT 7;")
CONTRACTION = Migration(NEWEST + 1, "less", f"-- serves from: {NEWEST + 1}\nALTER TABLE jobs DROP COLUMN folded_key;")

UPGRADER = """
import asyncio, sys
from onbeat.store.postgres.store import upgrade_database
before, after = asyncio.run(upgrade_database(sys.argv[1], slots=int(sys.argv[2])))
print(before.version, after.version, after.slots)
"""

UPGRADER_THAT_WAITS = """
import asyncio, sys
from onbeat.store.postgres.database import connect
from onbeat.store.postgres.migrate import Migration, load_migrations, upgrade
async def main():
    database = await connect(sys.argv[1], is_pooled=False)
    step = Migration(len(load_migrations()) + 1, "slow", "CREATE TABLE half (x integer); SELECT pg_advisory_lock(42);")
    await upgrade(database, migrations=(*load_migrations(), step), slots=1, now=1)
asyncio.run(main())
"""


@pytest.fixture
async def empty(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database that holds nothing at all."""
    url = await databases.create(has_schema=False)
    yield url
    await databases.drop(url)


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database of this onbeat's schema."""
    made = await databases.create()
    yield made
    await databases.drop(made)


@contextlib.asynccontextmanager
async def administrating(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Database]:
    database = await connect(url, is_pooled=False)
    try:
        yield database
    finally:
        await database.close()


async def bring_to(url: str, migrations: Sequence[Migration]) -> Schema:
    """As an onbeat that has these steps would."""
    async with connected(url) as database:
        return await upgrade(database, migrations=migrations, slots=16, now=NOW)


async def schema_of(url: str) -> Schema:
    async with connected(url) as database:
        return await database.read(read_schema)


async def tables_of(url: str) -> set[str]:
    async with administrating(url) as administrator:
        rows = await administrator.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {row[0] for row in rows}


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


async def test_empty_database_gets_the_schema_when_a_store_opens_it_and_slots_stay(empty: str) -> None:
    store = await open_store(empty, slots=16)
    assert store.slots == 16
    await store.close()
    store = await open_store(empty, slots=64)
    assert store.slots == 16
    await store.close()
    assert await schema_of(empty) == Schema(NEWEST, 1, 16)


async def test_empty_database_is_left_alone_unless_asked_to_create(empty: str) -> None:
    with pytest.raises(ConfigError, match="schema version 0") as caught:
        await open_store(empty, create=False)
    assert "onbeat db upgrade" in (caught.value.remedy or "")
    assert await tables_of(empty) == set()


async def test_processes_that_upgrade_at_once_make_one_schema(empty: str) -> None:
    processes = [start(UPGRADER, empty, str(slots)) for slots in (8, 16, 32, 64)]
    said = [await asyncio.to_thread(process.communicate) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    found = [output.splitlines()[-1].split() for output, _errors in said]
    assert {version for _before, version, _slots in found} == {str(NEWEST)}
    slots = {slots for _before, _version, slots in found}
    assert len(slots) == 1
    assert (await schema_of(empty)).slots == int(slots.pop())


async def test_upgrade_of_what_is_up_to_date_changes_nothing(url: str) -> None:
    before, after = await upgrade_database(url, slots=1)
    assert before == after == Schema(NEWEST, 1, DEFAULT_SLOTS)


async def test_step_that_fails_leaves_the_last_whole_step(url: str) -> None:
    broken = Migration(NEWEST + 2, "broken", "CREATE TABLE half (x integer); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(OnbeatError, match="nowhere"):
        await bring_to(url, (*load_migrations(), EXPANSION, broken))
    assert await schema_of(url) == Schema(NEWEST + 1, 1, DEFAULT_SLOTS)
    assert "half" not in await tables_of(url)
    mended = Migration(NEWEST + 2, "mended", "CREATE TABLE whole (x integer);")
    assert (await bring_to(url, (*load_migrations(), EXPANSION, mended))).version == NEWEST + 2


async def test_process_that_dies_in_a_step_leaves_the_last_whole_step(url: str) -> None:
    async with administrating(url) as other:
        await other.execute("SELECT pg_advisory_lock(42)")
        process = start(UPGRADER_THAT_WAITS, url)
        while not await other.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE objid = 42 AND NOT granted)"):
            assert process.poll() is None, process.communicate()
            await asyncio.sleep(0.01)
        process.kill()
        await asyncio.to_thread(process.communicate)
        await other.execute("SELECT pg_advisory_unlock(42)")
    assert (await bring_to(url, (*load_migrations(), EXPANSION))).version == NEWEST + 1
    assert "half" not in await tables_of(url)


@pytest.mark.parametrize(
    "table", ["CREATE TABLE theirs (x integer)", "CREATE TABLE meta (x integer)"], ids=["any table", "a meta of theirs"]
)
async def test_database_of_another_program_is_refused_and_left_alone(empty: str, table: str) -> None:
    async with administrating(empty) as administrator:
        await administrator.execute(table)
    tables = await tables_of(empty)
    with pytest.raises(ConfigError, match="another program"):
        await open_store(empty)
    with pytest.raises(ConfigError, match="another program"):
        await upgrade_database(empty, slots=1)
    assert await tables_of(empty) == tables


async def test_newer_schema_that_serves_this_onbeat_is_opened_and_left_as_it_is(url: str) -> None:
    assert await bring_to(url, (*load_migrations(), EXPANSION)) == Schema(NEWEST + 1, 1, DEFAULT_SLOTS)
    store = await open_store(url)
    make = Maker(store)
    job = await make.job(key="k")
    key, token = await make.running(job)
    await make.finish(key, token)
    assert await store.jobs.get_by_key("default", "k") == job
    await store.close()
    before, after = await upgrade_database(url, slots=1)
    assert before == after == Schema(NEWEST + 1, 1, DEFAULT_SLOTS)


async def test_newer_schema_that_does_not_serve_this_onbeat_is_refused(url: str) -> None:
    assert await bring_to(url, (*load_migrations(), CONTRACTION)) == Schema(NEWEST + 1, NEWEST + 1, DEFAULT_SLOTS)
    with pytest.raises(SchemaTooNew, match=rf"{NEWEST + 1}.*{NEWEST}") as caught:
        await open_store(url)
    assert caught.value.remedy is not None


async def test_expansion_after_a_contraction_serves_from_the_contraction_on(url: str) -> None:
    after = Migration(NEWEST + 2, "more", EXPANSION.script)
    assert await bring_to(url, (*load_migrations(), CONTRACTION, after)) == Schema(
        NEWEST + 2, NEWEST + 1, DEFAULT_SLOTS
    )


async def test_older_schema_is_not_upgraded_by_a_node_that_starts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = (*load_migrations(), EXPANSION)
    monkeypatch.setattr(onbeat.store.postgres.store, "load_migrations", lambda: newer)
    with pytest.raises(ConfigError, match=rf"{NEWEST}, this onbeat needs {NEWEST + 1}") as caught:
        await open_store(url)
    assert "onbeat db upgrade" in (caught.value.remedy or "")
    assert (await schema_of(url)).version == NEWEST
    before, after = await upgrade_database(url, slots=1)
    assert (before.version, after.version) == (NEWEST, NEWEST + 1)
    await (await open_store(url)).close()


async def test_nodes_go_on_while_the_schema_is_upgraded_under_them(url: str) -> None:
    tables = ("jobs", "clocks", "live_runs", "ended_runs", "attempts", "pauses", "nodes")
    steps = [
        Migration(NEWEST + 1 + number, f"more_{table}", f"ALTER TABLE {table} ADD COLUMN more bigint DEFAULT 7;")
        for number, table in enumerate(tables)
    ]
    nodes = [await open_store(url) for _ in range(2)]
    is_over = asyncio.Event()
    lives = [0, 0]

    async def live(number: int) -> None:
        make = Maker(nodes[number])
        while not is_over.is_set():
            job = await make.job(next_fire_at=NOW + lives[number], max_running=2, key=f"k{number}-{lives[number]}")
            await make.store.fires.record_due(
                now=NOW + SECOND,
                limit=10,
                decide=lambda due: FirePlan(next_fire_at=None, runs=(new_run(due.due_at, lane=None),)),
            )
            key, token = await make.running(job, NOW + 5 * SECOND)
            await make.finish(key, token, decide=retry())
            changed = await make.store.jobs.change(
                job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.PAUSED, cancels_pending=True)
            )
            assert changed is not None
            assert changed.state is JobState.PAUSED
            assert await make.store.jobs.find(JobFilter(text="JOB"), Page(limit=5))
            lives[number] += 1

    living = [asyncio.create_task(live(number)) for number in range(2)]
    for number in range(len(steps)):
        before = min(lives)
        while min(lives) < before + 3 and not any(task.done() for task in living):
            await asyncio.sleep(0.005)
        await bring_to(url, (*load_migrations(), *steps[: number + 1]))
    is_over.set()
    await asyncio.gather(*living)
    assert (await schema_of(url)).version == NEWEST + len(tables)
    counts = await nodes[0].counts()
    assert counts.jobs_by_state == {"paused": sum(lives)}
    for node in nodes:
        await node.close()


def test_migrations_are_numbered_without_a_gap_and_say_what_they_serve() -> None:
    assert [step.number for step in load_migrations()] == list(range(1, NEWEST + 1))
    assert EXPANSION.serves_from is None
    assert CONTRACTION.serves_from == NEWEST + 1
