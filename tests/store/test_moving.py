"""What moves between the engines: every table and column, and each row as it was."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import asyncpg
import pytest
from tests.store.factories import NOW, Maker
from tests.support.database import Data, looking_into
from tests.support.full_database import DAY, fill
from tests.support.postgres import MASTER_KEY, Databases

from onbeat.app.moving import CopiedDatabase, copy_database
from onbeat.config import Settings
from onbeat.domain.errors import ConfigError, DataFileInUse
from onbeat.domain.ids import RunKey
from onbeat.services.secret_box import SecretBox, parse_master_key
from onbeat.store.moving import MOVED_TABLES
from onbeat.store.open import open_store
from onbeat.store.postgres.inspection import inspect_database
from onbeat.store.postgres.store import upgrade_database
from onbeat.store.sqlite.datafile import DataFileLock
from onbeat.store.values import FinishResult, JobFilter, NodeInfo, Page, SecretVersion

LEFT = {"meta", "nodes", "job_counts", "job_keys", "ended_ranges"}
"""What a database says of itself, who works on it, and what is made out of the other tables."""
MADE_COLUMNS = {"slot", "ended_id", "folded_name", "folded_key", "rank"}
OTHER_KEY = base64.b64encode(b"another key, of thirty-two bytes").decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "onbeat.sqlite3"


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    made = await databases.create()
    yield made
    await databases.drop(made)


@pytest.fixture
async def empty(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database without any table."""
    made = await databases.create(has_schema=False)
    yield made
    await databases.drop(made)


def a_secret() -> SecretVersion:
    text = SecretBox(parse_master_key(MASTER_KEY)).encrypt("whsec_abc", context="secret|default|default|1")
    return SecretVersion("default", "default", 1, text, NOW, NOW + DAY)


async def move(source: Data, target: Data, *, replaces: bool = False, key: str = MASTER_KEY) -> CopiedDatabase:
    def progress(table: str, *, done: int, rows: int) -> None:
        assert 0 < done <= rows, table

    return await copy_database(Settings(master_key=key), str(source), str(target), replaces=replaces, progress=progress)


async def filled(data: Data) -> Maker:
    """A database with a job."""
    store = await open_store(str(data))
    await Maker(store).job()
    await store.close()
    return Maker(store)


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a data file."""
    with looking_into(path) as look:
        found = {
            table.name: sorted(look(f"select {', '.join(table.columns)} from {table.name}"), key=repr)  # noqa: S608
            for table in MOVED_TABLES
        }
        found["meta"] = look("select * from meta")
        found["job_counts"] = look("select * from job_counts where count > 0 order by state")
        return found


async def test_every_table_and_column_of_a_data_file_moves(path: Path) -> None:
    await (await open_store(str(path))).close()
    connection = apsw.Connection(str(path))
    tables = {row[0] for row in connection.execute("select name from sqlite_schema where type = 'table'")}
    assert {table.name for table in MOVED_TABLES} | LEFT >= tables
    for table in MOVED_TABLES:
        columns = {row[1] for row in connection.execute(f"pragma table_xinfo({table.name})")}
        assert set(table.columns) == columns - MADE_COLUMNS, table.name
    connection.close()


async def test_every_table_and_column_of_a_database_moves(url: str) -> None:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        """select table_name::text, column_name::text, data_type::text from information_schema.columns
        where table_schema = 'public' and table_name <> 'runs' and table_name !~ '(_default|_[0-9]{8})$'"""
    )
    await connection.close()
    assert {table.name for table in MOVED_TABLES} | LEFT == {row[0] for row in rows}
    for table in MOVED_TABLES:
        columns = {row[1]: row[2] for row in rows if row[0] == table.name}
        assert set(table.columns) == columns.keys() - MADE_COLUMNS, table.name
        assert set(table.flags) == {name for name, kind in columns.items() if kind == "boolean"}
        assert table.has_slot == ("slot" in columns)
        assert set(table.key) | set(table.flags) | set(table.blanks) | set(table.free_texts) <= set(table.columns)


async def test_everything_comes_back_as_it_was(path: Path, empty: str, tmp_path: Path) -> None:
    store = await open_store(str(path), slots=64)
    await fill(store, secret=a_secret())
    await store.close()
    there = await move(path, empty)
    assert [table.name for table in there.tables if table.rows == 0] == []
    assert (await inspect_database(empty, reads_everything=True)).problems == ()
    back = tmp_path / "back.sqlite3"
    again = await move(empty, back)
    assert again.tables == there.tables
    before, after = content(path), content(back)
    for name, rows in before.items():
        # PostgreSQL holds no NUL in a text.
        shown = [tuple(part.replace("\0", "?") if isinstance(part, str) else part for part in row) for row in rows]
        assert sorted(shown, key=repr) == sorted(after[name], key=repr), name
    assert not back.with_name(back.name + ".copy").exists()


async def test_a_worker_that_had_a_run_when_it_was_copied_finishes_it_afterwards(path: Path, url: str) -> None:
    store = await open_store(str(path))
    known = await fill(store, secret=a_secret())
    await store.close()
    await move(path, url)
    moved = await open_store(url)
    finished = await Maker(moved).finish(known.leased, known.token)
    assert finished.result is FinishResult.ENDED
    assert (await Maker(moved).view(known.leased)).state == "succeeded"
    await moved.close()


async def test_another_number_of_slots_puts_each_job_where_it_is_looked_for(path: Path, empty: str) -> None:
    await upgrade_database(empty, slots=7)
    store = await open_store(str(path))
    known = await fill(store, secret=a_secret())
    counts = (await store.counts()).jobs_by_state
    await store.close()
    copied = await move(path, empty)
    assert (copied.slots_before, copied.slots) == (256, 7)
    moved = await open_store(empty)
    found = await moved.jobs.find(JobFilter(text="STRASSE"), Page(limit=10))
    by_key = await moved.jobs.get_by_key("default", "Ünïcode-KEY")
    assert by_key is not None
    assert [job.job_id for job in found] == [by_key.job_id]
    assert {state: count for state, count in (await moved.counts()).jobs_by_state.items() if count} == counts
    assert (await Maker(moved).finish(known.leased, known.token)).result is FinishResult.ENDED
    await moved.close()
    assert (await inspect_database(empty, reads_everything=True)).problems == ()


async def test_history_lies_in_its_days(path: Path, url: str) -> None:
    store = await open_store(str(path))
    make = Maker(store)
    now = await store.read_clock()
    await make.ended(await make.job(), (now - 3 * DAY) // DAY * DAY + 1)
    await store.close()
    await move(path, url)
    with looking_into(url) as look:
        assert look("select count(*) from ended_runs_default") == [(0,)]
        assert look("select count(*) from ended_runs") == [(1,)]


async def test_what_the_target_holds_stays_without_force(path: Path, url: str, tmp_path: Path) -> None:
    await filled(path)
    await filled(url)
    with pytest.raises(ConfigError, match="not empty: it has rows in jobs, clocks"):
        await move(path, url)
    other = tmp_path / "other.sqlite3"
    await filled(other)
    with pytest.raises(ConfigError, match="there already"):
        await move(url, other)
    await move(path, url, replaces=True)
    await move(url, other, replaces=True)
    assert content(other) == content(path)


async def test_what_somebody_works_on_is_neither_read_nor_written(path: Path, url: str, tmp_path: Path) -> None:
    await filled(path)
    lock = DataFileLock(path)
    try:
        with pytest.raises(DataFileInUse):
            await move(path, url)
        with pytest.raises(DataFileInUse):
            await move(url, path, replaces=True)
    finally:
        lock.release()
    store = await open_store(url)
    await store.nodes.beat(NodeInfo("node-7", "node", NOW, await store.read_clock(), "{}"))
    for source, target in ((path, url), (url, tmp_path / "new.sqlite3")):
        with pytest.raises(ConfigError, match="node-7"):
            await move(source, target, replaces=True)
    await store.nodes.leave("node-7")
    await store.close()
    await move(path, url)


async def test_a_half_filled_database_serves_nobody_and_its_copy_goes_on(path: Path, url: str) -> None:
    await filled(path)
    await move(path, url)
    with looking_into(url) as look:
        look("update meta set unfinished_copy = 'of one that was killed' returning 1")
        look("delete from clocks returning 1")
    with pytest.raises(ConfigError, match="onbeat db copy"):
        await open_store(url)
    found = {table.name: (table.found, table.rows) for table in (await move(path, url)).tables}
    assert (found["jobs"], found["clocks"]) == ((1, 1), (0, 1))
    await (await open_store(url)).close()


async def test_a_source_that_changed_since_its_copy_was_killed_is_told_of(path: Path, url: str) -> None:
    make = await filled(path)
    await move(path, url)
    with looking_into(url) as look:
        look("update meta set unfinished_copy = 'of one that was killed' returning 1")
    make.store = await open_store(str(path))
    (job,) = await make.store.jobs.find(JobFilter(), Page(limit=1))
    await make.ended(job, NOW + 1)
    await make.store.close()
    with looking_into(path) as look:
        look("update jobs set name = 'another' returning 1")
    with pytest.raises(ConfigError, match="jobs differs: 1 rows"):
        await move(path, url)
    with pytest.raises(ConfigError, match="onbeat db copy"):
        await open_store(url)
    await move(path, url, replaces=True)
    store = await open_store(url)
    assert await store.runs.get(RunKey(job.job_id, NOW + 1)) is not None
    await store.close()


async def test_an_unfinished_copy_of_another_database_is_not_gone_on_with(path: Path, url: str, tmp_path: Path) -> None:
    await filled(path)
    await move(path, url)
    with looking_into(url) as look:
        look("update meta set unfinished_copy = 'of one that was killed' returning 1")
    other = tmp_path / "other.sqlite3"
    await filled(other)
    with pytest.raises(ConfigError, match="another database"):
        await move(other, url)


async def test_secrets_that_no_key_opens_are_not_copied(path: Path, url: str) -> None:
    store = await open_store(str(path))
    await store.access.add_secret(a_secret(), retire_others_at=None)
    await store.close()
    with pytest.raises(ConfigError, match="another master key"):
        await move(path, url, key=OTHER_KEY)
    with pytest.raises(ConfigError, match="missing"):
        await copy_database(Settings(), str(path), url, replaces=False, progress=lambda *_, **__: None)
    with looking_into(url) as look:
        assert look("select count(*) from secrets") == [(0,)]


async def test_databases_of_one_kind_are_copied_by_other_means(path: Path, tmp_path: Path) -> None:
    await filled(path)
    with pytest.raises(ConfigError, match="or back"):
        await move(path, tmp_path / "b.sqlite3")
