"""Claim and effect are one: both happen once, or neither does."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from onbeat.receiver import Deduplicator, TransactionRequired, VerifiedCall

CALL = VerifiedCall(run_id="run_1", timestamp=1_800_000_000)
OTHER = VerifiedCall(run_id="run_2", timestamp=1_800_000_100)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "handler.db"
    with sqlite3.connect(path) as connection:
        Deduplicator().create_table(connection)
        Deduplicator().create_table(connection)
        connection.execute("CREATE TABLE effects (run_id TEXT)")
    connection.close()
    return path


def effects(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        count = int(connection.execute("SELECT count(*) FROM effects").fetchone()[0])
    connection.close()
    return count


def handle(path: Path, call: VerifiedCall, *, dies: bool = False) -> bool:
    """A handler: True where it did the work."""
    connection = sqlite3.connect(path, timeout=10)
    try:
        with connection:
            if not Deduplicator().claim(connection, call):
                return False
            connection.execute("INSERT INTO effects VALUES (?)", (call.run_id,))
            if dies:
                raise RuntimeError("after the effect, before the commit")
        return True
    finally:
        connection.close()


def test_the_second_delivery_of_a_run_does_nothing(database: Path) -> None:
    assert [handle(database, CALL), handle(database, CALL), handle(database, OTHER)] == [True, False, True]
    assert effects(database) == 2


def test_a_handler_that_dies_leaves_the_run_to_the_next_delivery(database: Path) -> None:
    with pytest.raises(RuntimeError):
        handle(database, CALL, dies=True)
    assert effects(database) == 0
    assert handle(database, CALL)
    assert effects(database) == 1


def test_deliveries_at_the_same_moment_do_the_work_once(database: Path) -> None:
    start = threading.Barrier(8)
    done: list[bool] = []

    def deliver() -> None:
        start.wait(10)
        done.append(handle(database, CALL))

    threads = [threading.Thread(target=deliver) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 7 + [True]
    assert effects(database) == 1


def test_a_connection_that_commits_by_itself_is_refused_before_anything_is_written(database: Path) -> None:
    connection = sqlite3.connect(database, isolation_level=None)
    with pytest.raises(TransactionRequired):
        Deduplicator().claim(connection, CALL)
    connection.execute("BEGIN IMMEDIATE")
    assert Deduplicator().claim(connection, CALL)
    connection.execute("ROLLBACK")
    connection.close()


def test_notes_are_forgotten_by_age(database: Path) -> None:
    handle(database, CALL)
    handle(database, OTHER)
    with sqlite3.connect(database) as connection:
        assert Deduplicator().forget(connection, before_s=1_800_000_050) == 1
    connection.close()
    assert handle(database, CALL)
    assert not handle(database, OTHER)


@pytest.mark.parametrize("table", ["", "a b", "a;drop", "a.b.c", "1a", "a" * 64, "é"])
def test_a_table_s_name_is_checked(table: str) -> None:
    with pytest.raises(ValueError):
        Deduplicator(table=table)


def test_an_unknown_paramstyle_is_refused() -> None:
    Deduplicator(table="app.onbeat_runs", paramstyle="pyformat")
    with pytest.raises(ValueError):
        Deduplicator(paramstyle="named")
