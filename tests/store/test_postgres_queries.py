"""The SQL files: every query is used, names slot, and walks the index that its comment names, without statistics."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.support.postgres import Databases

import onbeat.store.postgres
from onbeat.clock import host_time_us
from onbeat.store.open import open_store
from onbeat.store.postgres.database import BEGIN_READ
from onbeat.store.postgres.queries import load_queries, number_parameters

PACKAGE = Path(onbeat.store.postgres.__file__).parent
NOUNS = tuple(sorted(path.stem for path in (PACKAGE / "queries").glob("*.sql")))
STATEMENT = re.compile(r'"(SELECT|INSERT|UPDATE|DELETE|CREATE) [^\d]')
HOT = ("clocks", "jobs", "live_runs", "ended_runs", "ended_ranges", "attempts", "after_finish", "job_versions")
SMALL = {"api_keys", "secrets", "nodes", "pauses", "job_counts", "job_versions", "meta", "backfills"}
UTILITY = re.compile(r"(CREATE|ALTER|DROP) ")
OVER_ALL_SLOTS = {
    "find_jobs",  # lists and figures for people
    "find_jobs_in_namespace",
    "find_live",
    "find_ended",
    "find_notable",
    "find_revivable",
    "live_figures",
    "jobs_held_by",  # a pause of many jobs ends
    "pauses_over",
    "recovery_places",  # once at a start
    "default_holds_rows",  # partitions are of all slots
    "holds_younger",
    "holds_runs",
    "count_rows",
    "count_overdue",  # the head of an index
    "first_ready",  # a queue is one line over all slots
    "lease_runs",
    "lost_leases",  # whose lease ended first, in whichever slot
    "overdue_retries",
    "first_overdue",
    "drop_ranges",  # history that has aged
    "prune_default",
    "prune_versions",
    "prune_jobs",
}
READS_ALL = {
    "find_calendars": "few rows",
    "find_blackouts": "few rows",
    "calendar_to_replan": "a partial index that is usually empty",
    "any_to_replan": "a partial index that is usually empty",
    "live_figures": "live_runs is small; the earliest clock is the first of its index",
    "find_live": "live_runs is small",
    "recovery_places": "live_runs is small, and asked once at a start",
    "next_due_at": "the first row of an index",
    "any_streak": "the first row of an index",
    "holds_runs": "live_runs is small, and asked once a day",
    "count_rows": "up to its limit, once a day",
    "compact_job_counts": "few rows",
    "find_partitions": "the catalogue",
    "prune_versions": "former definitions only",
}
BY_NAME = {"inspection", "partitions", "runs"}
"""Nouns whose modules choose a statement and pass its name on."""
NAMED_EXACTLY = {"get_ended_view", "succeeded_attempt", "drop_mark", "copy_mark", "shrink_mark"}
"""The planner may take another index of history that names the row as exactly."""
BY_BLOCKS = {"holds_younger"}
"""Walks a BRIN index, for which its transaction allows bitmaps."""
FEW_TO_COMPARE = {
    "lease_runs": "a line for each priority",
    "compact_job_counts": "few rows",
}
ONLY_WITH_ROWS = {"find_ended_of_job"}
"""Pages for people. In an empty partition, every index is as good as another."""
TODAY = str(host_time_us())
"""There is a partition for it."""
VALUES = {
    "bigint": TODAY,
    "integer": "1",
    "smallint": "1",
    "text": "'a'",
    "boolean": "true",
    "bytea": "''",
    "double precision": "1",
    "bigint[]": "'{}'",
    "integer[]": "'{}'",
    "text[]": "'{}'",
    "boolean[]": "'{}'",
    "bytea[]": "'{}'",
}


def queries() -> Iterator[tuple[str, str, str, str]]:
    """Noun, name, comment, statement with numbered parameters."""
    for noun in NOUNS:
        text = files("onbeat.store.postgres.queries").joinpath(f"{noun}.sql").read_text(encoding="utf-8")
        for name, statement in load_queries(noun).items():
            comment = re.search(rf"^-- name: {name}\n((?:--.*\n)*)", text, re.MULTILINE)
            assert comment is not None
            yield noun, name, comment[1], statement


ALL = list(queries())
PLANNED = [query for query in ALL if not UTILITY.match(query[3]) and query[0] not in ("inspection", "moving", "citus")]
"""`onbeat db check` and `onbeat db copy` read everything, and say so; Citus' functions are not here."""

ROWS = """
SET synchronous_commit = off;
ALTER TABLE jobs SET (autovacuum_enabled = off);
ALTER TABLE clocks SET (autovacuum_enabled = off);
ALTER TABLE live_runs SET (autovacuum_enabled = off);
ALTER TABLE ended_runs_default SET (autovacuum_enabled = off);
INSERT INTO jobs (
    slot, job_id, namespace, key, name, tags, version, state, definition, max_running, created_at, updated_at,
    folded_name
)
SELECT n % 256, n, 'default', NULL, 'Job ' || n, '[]', 1, 'active', '{}', 1, n, n, 'job ' || n
FROM generate_series(1, 30000) AS n;
INSERT INTO clocks (slot, job_id, next_fire_at) SELECT n % 256, n, n FROM generate_series(1, 30000) AS n;
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, max_run_us, created_at
)
SELECT n % 256, n, n, 'pending', 'schedule', 1, 0, 0, n, n, 1, n FROM generate_series(1, 30000) AS n;
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at
)
SELECT n % 256, n, at, 'succeeded', false, 'schedule', 1, 1, n, n
FROM generate_series(1, 30000) AS n, LATERAL (VALUES (n), (:today + n)) AS instants (at);
"""


class Plans:
    """How a database executes each statement, under the engine's settings. It was never analysed, or, `is_emptied`,
    just when there was no live run.
    """

    def __init__(self, *, has_rows: bool, is_emptied: bool = False) -> None:
        self.has_rows = has_rows
        self.is_emptied = is_emptied
        self.nodes: dict[str, list[dict[str, Any]]] = {}
        self.tables: set[str] = set()
        self.whole: dict[str, str] = {}
        """Partitions and their indexes: the table or the index that they are a part of."""

    async def read(self, url: str) -> None:
        await (await open_store(url)).close()
        connection = await asyncpg.connect(url)
        try:
            if self.has_rows:
                await connection.execute(ROWS.replace(":today", TODAY))
            if self.is_emptied:
                await connection.execute("DELETE FROM live_runs")
                await connection.execute("VACUUM (ANALYZE) live_runs")
            partition = await connection.fetchval(
                "SELECT max(relname) FROM pg_class WHERE relname ~ '^ended_runs_2.*[0-9]$'"
            )
            self.whole = {
                row[0]: row[1]
                for row in await connection.fetch(
                    "SELECT i.inhrelid::regclass::text, i.inhparent::regclass::text FROM pg_inherits AS i"
                )
            }
            self.tables = {
                row[0]
                for row in await connection.fetch("SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p')")
            }
            for _noun, name, _comment, statement in PLANNED:
                await connection.execute(BEGIN_READ.replace("READ ONLY", "READ WRITE"))
                await connection.execute(f"SET LOCAL enable_bitmapscan = {'on' if name in BY_BLOCKS else 'off'}")
                text = statement.replace("{partition}", partition).replace("{table}", "ended_runs")
                await connection.execute(f"PREPARE planned AS {text}")
                types = await connection.fetchval(
                    "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'planned'"
                )
                values = f"({', '.join(VALUES[name] for name in types)})" if types else ""
                explained = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE planned{values}")
                await connection.execute("DEALLOCATE planned")
                self.nodes[name] = list(_walk(json.loads(explained)[0]["Plan"]))
                await connection.execute("ROLLBACK")
        finally:
            await connection.close()

    def indexes(self, name: str) -> set[str]:
        """The indexes that a statement walks, those of partitions under the name of the whole table's."""
        found = {node["Index Name"] for node in self.nodes[name] if "Index Name" in node}
        return {self.whole.get(index, index) for index in found}


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


@pytest.fixture(scope="module", params=[False, True], ids=["empty", "filled"])
def plans(databases: Databases, request: pytest.FixtureRequest) -> Plans:
    """Of an empty database, and of one with rows that the planner has no statistics of."""
    found = Plans(has_rows=request.param)
    with databases.fresh() as url:
        asyncio.run(found.read(url))
    return found


@pytest.fixture(scope="module")
def plans_of_a_quiet_time(databases: Databases) -> Plans:
    """Made where `live_runs` was vacuumed between two bursts: the planner believes that it stays empty."""
    found = Plans(has_rows=True, is_emptied=True)
    with databases.fresh() as url:
        asyncio.run(found.read(url))
    return found


def test_query_names_are_unique_over_all_files() -> None:
    names = [name for _noun, name, _comment, _statement in ALL]
    assert len(names) == len(set(names))


def test_every_query_is_used_and_every_name_exists() -> None:
    source = "\n".join(path.read_text() for path in PACKAGE.glob("*.py"))
    used = set(re.findall(r'_[A-Z]+\["(\w+)"\]', source)) | {
        name
        for name in re.findall(r'"([a-z_]+)"', source)
        if name in {query[1] for query in ALL if query[0] in BY_NAME}
    }
    assert used == {name for _noun, name, _comment, _statement in ALL}


def test_no_statement_is_built_or_written_in_python() -> None:
    for path in PACKAGE.glob("*.py"):
        assert not STATEMENT.search(path.read_text()), path


@pytest.mark.parametrize(
    ("name", "statement"), [(query[1], query[3]) for query in PLANNED if query[1] not in OVER_ALL_SLOTS]
)
def test_statement_names_the_slot_for_each_distributed_table(name: str, statement: str) -> None:
    tables = re.findall(rf"\b(?:FROM|JOIN|INTO|UPDATE|USING) (?:{'|'.join(HOT)})\b", statement)
    assert len(re.findall(r"\bslot\b", statement)) >= len(tables), name


@pytest.mark.parametrize("name", [query[1] for query in PLANNED if query[1] not in OVER_ALL_SLOTS])
def test_rows_of_a_distributed_table_are_found_by_slot(plans: Plans, name: str) -> None:
    if not plans.has_rows:
        return  # in an empty table, every index is as good as another
    for node in plans.nodes[name]:
        table = plans.whole.get(node.get("Relation Name", ""), node.get("Relation Name"))
        if table in HOT and "Scan" in node["Node Type"]:
            found_by = " ".join(node.get(key, "") for key in ("Index Cond", "Recheck Cond", "Filter", "TID Cond"))
            assert "slot" in found_by, node


@pytest.mark.parametrize("name", [query[1] for query in PLANNED])
def test_rows_that_are_asked_for_are_looked_up_and_not_compared_with_all_others(
    plans: Plans, plans_of_a_quiet_time: Plans, name: str
) -> None:
    """Also where the planner believes that there are none: such a plan is kept while the table fills."""
    for seen in (plans, plans_of_a_quiet_time):
        compared = [node["Join Filter"] for node in seen.nodes[name] if "Join Filter" in node]
        assert not compared or name in FEW_TO_COMPARE, compared


@pytest.mark.parametrize("name", ["lock_due", "lock_latest_due", "lost_leases", "overdue_retries", "first_ready"])
def test_the_first_of_many_are_read_in_order_and_no_more_than_they(
    plans: Plans, plans_of_a_quiet_time: Plans, name: str
) -> None:
    for seen in (plans, plans_of_a_quiet_time):
        assert not {"Sort", "Bitmap Heap Scan"} & {node["Node Type"] for node in seen.nodes[name]}


@pytest.mark.parametrize(("name", "comment"), [(query[1], query[2]) for query in PLANNED], ids=[q[1] for q in PLANNED])
def test_query_walks_what_its_comment_names(plans: Plans, name: str, comment: str) -> None:
    walked = plans.indexes(name)
    named = re.findall(r"[a-z]+(?:_[a-z]+)+", " ".join(re.findall(r"[Ww]alks ([^.:]*)", comment)))
    for index in set(named) - plans.tables - {query[1] for query in ALL} - {"attempts_default_by_time"}:
        assert index in walked, walked
    if "primary key" in comment and name not in NAMED_EXACTLY and (plans.has_rows or name not in ONLY_WITH_ROWS):
        assert any(index.endswith("_pkey") for index in walked), walked


@pytest.mark.parametrize("name", [query[1] for query in PLANNED])
def test_query_reads_no_table_from_end_to_end(plans: Plans, name: str) -> None:
    _reads_no_table_from_end_to_end(plans, name)


@pytest.mark.parametrize("name", [query[1] for query in PLANNED])
def test_query_reads_no_table_from_end_to_end_after_a_quiet_time(plans_of_a_quiet_time: Plans, name: str) -> None:
    _reads_no_table_from_end_to_end(plans_of_a_quiet_time, name)


def _reads_no_table_from_end_to_end(plans: Plans, name: str) -> None:
    for node in plans.nodes[name]:
        table = plans.whole.get(node.get("Relation Name", ""), node.get("Relation Name"))
        if table in SMALL or name in READS_ALL:
            continue
        assert node["Node Type"] not in ("Hash Join", "Merge Join"), node
        if node["Node Type"] == "Seq Scan":
            pytest.fail(f"{name} reads all of {table}")
        if node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Index Scan") and "Index Cond" not in node:
            pytest.fail(f"{name} reads all of the index {node['Index Name']}")


def test_exceptions_are_still_needed() -> None:
    names = {query[1] for query in ALL}
    assert names >= OVER_ALL_SLOTS
    assert names >= READS_ALL.keys()


def test_parameters_are_numbered_by_first_appearance_and_casts_are_none() -> None:
    assert number_parameters("a = :b AND c = :d::bigint OR e = :b") == "a = $1 AND c = $2::bigint OR e = $1"
