"""Looks begin at a floor: nothing is hidden by it for good, and what it saves is counted beside an open snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

import asyncpg
import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Judge, Maker, never, new_lease, new_run
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.priority import STANDINGS
from onbeat.domain.states import JobState, RunState
from onbeat.services.handoff import new_tokens
from onbeat.store.open import open_store
from onbeat.store.postgres.clock_floor import ClockFloor
from onbeat.store.postgres.database import BEGIN_WRITE
from onbeat.store.postgres.floors import FULL_LOOK_AFTER_US, MOST_KEYS, SLACK_US, Floors
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.store import PostgresStore
from onbeat.store.values import EndRun, FirePlan, JobChange, RetryRun

Look: TypeAlias = Callable[[], Awaitable[None]]
Way: TypeAlias = Callable[[Maker, Look], Awaitable[RunKey]]

HOUR = 3_600 * SECOND
LONG_AGO = NOW - HOUR
RUNS = 3_000
CLAIMED_AT_ONCE = 100
QUERIES = load_queries("leases")

FILL = """
INSERT INTO jobs (
    slot, job_id, namespace, key, name, tags, version, state, definition, max_running, created_at, updated_at,
    folded_name
)
SELECT n % 256, n, 'default', NULL, 'Job ' || n, '[]', 1, 'active', '{}', 1, n, n, 'job ' || n
FROM generate_series(1, $1::bigint) AS n
"""
FILL_RUNS = """
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, max_run_us, created_at
)
SELECT n % 256, n, $2::bigint + n, 'pending', 'schedule', 1, 0, 0, $2 + n * $3::bigint, $2, 3600000000, $2
FROM generate_series(1, $1::bigint) AS n
"""


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[PostgresStore]]:
    """Two on one database."""
    opened = [await open_store(url) for _ in range(2)]
    assert all(isinstance(store, PostgresStore) for store in opened)
    yield [store for store in opened if isinstance(store, PostgresStore)]
    for store in opened:
        await store.close()


@pytest.fixture
def make(nodes: list[PostgresStore]) -> Maker:
    return Maker(nodes[0])


async def claimed(store: PostgresStore, *, now: int) -> list[RunKey]:
    """As a worker claims: a look, then a claim."""
    ready_at = await store.leases.next_ready_at(queue=None, now=now)
    if ready_at is None or ready_at > now:
        return []
    leases = [new_lease(until=now + LEASE_US) for _ in range(10)]
    return [run.key for run in await store.leases.claim(leases, now=now, queue=None)]


# ---------------------------------------------------------------- nothing is hidden for good


async def test_a_node_that_heard_nothing_finds_what_lies_below_its_floor_with_its_next_full_look(
    nodes: list[PostgresStore], make: Maker
) -> None:
    other = nodes[1]
    await make.pending(await make.job(), NOW)
    assert await claimed(other, now=NOW)
    key = await make.pending(await make.job(), LONG_AGO)
    assert await claimed(other, now=NOW + FULL_LOOK_AFTER_US - 1) == []
    assert await claimed(other, now=NOW + FULL_LOOK_AFTER_US) == [key]


async def test_claims_that_no_look_precedes_see_it_as_soon(nodes: list[PostgresStore], make: Maker) -> None:
    other = nodes[1]
    assert await claimed(other, now=NOW) == []
    key = await make.pending(await make.job(), LONG_AGO)
    claim = [new_lease(until=NOW + HOUR)]
    assert await other.leases.claim(claim, now=NOW + 1, queue=None) == []
    (run,) = await other.leases.claim(claim, now=NOW + FULL_LOOK_AFTER_US, queue=None)
    assert run.key == key


async def test_what_others_write_within_the_slack_is_found_at_once(nodes: list[PostgresStore], make: Maker) -> None:
    assert await claimed(nodes[1], now=NOW) == []
    key = await make.pending(await make.job(), NOW - SLACK_US)
    assert await claimed(nodes[1], now=NOW) == [key]


async def test_a_clock_that_is_set_back_begins_anew(nodes: list[PostgresStore], make: Maker) -> None:
    assert await claimed(nodes[1], now=NOW) == []
    key = await make.pending(await make.job(), LONG_AGO - HOUR)
    assert await claimed(nodes[1], now=LONG_AGO) == [key]


# Ways by which a run becomes claimable with a `ready_at` of long ago. `look` raises everybody's floors in between.


async def resumed(make: Maker, look: Look) -> RunKey:
    job = await make.job()
    key = await make.pending(job, LONG_AGO)
    paused = JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: paused)
    await look()
    active = JobChange(state=JobState.ACTIVE, next_fire_at=NOW + HOUR)
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: active)
    return key


async def retried_by_hand(make: Maker, look: Look) -> RunKey:
    key = await make.ended(await make.job(), state=RunState.FAILED)
    await look()
    await make.store.leases.revive(key, now=NOW, late_after=NOW, ready_at=LONG_AGO)
    return key


async def given_back(make: Maker, look: Look) -> RunKey:
    key, token = await make.running(await make.job(), LONG_AGO)
    await look()
    await make.store.leases.release([(key, token)], now=LONG_AGO)
    return key


async def lost(make: Maker, look: Look) -> RunKey:
    key, _token = await make.running(await make.job(), lease=new_lease(until=NOW - 1))
    await look()
    verdict = Judge(RetryRun(LONG_AGO, counts=True, spends=True))
    await make.store.leases.expire(now=NOW, limit=10, decide=verdict)
    return key


async def triggered(make: Maker, look: Look) -> RunKey:
    job = await make.job()
    await look()
    return await make.pending(job, LONG_AGO)


async def fired(make: Maker, look: Look) -> RunKey:
    job = await make.job(next_fire_at=LONG_AGO)
    await look()
    await make.fire(FirePlan(runs=(new_run(LONG_AGO),), next_fire_at=NOW + HOUR))
    return RunKey(job.job_id, LONG_AGO)


async def given_a_lane_by_a_larger_limit(make: Maker, look: Look) -> RunKey:
    job = await make.job()
    await make.running(job, LONG_AGO)
    key = await make.waiting(job, LONG_AGO + 1)
    await look()
    change = JobChange(definition='{"version": "second"}', max_running=2)
    await make.store.jobs.change(job.job_id, now=LONG_AGO, decide=lambda _job: change)
    return key


async def given_a_lane_by_a_cancel(make: Maker, look: Look) -> RunKey:
    job = await make.job()
    holder = await make.pending(job, LONG_AGO, ready_at=NOW + HOUR)
    key = await make.waiting(job, LONG_AGO + 1)
    await look()
    await make.store.leases.cancel(holder, now=LONG_AGO)
    return key


async def given_a_lane_by_a_finish(make: Maker, look: Look) -> RunKey:
    job = await make.job()
    holder, token = await make.running(job, LONG_AGO)
    key = await make.waiting(job, LONG_AGO + 1)
    await look()
    await make.finish(holder, token, now=LONG_AGO)
    return key


TOLD: list[Way] = [resumed, retried_by_hand, given_back, lost, triggered, fired, given_a_lane_by_a_larger_limit]
UNTOLD: list[Way] = [given_a_lane_by_a_cancel, given_a_lane_by_a_finish]
"""Others look often enough: what they find lies within the slack, unless the transaction took long."""


@pytest.mark.parametrize("way", TOLD + UNTOLD)
async def test_the_process_that_makes_a_run_claimable_sees_it_at_once(
    nodes: list[PostgresStore], make: Maker, way: Way
) -> None:
    async def look() -> None:
        assert await claimed(nodes[0], now=NOW) == []

    key = await way(make, look)
    assert await claimed(nodes[0], now=NOW) == [key]


@pytest.mark.parametrize("way", TOLD)
async def test_others_see_it_when_they_hear_of_it(nodes: list[PostgresStore], make: Maker, way: Way) -> None:
    heard = asyncio.Event()
    assert await nodes[1].listen(lambda hint: heard.set() if hint.ready_at is not None else None)

    async def look() -> None:
        async with asyncio.timeout(20):
            while await claimed(nodes[1], now=NOW):  # what was told before the floor is raised
                pass
        heard.clear()

    key = await way(make, look)
    async with asyncio.timeout(20):
        await heard.wait()
        while (found := await claimed(nodes[1], now=NOW)) == []:
            heard.clear()
            await heard.wait()
    assert found == [key]


@pytest.mark.parametrize("way", TOLD + UNTOLD)
async def test_others_that_hear_nothing_see_it_with_their_next_full_look(
    nodes: list[PostgresStore], make: Maker, way: Way
) -> None:
    async def look() -> None:
        assert await claimed(nodes[1], now=NOW) == []

    key = await way(make, look)
    assert await claimed(nodes[1], now=NOW) == []
    assert await claimed(nodes[1], now=NOW + FULL_LOOK_AFTER_US) == [key]


async def test_leases_that_end_below_the_floor_are_found_by_the_next_full_look(
    nodes: list[PostgresStore], make: Maker
) -> None:
    assert await nodes[1].leases.expire(now=NOW, limit=10, decide=never) == []
    key, _token = await make.running(await make.job(), LONG_AGO, lease=new_lease(until=LONG_AGO))
    verdict = Judge(EndRun(RunState.FAILED))
    assert await nodes[1].leases.expire(now=NOW + 1, limit=10, decide=verdict) == []
    assert await nodes[1].leases.count_overdue(now=NOW + 1) == 0
    (answer,) = await nodes[1].leases.expire(now=NOW + FULL_LOOK_AFTER_US, limit=10, decide=verdict)
    assert answer.key == key


async def test_a_lease_that_another_transaction_holds_keeps_the_floor_where_it_is(
    url: str, nodes: list[PostgresStore], make: Maker
) -> None:
    key, _token = await make.running(await make.job(), lease=new_lease(until=LONG_AGO))
    holder = await asyncpg.connect(url)
    async with holder.transaction():
        await holder.execute("SELECT 1 FROM live_runs FOR UPDATE")
        assert await nodes[1].leases.expire(now=NOW, limit=10, decide=never) == []
    await holder.close()
    (answer,) = await nodes[1].leases.expire(now=NOW + 1, limit=10, decide=Judge(EndRun(RunState.FAILED)))
    assert answer.key == key


# ---------------------------------------------------------------- what it saves


class Visits:
    """How many entries of the indexes of live_runs a statement reads, dead ones too, by the server's own count: the
    same whatever else the machine does.
    """

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def of(self, statement: str, *bindings: object) -> int:
        await self._connection.execute(BEGIN_WRITE)
        before = await self._read_so_far()
        await self._connection.fetch(QUERIES[statement], *bindings)
        read = await self._read_so_far() - before
        await self._connection.execute("ROLLBACK")
        return read

    async def _read_so_far(self) -> int:
        """On this connection, since the server took its counts last: between two transactions."""
        return int(
            await self._connection.fetchval(
                "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index "
                "WHERE indrelid = 'live_runs'::regclass"
            )
        )

    async def of_look(self, floors: Sequence[int]) -> int:
        return await self.of("first_ready", STANDINGS, floors, "")

    async def of_claim(self, floors: Sequence[int], *, now: int) -> int:
        return await self.of("lease_runs", STANDINGS, floors, "", now, 1, 0, new_tokens(1), ["w"], [now])


@pytest.fixture
async def connection(url: str, nodes: list[PostgresStore]) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """To a database in which runs were ready, one after the other, in the minute before NOW."""
    connection = await asyncpg.connect(url)
    await connection.execute(FILL, RUNS)
    await connection.execute(FILL_RUNS, RUNS, NOW - 60 * SECOND, 60 * SECOND // RUNS)
    yield connection
    await connection.close()


@pytest.fixture
async def snapshot(url: str, nodes: list[PostgresStore]) -> AsyncIterator[None]:
    """Of a transaction that was there before everything else and lasts: nothing that it could see is taken away."""
    connection = await asyncpg.connect(url)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    yield
    await connection.close()


async def claim_all(store: PostgresStore) -> None:
    """In the order of time, as workers do."""
    left, now = RUNS, NOW - 60 * SECOND
    while left:
        now += CLAIMED_AT_ONCE * 60 * SECOND // RUNS
        ready_at = await store.leases.next_ready_at(queue=None, now=now)
        assert ready_at is not None
        leases = [new_lease(until=now + 1) for _ in range(CLAIMED_AT_ONCE)]
        left -= len(await store.leases.claim(leases, now=now, queue=None))


@pytest.mark.usefixtures("snapshot")
async def test_claims_beside_an_open_snapshot_visit_what_came_since_the_last_look(
    nodes: list[PostgresStore], connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await claim_all(nodes[0])
    visits, floors = Visits(connection), nodes[0].leases.ready_floors.of(None, now=NOW)
    nowhere = (0,) * len(STANDINGS)
    assert await visits.of_look(nowhere) >= RUNS  # what there is to be saved
    assert await visits.of_claim(nowhere, now=NOW) >= RUNS
    # What was claimed within the slack and since the last look, at most once per walk: look, lines, taken.
    recent = RUNS * SLACK_US // (60 * SECOND) + CLAIMED_AT_ONCE
    assert await visits.of_look(floors) <= recent
    assert await visits.of_claim(floors, now=NOW) <= 2 * recent


@pytest.mark.usefixtures("snapshot")
async def test_a_backlog_of_another_priority_keeps_no_floor_down(
    nodes: list[PostgresStore], connection: asyncpg.Connection[asyncpg.Record], make: Maker
) -> None:
    await make.pending(await make.job(), LONG_AGO, priority=-55)
    await nodes[0].leases.next_ready_at(queue=None, now=NOW - 60 * SECOND)
    await claim_all(nodes[0])
    floors = dict(zip(STANDINGS, nodes[0].leases.ready_floors.of(None, now=NOW), strict=True))
    assert floors[5] >= NOW - 2 * SLACK_US - 60 * SECOND * CLAIMED_AT_ONCE // RUNS
    assert floors[-55] <= NOW


@pytest.mark.usefixtures("snapshot")
async def test_the_reaper_beside_an_open_snapshot_walks_over_no_leases_of_long_ago(
    nodes: list[PostgresStore], connection: asyncpg.Connection[asyncpg.Record]
) -> None:
    await claim_all(nodes[0])
    await connection.execute("DELETE FROM live_runs")  # as their ends do; the leases' entries stay
    assert await nodes[0].leases.expire(now=NOW + SECOND, limit=10, decide=never) == []
    visits, floors = Visits(connection), nodes[0].leases.overdue_floors.of(None, now=NOW + SECOND)
    for statement in ("lost_leases", "overdue_retries"):
        full = await visits.of(statement, 0, NOW + SECOND, 10)
        assert statement == "overdue_retries" or full >= RUNS
        assert await visits.of(statement, max(floors), NOW + SECOND, 10) <= CLAIMED_AT_ONCE
    assert await visits.of("first_overdue", floors[0], NOW + SECOND, floors[1]) <= CLAIMED_AT_ONCE
    assert await visits.of("count_overdue", floors[0], NOW + SECOND) < CLAIMED_AT_ONCE


# ---------------------------------------------------------------- floors by themselves


def look(floors: Floors, found: int | None, *, now: int, key: str = "a") -> tuple[int, ...]:
    """A look that leaves `found`. Answer: where it began."""
    with floors.looking(key, now=now) as looking:
        looking.found = [found]
    return looking.floors


def test_a_floor_is_what_the_last_look_left_and_no_later_than_the_slack() -> None:
    floors = Floors(lines=1)
    assert look(floors, None, now=NOW) == (0,)
    assert look(floors, NOW - HOUR, now=NOW) == (NOW - SLACK_US,)
    assert look(floors, None, now=NOW) == (NOW - HOUR,)
    assert floors.of("another", now=NOW) == (0,)


def test_a_look_that_fails_teaches_nothing() -> None:
    floors = Floors(lines=1)
    with pytest.raises(OSError), floors.looking("a", now=NOW):
        raise OSError
    assert floors.of("a", now=NOW) == (0,)
    assert not floors._under_way


def test_what_comes_while_a_look_is_under_way_is_not_passed_by_it() -> None:
    floors = Floors(lines=1)
    look(floors, None, now=NOW)
    with floors.looking("a", now=NOW + 2 * SLACK_US) as looking:
        floors.lower(NOW - SLACK_US)  # committed after the look's snapshot
        looking.found = [None]
    assert floors.of("a", now=NOW + 2 * SLACK_US) == (NOW - SLACK_US,)
    look(floors, None, now=NOW + 2 * SLACK_US)
    assert floors.of("a", now=NOW + 2 * SLACK_US) == (NOW + SLACK_US,)


def test_a_look_that_began_at_a_floor_hides_nothing_of_what_a_full_one_has_left_meanwhile() -> None:
    floors = Floors(lines=1)
    look(floors, NOW, now=NOW)
    later = NOW + FULL_LOOK_AFTER_US
    with floors.looking("a", now=later - 1) as looking:
        assert looking.floors > (NOW - HOUR,)
        assert look(floors, NOW - HOUR, now=later) == (0,)
        looking.found = [None]
    assert floors.of("a", now=later) == (NOW - HOUR,)
    assert look(floors, None, now=later + 1) == (NOW - HOUR,)
    assert floors.of("a", now=later + 1) == (later + 1 - SLACK_US,)


def test_the_same_holds_for_clocks() -> None:
    floor = ClockFloor()
    floor.note(None, began_at=0, earliest=NOW, now=NOW)
    later = NOW + FULL_LOOK_AFTER_US
    began_at = floor.of(None, now=later - 1)
    assert began_at > NOW - HOUR
    assert floor.of(None, now=later) == 0
    floor.note(None, began_at=0, earliest=NOW - HOUR, now=later)
    floor.note(None, began_at=began_at, earliest=None, now=later - 1)
    assert floor.of(None, now=later) == NOW - HOUR
    floor.note(None, began_at=NOW - HOUR, earliest=None, now=later + 1)
    assert floor.of(None, now=later + 1) == later + 1 - SLACK_US


def test_there_is_a_full_look_every_so_often_however_often_there_are_others() -> None:
    floors = Floors(lines=1)
    began = [look(floors, None, now=NOW + step * FULL_LOOK_AFTER_US // 4)[0] for step in range(9)]
    assert [place for place, floor in enumerate(began) if floor == 0] == [0, 4, 8]


def test_a_clock_that_was_set_back_by_more_than_the_slack_begins_anew() -> None:
    floors = Floors(lines=1)
    look(floors, None, now=NOW)
    assert floors.of("a", now=NOW - SLACK_US) == (NOW - SLACK_US,)  # two claims at once read their clocks in any order
    assert floors.of("a", now=NOW - SLACK_US - 1) == (0,)


def test_any_number_of_keys_is_asked_for_and_a_limited_number_remembered() -> None:
    floors = Floors(lines=1)
    for number in range(3 * MOST_KEYS):
        look(floors, None, now=NOW, key=str(number))
    assert len(floors._known) <= MOST_KEYS
