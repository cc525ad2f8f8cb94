"""The writing thread: group commit, isolation of its members, failures of the disk, the log's size; and the readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest
from tests.store.factories import NOW, Maker, new_job

from onbeat.domain.errors import OnbeatError, StoreUnavailable
from onbeat.store.open import open_store
from onbeat.store.sqlite import writer as writer_module
from onbeat.store.sqlite.connection import BUSY_TIMEOUT_MS, open_reading_connection, open_writing_connection
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.store import SqliteStore
from onbeat.store.sqlite.writer import Writer

ROW = "INSERT INTO t (x) VALUES (?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plain.db"


@pytest.fixture
async def writer(path: Path) -> AsyncIterator[Writer]:
    connection = open_writing_connection(str(path))
    connection.execute("CREATE TABLE t (x UNIQUE)")
    opened = Writer(connection, busy_timeout_ms=BUSY_TIMEOUT_MS)
    yield opened
    await opened.close()


def insert(value: str | int) -> Callable[[apsw.Connection], object]:
    return lambda connection: connection.execute(ROW, (value,)).fetchall()


async def rows(writer: Writer) -> list[object]:
    def read(connection: apsw.Connection) -> list[object]:
        return [row[0] for row in connection.execute("SELECT x FROM t ORDER BY rowid")]

    return await writer.submit(read)


class Gate:
    """Holds the writing thread inside a member, so that what follows is submitted meanwhile."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, _connection: apsw.Connection) -> str:
        self.entered.set()
        assert self.opened.wait(10)
        return "passed"


async def test_submissions_of_one_moment_share_a_commit(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_LASTS_S", 10)
    commits: list[int] = []

    def count_commit() -> bool:
        commits.append(1)
        return False

    await writer.submit(lambda connection: connection.set_commit_hook(count_commit))
    gate = Gate()
    first = asyncio.create_task(writer.submit(gate))
    await asyncio.to_thread(gate.entered.wait)
    others = [asyncio.create_task(writer.submit(insert(number))) for number in range(20)]
    await asyncio.sleep(0)
    commits.clear()
    gate.opened.set()
    await asyncio.gather(first, *others)
    assert len(commits) == 1
    assert await rows(writer) == list(range(20))


async def test_member_that_fails_is_undone_alone(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "GROUP_LASTS_S", 10)
    gate = Gate()

    def fails(connection: apsw.Connection) -> None:
        connection.execute(ROW, ("undone",))
        raise ZeroDivisionError

    first = asyncio.create_task(writer.submit(gate))
    await asyncio.to_thread(gate.entered.wait)
    members: list[Callable[[apsw.Connection], object]]
    members = [insert("a"), fails, insert("b"), insert("a"), insert("c")]
    others = [asyncio.create_task(writer.submit(work)) for work in members]
    await asyncio.sleep(0)
    gate.opened.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(answer) for answer in answers] == [str, list, ZeroDivisionError, list, OnbeatError, list]
    assert await rows(writer) == ["a", "b", "c"]


async def test_first_member_that_fails_is_undone_before_the_others_begin(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "GROUP_LASTS_S", 10)
    gate = Gate()

    def fails(connection: apsw.Connection) -> None:
        connection.execute(ROW, ("undone",))
        gate(connection)
        raise ZeroDivisionError

    first = asyncio.create_task(writer.submit(fails))
    await asyncio.to_thread(gate.entered.wait)
    others = [asyncio.create_task(writer.submit(insert(value))) for value in ("a", "b")]
    await asyncio.sleep(0)
    gate.opened.set()
    await asyncio.gather(*others)
    with pytest.raises(ZeroDivisionError):
        await first
    assert await rows(writer) == ["a", "b"]


async def test_commit_that_fails_fails_every_member_and_the_writer_goes_on(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "GROUP_LASTS_S", 10)
    gate = Gate()
    refuse = [False]
    await writer.submit(lambda connection: connection.set_commit_hook(lambda: refuse[0]))
    refuse[0] = True
    first = asyncio.create_task(writer.submit(gate))
    await asyncio.to_thread(gate.entered.wait)
    others = [asyncio.create_task(writer.submit(insert(value))) for value in ("a", "b")]
    await asyncio.sleep(0)
    gate.opened.set()
    answers = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    refuse[0] = False
    await writer.submit(insert("c"))
    assert await rows(writer) == ["c"]


async def test_cancelled_caller_neither_blocks_the_writer_nor_breaks_its_group(writer: Writer) -> None:
    gate = Gate()
    first = asyncio.create_task(writer.submit(gate))
    await asyncio.to_thread(gate.entered.wait)
    abandoned = asyncio.create_task(writer.submit(insert("abandoned")))
    kept = asyncio.create_task(writer.submit(insert("kept")))
    await asyncio.sleep(0)
    abandoned.cancel()
    first.cancel()
    await asyncio.gather(first, abandoned, return_exceptions=True)
    gate.opened.set()
    await kept
    assert await rows(writer) == ["kept"]


async def test_full_disk_is_unavailable_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "onbeat.db"))
    assert isinstance(store, SqliteStore)
    make = Maker(store)
    job = await make.job()
    await _limit_pages(store, 1)
    definition = '"' + "x" * 50_000 + '"'
    big = [new_job(definition=definition) for _ in range(20)]
    answers = await asyncio.gather(*(store.jobs.create([one], now=NOW) for one in big), return_exceptions=True)
    assert StoreUnavailable in {type(answer) for answer in answers}
    before = await store.counts()
    with pytest.raises(StoreUnavailable):
        await store.jobs.create([new_job(definition=definition) for _ in range(3)], now=NOW)
    assert await store.counts() == before
    assert await store.jobs.get(job.job_id) == job
    await _limit_pages(store, 1_000_000)
    await store.jobs.create([new_job(definition=definition)], now=NOW)
    assert (await store.counts()).jobs_by_state["active"] == before.jobs_by_state["active"] + 1
    await store.close()


async def _limit_pages(store: SqliteStore, pages: int) -> None:
    await store._writer.submit(lambda connection: connection.pragma("max_page_count", pages))


async def test_foreign_lock_on_the_file_is_unavailable(path: Path) -> None:
    connection = open_writing_connection(str(path))
    connection.execute("CREATE TABLE t (x UNIQUE)")
    writer = Writer(connection, busy_timeout_ms=1)
    connection.set_busy_timeout(1)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable):
        await writer.submit(insert("a"))
    other.execute("ROLLBACK")
    await writer.submit(insert("b"))
    assert await rows(writer) == ["b"]
    other.close()
    await writer.close()


async def test_log_stays_bounded_while_readers_come_and_go_and_is_cut_at_the_end(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(writer_module, "TRUNCATE_PAGES", 100)
    await writer.submit(lambda _connection: setattr(writer, "_checkpoint_at", 50))
    readers = Readers(path)
    log = path.with_name("plain.db-wal")
    largest = 0
    for number in range(100):
        await writer.submit(insert(str(number) * 3_000))
        await readers.read(lambda connection: connection.execute("SELECT count(*) FROM t").get)
        largest = max(largest, log.stat().st_size)
    assert largest < 100 * 4_200
    await readers.close()
    await writer.close()
    assert not log.exists()


async def test_idle_writer_empties_the_log(writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "IDLE_CHECKPOINT_S", 0.01)
    await writer.submit(insert("a"))
    log = path.with_name("plain.db-wal")
    async with asyncio.timeout(10):
        while log.stat().st_size:
            await asyncio.sleep(0.01)
    assert await rows(writer) == ["a"]


async def test_long_reader_does_not_make_every_commit_wait(
    writer: Writer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "CHECKPOINT_PAGES", 40)
    monkeypatch.setattr(writer_module, "TRUNCATE_PAGES", 40)
    await writer.submit(lambda _connection: setattr(writer, "_checkpoint_at", 40))
    monkeypatch.setattr(writer_module, "TRUNCATE_WAIT_MS", 1)
    tries: list[int] = []
    checkpoint = writer._checkpoint

    def count_try(mode: int) -> bool:
        tries.append(mode)
        return checkpoint(mode)

    monkeypatch.setattr(writer, "_checkpoint", count_try)
    reader = open_reading_connection(str(path))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t").fetchall()
    for number in range(60):
        await writer.submit(insert(number))
    assert 0 < len(tries) < 30
    reader.close()
    assert len(await rows(writer)) == 60


async def test_commits_reach_the_disk_before_they_are_acknowledged(writer: Writer) -> None:
    settings = await writer.submit(
        lambda connection: [connection.pragma(name) for name in ("journal_mode", "synchronous", "mmap_size")]
    )
    assert settings == ["wal", 2, 0]


async def test_readers_cannot_write(writer: Writer, path: Path) -> None:
    readers = Readers(path)
    with pytest.raises(StoreUnavailable):
        await readers.read(lambda connection: connection.execute(ROW, ("a",)).fetchall())
    await readers.close()
    assert await rows(writer) == []


async def test_read_that_takes_too_long_is_cut_and_the_reader_goes_on(writer: Writer, path: Path) -> None:
    readers = Readers(path, read_lasts_s=0.02)
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(StoreUnavailable, match="longer than"):
        await readers.read(lambda connection: connection.execute(endless).get)
    assert await readers.read(lambda connection: connection.execute("SELECT 1").get) == 1
    await readers.close()


async def test_one_read_sees_one_snapshot(writer: Writer, path: Path) -> None:
    readers = Readers(path)
    gate = Gate()

    def count_twice(connection: apsw.Connection) -> tuple[object, object]:
        first = connection.execute("SELECT count(*) FROM t").get
        gate(connection)
        return first, connection.execute("SELECT count(*) FROM t").get

    reading = asyncio.create_task(readers.read(count_twice))
    await asyncio.to_thread(gate.entered.wait)
    await writer.submit(insert("a"))
    gate.opened.set()
    assert await reading == (0, 0)
    assert await readers.read(lambda connection: connection.execute("SELECT count(*) FROM t").get) == 1
    await readers.close()


async def test_close_writes_what_was_submitted(path: Path) -> None:
    connection = open_writing_connection(str(path))
    connection.execute("CREATE TABLE t (x UNIQUE)")
    writer = Writer(connection, busy_timeout_ms=BUSY_TIMEOUT_MS)
    tasks = [asyncio.create_task(writer.submit(insert(number))) for number in range(10)]
    await asyncio.sleep(0)
    await writer.close()
    await asyncio.gather(*tasks)
    reader = open_reading_connection(str(path))
    assert reader.execute("SELECT count(*) FROM t").get == 10
    reader.close()
