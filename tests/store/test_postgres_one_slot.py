"""One slot at a time: the statements name it, transactions keep to it, and nothing that is due is missed.

The contract's whole suite runs in this mode, too (conftest.py), and fails where a statement or a transaction of the hot
path is about two slots. Here is what is true of this mode alone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Maker, fail, new_job, new_lease, new_run, outcome
from tests.store.test_postgres_queries import ALL, HOT, VALUES
from tests.support.citus import FEW_SLOTS, spread_database
from tests.support.one_slot import SLOTS, Watch, name_calls, slots_named, watching
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.database import BEGIN_READ, Connection, connect
from onbeat.store.postgres.looks import BELIEVED_S, MOST_LOOKS, Looks, SlotLooks
from onbeat.store.postgres.one_slot import MAKES_DUE, MAKES_READY, OneSlotMode, WrongSlotError
from onbeat.store.postgres.queries import OneSlotStatement, load_one_slot_statements, load_queries
from onbeat.store.values import DueJob, Finish, FirePlan, StoredJob

pytestmark = pytest.mark.slow

HOUR = 3_600 * SECOND
BY_NAME = {statement.name: statement for statement in load_one_slot_statements().values()}
TABLES = "|".join((*HOT, "failing_jobs", "job_counts"))
NOT_HOT = {
    "lock_due_backfill",  # backfills lie on the coordinator
    "recovery_places",  # once at a start
    "first_overdue",  # not asked where expiry goes slot by slot
    "count_overdue",  # figures and lists for people
    "live_figures",
    "job_counts",
    "find_jobs",
    "find_jobs_in_namespace",
    "get_job_by_key",
    "find_live",
    "find_ended",
    "find_notable",
    "find_revivable",
    "jobs_held_by",  # a pause of many jobs ends
    "pauses_over",
    "prune_default",  # history that has aged
    "prune_versions",
    "prune_jobs",
    "compact_job_counts",
}
"""Statements about rows of all slots, or of one that they find out themselves."""


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database whose tables are spread by slot."""
    made = await spread_database(databases)
    yield made
    await databases.drop(made)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Of all stores that the test opens; the hot path of each kept to one slot in the end."""
    with watching(monkeypatch) as watch:
        yield watch
    assert not watch.faults, watch.faults[0]


@pytest.fixture
async def nodes(url: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Store]]:
    """Two on one database."""
    opened = [await open_store(url) for _ in range(2)]
    for store in opened:
        name_calls(store, monkeypatch)
    yield opened
    for store in opened:
        await store.close()


async def jobs_in(store: Store, slots: Sequence[int], **changes: Any) -> list[StoredJob]:
    """A job in each of these slots."""
    wanted = [new_job(**changes) for _ in slots]
    made = await store.jobs.create(
        [
            new_job(**changes, job_id=job.job_id - job.job_id % store.slots + slot)
            for job, slot in zip(wanted, slots, strict=True)
        ],
        now=NOW,
    )
    return [job for job in made if job is not None]


def plan(*runs: Any, next_fire_at: int | None = NOW + HOUR) -> FirePlan:
    return FirePlan(next_fire_at=next_fire_at, runs=runs)


# ---------------------------------------------------------------- the statements


@pytest.fixture(scope="module")
def nodes_of_plans(databases: Databases) -> dict[str, list[dict[str, Any]]]:
    """How a database that was never analysed executes each statement in its form for one slot."""
    return asyncio.run(read_plans(databases))


async def read_plans(databases: Databases) -> dict[str, list[dict[str, Any]]]:
    url = await spread_database(databases)
    found: dict[str, list[dict[str, Any]]] = {}
    connection = await asyncpg.connect(url)
    try:
        for name, statement in BY_NAME.items():
            await connection.execute(BEGIN_READ.replace("READ ONLY", "READ WRITE"))
            await connection.execute(f"PREPARE planned AS {statement.text}")
            types = await connection.fetchval(
                "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'planned'"
            )
            assert types[statement.place] == "integer", name
            explained = await connection.fetchval(
                f"EXPLAIN (FORMAT JSON) EXECUTE planned({', '.join(VALUES[kind] for kind in types)})"
            )
            await connection.execute("DEALLOCATE planned")
            await connection.execute("ROLLBACK")
            found[name] = list(walk(json.loads(explained)[0]["Plan"]))
    finally:
        await connection.close()
        await databases.drop(url)
    return found


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from walk(child)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_rows_of_each_table_are_looked_up_by_the_one_slot(
    nodes_of_plans: dict[str, list[dict[str, Any]]], name: str
) -> None:
    """Not by a slot that another row has: Citus sends a statement to the server of a slot that it can read in it."""
    the_slot = re.compile(rf"\bslot = \${BY_NAME[name].place + 1}\b")
    for node in nodes_of_plans[name]:
        table = re.sub(r"_(default|\d{8})$", "", node.get("Relation Name", ""))
        if re.fullmatch(TABLES, table) and "Scan" in node["Node Type"]:
            assert the_slot.search(" ".join(node.get(key, "") for key in ("Index Cond", "Recheck Cond", "Filter"))), (
                node
            )


@pytest.mark.parametrize(
    ("name", "statement"),
    [(query[1], query[3]) for query in ALL if query[0] not in ("inspection", "moving", "partitions", "citus")],
)
def test_statement_about_a_spread_table_has_a_form_for_one_slot(name: str, statement: str) -> None:
    touches = re.search(rf"\b(FROM|JOIN|INTO|UPDATE|USING) ({TABLES})\b", statement) is not None
    assert (touches and name not in NOT_HOT) <= (name in BY_NAME), name
    if name in BY_NAME:
        assert not SLOTS.search(BY_NAME[name].text)
        assert "one slot:" not in BY_NAME[name].text


def test_ordinary_statements_know_nothing_of_it() -> None:
    for _noun, name, _comment, statement in ALL:
        assert "one slot" not in statement, name
    assert "slot" not in load_queries("leases")["first_ready"]


def test_statements_that_set_a_clock_or_make_a_run_claimable_are_known() -> None:
    sets_clock = {name for _, name, _, text in ALL if re.search(r"INSERT INTO clocks|UPDATE clocks", text)}
    assert sets_clock == MAKES_DUE
    readies = {
        name
        for _, name, _, text in ALL
        if "INSERT INTO live_runs" in text
        or re.search(r"UPDATE live_runs\b[^;]*?SET[^;]*?\b(ready_at|held|lane) = (?!NULL)", text.split("RETURNING")[0])
    }
    assert readies - {"lease_runs"} == MAKES_READY


# ---------------------------------------------------------------- the connection


@pytest.fixture
async def pooled(url: str) -> AsyncIterator[Any]:
    database = await connect(url, is_pooled=False)
    yield database.in_one_slot_mode(OneSlotMode(load_one_slot_statements(), looks=Looks(FEW_SLOTS)))
    await database.close()


async def test_transaction_of_a_slot_refuses_a_statement_about_another(pooled: Any) -> None:
    queries = load_queries("locks")

    async def look(connection: Connection, slots: list[int]) -> None:
        await connection.fetch(queries["lock_clocks"], slots, slots)

    await pooled.write(lambda connection: look(connection, [3, 3]), slot=3)
    await pooled.write(lambda connection: look(connection, [3, 4]))  # of nobody's slot: sent as it is
    for slots in ([3, 4], [4]):
        with pytest.raises(WrongSlotError):
            await pooled.write(lambda connection, slots=slots: look(connection, slots), slot=3)
    with pytest.raises(WrongSlotError):
        await pooled.write(lambda connection: connection.fetch(queries["lock_clock"], 4, 4), slot=3)


async def test_settings_are_sent_to_all_servers_and_plans_are_made_for_the_slot(pooled: Any) -> None:
    async def read(connection: Connection) -> list[str]:
        names = ("citus.propagate_set_commands", "plan_cache_mode", "enable_seqscan")
        return [str(await connection.fetchval(f"SHOW {name}")) for name in names]

    assert await pooled.read(read) == await pooled.write(read) == ["local", "force_custom_plan", "off"]


# ---------------------------------------------------------------- what the tests of this mode rest on


class Said:
    """A statement as asyncpg reports it."""

    def __init__(self, query: str, *args: object) -> None:
        self.query = query
        self.args = args


def test_watch_reads_slots_from_statements() -> None:
    assert slots_named("UPDATE jobs SET x = $1 WHERE slot = $2 AND job_id = $3", ("x", 7, 9)) == {7}
    assert slots_named(BY_NAME["move_clocks"].text, (5, [1], [2])) == {5}
    assert slots_named(BY_NAME["put_clock"].text, (5, 1, 2)) == {5}
    assert slots_named(BY_NAME["lease_runs"].text, (*range(9), 11)) == {11}


async def test_watch_finds_a_statement_and_a_transaction_of_two_slots(nodes: list[Store], watch: Watch) -> None:
    found = Watch()

    class Served:
        async def cancel(self, *said: Said) -> None:
            for one in said:
                found.hear(1, one)

    served = type("Nouns", (), {"fires": nodes[0].fires, "leases": Served()})()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("next_ready_at", "claim", "extend", "permit", "finish", "complete", "report", "release", "expire"):
            patch.setattr(Served, name, Served.cancel, raising=False)
        patch.setattr(Served, "revive", Served.cancel, raising=False)
        name_calls(served, patch)
        lock = BY_NAME["lock_clock"].text
        await served.leases.cancel(Said("BEGIN"), Said(lock, 1, 17), Said(lock, 1, 33), Said("COMMIT"))
        assert found.faults == []
        await served.leases.cancel(Said("BEGIN"), Said(lock, 2, 18), Said("ROLLBACK"))
        assert (found.faults, found.slots, found.statements) == ([], {1, 2}, 3)
        await served.leases.cancel(Said("BEGIN"), Said(lock, 1, 17), Said(lock, 2, 18), Said("COMMIT"))
        assert len(found.faults) == 1
        await served.leases.cancel(Said(load_queries("locks")["lock_clocks"], [1, 2], [17, 18]))
        await served.leases.cancel(Said(load_queries("leases")["lost_leases"], NOW, 5))
        assert len(found.faults) == 3


# ---------------------------------------------------------------- the hot path


async def test_life_of_many_runs_goes_over_many_slots_one_at_a_time(nodes: list[Store], url: str, watch: Watch) -> None:
    make = Maker(nodes[0])
    jobs = await jobs_in(nodes[0], [number % FEW_SLOTS for number in range(40)])
    batch = await make.fire(plan(new_run()))
    assert (batch.jobs, batch.runs, batch.next_due_at) == (40, 40, NOW + HOUR)
    leases = [new_lease() for _ in range(50)]
    claimed = await nodes[0].leases.claim(leases, now=NOW, queue=None)
    assert {run.key.job_id for run in claimed} == {job.job_id for job in jobs}
    held = [(run.key, run.token) for run in claimed]
    assert set(await nodes[1].leases.extend(held, now=NOW + SECOND, until=NOW + LEASE_US)) == {"live"}
    assert set(await nodes[1].leases.permit(held, now=NOW + SECOND)) == {"live"}
    finishes = [Finish(key, token, outcome()) for key, token in held[:30]]
    answers = await nodes[0].leases.finish(finishes, now=NOW + SECOND, decide=fail())
    assert [answer.key for answer in answers] == [item.key for item in finishes]
    assert await nodes[0].leases.release(held[30:35], now=NOW + SECOND) == 5
    lost = await nodes[1].leases.expire(now=NOW + 2 * LEASE_US, limit=9, decide=fail())
    assert {answer.key for answer in lost} == {key for key, _token in held[35:]}
    assert watch.slots == set(range(FEW_SLOTS))
    assert (await nodes[0].counts()).pending == 5


async def test_priorities_and_age_hold_within_a_slot(nodes: list[Store]) -> None:
    make = Maker(nodes[0])
    jobs = await jobs_in(nodes[0], [5] * 5)
    order = [
        await make.pending(job, NOW - age, priority=priority)
        for job, (priority, age) in zip(jobs, ((9, 1), (9, 0), (5, 3), (5, 2), (0, 9)), strict=True)
    ]
    for number in range(5):
        (claimed,) = await nodes[0].leases.claim([new_lease()], now=NOW, queue=None)
        assert claimed.key == order[number]


async def test_slot_whose_run_has_been_ready_longest_is_claimed_from_first(nodes: list[Store]) -> None:
    make = Maker(nodes[0])
    jobs = await jobs_in(nodes[0], range(4))
    keys = [await make.pending(job, NOW - number) for number, job in enumerate(jobs)]
    claimed = await nodes[0].leases.claim([new_lease() for _ in range(3)], now=NOW, queue=None)
    assert [run.key for run in claimed] == [keys[3], keys[2], keys[1]]


async def test_backlog_of_one_slot_does_not_hold_back_what_is_due_in_others(nodes: list[Store]) -> None:
    await jobs_in(nodes[0], [1] * 20, next_fire_at=NOW - HOUR)
    fresh = await jobs_in(nodes[0], [2, 3], next_fire_at=NOW)
    seen: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.job.job_id)
        return plan()

    batch = await nodes[0].fires.record_due(now=NOW, limit=9, latest=7, decide=decide)
    assert batch.jobs <= 9
    assert {job.job_id for job in fresh} <= set(seen)
    assert batch.next_due_at == NOW - HOUR


async def test_what_came_due_last_is_taken_of_each_slot_in_turn_where_there_is_no_share_for_each(
    nodes: list[Store],
) -> None:
    """While a backlog is recorded part by part of the slots: fresh fires of those without would wait for its end."""
    await jobs_in(nodes[0], [1, 2, 3, 4, 5, 6] * 9, next_fire_at=NOW - HOUR)
    fresh = await jobs_in(nodes[0], [0, 7, 8], next_fire_at=NOW)
    seen: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.job.job_id)
        return plan()

    for _ in range(3):
        await nodes[0].fires.record_due(now=NOW, limit=3, latest=3, decide=decide)
    assert {job.job_id for job in fresh} <= set(seen)
    assert len({job_id % nodes[0].slots for job_id in seen}) == 9


@pytest.mark.parametrize(("limit", "latest", "oldest_taken"), [(8, 7, 4), (2, 1, 2)])
async def test_in_no_slot_the_latest_take_all_of_its_share(
    nodes: list[Store], limit: int, latest: int, oldest_taken: int
) -> None:
    """However small that is: what is oldest would wait for as long as the backlog lasts."""
    oldest = await jobs_in(nodes[0], [1, 2, 3, 4], next_fire_at=NOW - HOUR)
    await jobs_in(nodes[0], [1, 2, 3, 4] * 5, next_fire_at=NOW)
    seen: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.job.job_id)
        return plan()

    await nodes[0].fires.record_due(now=NOW, limit=limit, latest=latest, decide=decide)
    assert len({job.job_id for job in oldest} & set(seen)) == oldest_taken


@pytest.mark.parametrize("is_listening", [True, False])
async def test_other_node_finds_what_was_written(
    nodes: list[Store], monkeypatch: pytest.MonkeyPatch, is_listening: bool
) -> None:
    """At once where it is told of it, else once it believes no longer what it knows."""
    heard = asyncio.Event()
    if is_listening:
        assert await nodes[1].listen(lambda _hint: heard.set())
    make = Maker(nodes[0])
    (job,) = await jobs_in(nodes[0], [7], next_fire_at=NOW + HOUR)
    assert await nodes[1].leases.next_ready_at(queue=None, now=NOW) is None
    assert await nodes[1].fires.next_due_at() == NOW + HOUR
    heard.clear()
    key = await make.pending(job)
    await nodes[0].jobs.create([new_job(next_fire_at=NOW)], now=NOW)
    if is_listening:
        async with asyncio.timeout(20):
            while (
                await nodes[1].leases.next_ready_at(queue=None, now=NOW) is None
                or await nodes[1].fires.next_due_at() != NOW
            ):
                await heard.wait()
                heard.clear()
    else:
        assert await nodes[1].leases.next_ready_at(queue=None, now=NOW) is None
        monkeypatch.setattr("onbeat.store.postgres.looks.BELIEVED_S", 0.0)
        assert await nodes[1].fires.next_due_at() == NOW
        assert await nodes[1].leases.next_ready_at(queue=None, now=NOW) == NOW
    (claimed,) = await nodes[1].leases.claim([new_lease()], now=NOW, queue=None)
    assert claimed.key == key


async def test_nodes_that_race_record_and_claim_everything_once(
    nodes: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onbeat.store.postgres.looks.BELIEVED_S", 0.0)
    await jobs_in(nodes[0], [number % FEW_SLOTS for number in range(64)])
    recorded: list[int] = []
    claimed: list[RunKey] = []

    async def fire(store: Store) -> None:
        while len(recorded) < 64:
            batch = await store.fires.record_due(now=NOW, limit=10, decide=lambda _due: plan(new_run()))
            recorded.extend([0] * batch.runs)

    async def claim(store: Store) -> None:
        while len(claimed) < 64:
            runs = await store.leases.claim([new_lease() for _ in range(5)], now=NOW, queue=None)
            claimed.extend(run.key for run in runs)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for store in nodes:
            group.create_task(fire(store))
            for _ in range(2):
                group.create_task(claim(store))
    assert len(recorded) == 64
    assert len(set(claimed)) == len(claimed) == 64


# ---------------------------------------------------------------- where to look


class Seconds:
    """A clock that stands still until it is told to go."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def end(looks: SlotLooks, slot: int, earliest: int | None) -> None:
    """A look into a slot in which nothing was written meanwhile."""
    look = looks.look(slot)
    look.found(earliest)
    look.end(is_believed=look.is_clean())


def test_nothing_is_known_at_first_and_not_for_long(seconds: Seconds) -> None:
    looks = SlotLooks(3, monotonic=seconds)
    assert looks.unknown() == [0, 1, 2]
    for slot, earliest in ((2, None), (0, 7), (1, 5)):
        end(looks, slot, earliest)
        seconds.now += BELIEVED_S / 10
    assert looks.unknown() == []
    assert (looks.earliest(), looks.earliest(among=[0, 2]), looks.earliest(among=[2])) == (5, 7, None)
    assert looks.due(now=7) == [1, 0]
    assert looks.due(now=6, among=[0]) == []
    seconds.now += BELIEVED_S
    assert looks.unknown() == [2, 0, 1]


def test_slot_that_was_written_to_is_looked_into_before_others(seconds: Seconds) -> None:
    looks = SlotLooks(3, monotonic=seconds)
    for slot in range(3):
        end(looks, slot, None)
    seconds.now += BELIEVED_S
    looks.forget([1])
    assert looks.has_changed()
    assert not looks.has_changed(among=[0, 2])
    assert looks.unknown()[0] == 1
    assert len(SlotLooks(MOST_LOOKS + 5, monotonic=seconds).unknown()) == MOST_LOOKS


def test_what_was_found_beside_a_write_is_used_and_not_trusted(seconds: Seconds) -> None:
    looks = SlotLooks(1, monotonic=seconds)
    look = looks.look(0)
    looks.forget([0])
    look.found(9)
    look.end(is_believed=look.is_clean())
    assert looks.due(now=9) == [0]
    assert looks.unknown() == [0]


def test_every_slot_gets_its_turn_however_many_are_written_to(seconds: Seconds) -> None:
    slots = 3 * MOST_LOOKS
    looks = SlotLooks(slots, monotonic=seconds)
    seen: set[int] = set()
    for _ in range(3):
        looks.forget(range(slots))
        for slot in looks.unknown():
            seen.add(slot)
            end(looks, slot, None)
        seconds.now += 0.01
    assert seen == set(range(slots))


def test_statement_forms_are_told_apart() -> None:
    assert isinstance(BY_NAME["lost_leases"], OneSlotStatement)
    assert BY_NAME["lost_leases"].is_added
    assert BY_NAME["move_clocks"].is_many
    assert not BY_NAME["lock_clock"].is_many
