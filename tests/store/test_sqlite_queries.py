"""The SQL files: every query is used, and walks the index that its comment names on a fresh, unanalysed database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

import onbeat.store.sqlite
from onbeat.store.open import open_store
from onbeat.store.sqlite.connection import open_reading_connection
from onbeat.store.sqlite.queries import load_queries

NOUNS = (
    "access",
    "after_finish",
    "backfills",
    "backup",
    "blackouts",
    "calendars",
    "fires",
    "jobs",
    "leases",
    "meta",
    "moving",
    "nodes",
    "pauses",
    "runs",
    "streaks",
)
SMALL = {
    "api_keys",
    "nodes",
    "pauses",
    "job_counts",
    "job_versions",
    "meta",
    "sqlite_schema",
    "json_each",
    "jsonb_each",
    "r",
    "d",
    "t",
    "v",
    "present",
}
READS_ALL = {
    "find_calendars",  # few
    "find_blackouts",
    "drop_backfills_of_gone_jobs",  # few
    "calendar_to_replan",  # stops at the first row of an index that is usually empty
    "any_after_finish",  # stops at the first row of a table that is usually empty
    "any_streak",
    "any_waiting",  # stops at the first row of an index that is usually empty
    "find_live",  # live_runs is small
    "count_live",
    "count_running",
    "oldest_ended",  # by primary key, up to its limit
    "recovery_places",  # once at a start
    "count_rows",  # of a backup
    "every_secret",
    "pause_everything",
}


def queries() -> Iterator[tuple[str, str, str, str]]:
    """Noun, name, comment, statement."""
    for noun in NOUNS:
        text = files("onbeat.store.sqlite.queries").joinpath(f"{noun}.sql").read_text(encoding="utf-8")
        for name, statement in load_queries(noun).items():
            comment = re.search(rf"^-- name: {name}\n((?:--.*\n)*)", text, re.MULTILINE)
            assert comment is not None
            yield noun, name, comment[1], statement


ALL = list(queries())
PLANNED = [query for query in ALL if query[0] != "moving"]
"""`onbeat db copy` reads everything, and says so."""


@pytest.fixture
async def fresh(tmp_path: Path) -> apsw.Connection:
    await (await open_store(str(tmp_path / "onbeat.db"))).close()
    return open_reading_connection(str(tmp_path / "onbeat.db"))


def plan_of(connection: apsw.Connection, statement: str) -> list[str]:
    names = dict.fromkeys(re.findall(r":(\w+)", statement))
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", dict.fromkeys(names))]


def test_query_names_are_unique_over_all_files() -> None:
    names = [name for _noun, name, _comment, _statement in ALL]
    assert len(names) == len(set(names))


def test_every_query_is_used_and_every_name_exists() -> None:
    source = "\n".join(path.read_text() for path in Path(onbeat.store.sqlite.__file__).parent.glob("*.py"))
    used = set(re.findall(r'_[A-Z]+\["(\w+)"\]', source)) | set(re.findall(r'self\._write\(\s*"(\w+)"', source))
    assert used == {name for _noun, name, _comment, _statement in ALL}


def test_no_statement_is_built_or_written_in_python() -> None:
    for path in Path(onbeat.store.sqlite.__file__).parent.glob("*.py"):
        assert not re.search(r'"(SELECT|INSERT|UPDATE|DELETE|CREATE)\b', path.read_text()), path


@pytest.mark.parametrize(("noun", "name", "comment", "statement"), PLANNED, ids=[query[1] for query in PLANNED])
async def test_query_walks_what_its_comment_names(
    fresh: apsw.Connection, noun: str, name: str, comment: str, statement: str
) -> None:
    plan = plan_of(fresh, statement)
    for index in re.findall(r"[Ww]alks (\w+_\w+)", comment):
        if index not in ("ended_runs", "live_runs"):
            assert any(f"INDEX {index}" in step for step in plan), plan
    if "primary key" in comment:
        assert any(re.search(r"PRIMARY KEY|autoindex", step) for step in plan), plan
    for step in plan:
        scanned = re.match(r"SCAN (\w+)", step)
        if scanned and scanned[1] not in SMALL | {"CONSTANT"} and name not in READS_ALL:
            pytest.fail(f"{noun}.{name} reads all of {scanned[1]}: {plan}")
        if "TEMP B-TREE" in step:
            assert name in {"find_live", "find_keys", "find_secrets", "recovery_places"}, plan


def test_query_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "twice.sql").write_text("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")
    monkeypatch.setattr("onbeat.store.named_queries.files", lambda _package: tmp_path)
    with pytest.raises(ValueError, match="twice"):
        load_queries("twice")
