"""Hints on PostgreSQL: what one process writes, the others hear of at once, and nothing depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Judge, Maker, never, new_run
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState
from onbeat.store.contract import Store
from onbeat.store.hints import SOON_US, Hint
from onbeat.store.open import open_store
from onbeat.store.values import FirePlan, JobChange, RetryRun

HOUR = 3_600 * SECOND
CLOCK = NOW + HOUR
"""Of jobs that nobody is told of."""


class Ear:
    """What one store is told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._heard: asyncio.Queue[Hint] = asyncio.Queue()

    async def listen(self) -> bool:
        return await self.store.listen(self._heard.put_nowait)

    async def next(self) -> Hint:
        async with asyncio.timeout(20):
            return await self._heard.get()


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[Store]]:
    """Two on one database."""
    opened = [await open_store(url) for _ in range(2)]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def make(nodes: list[Store]) -> Maker:
    return Maker(nodes[0])


@pytest.fixture
async def ear(nodes: list[Store]) -> Ear:
    """The other one's."""
    ear = Ear(nodes[1])
    assert await ear.listen()
    return ear


async def last_word(make: Maker, ear: Ear) -> RunKey:
    """Something that is always told: what was told before it has arrived before it."""
    key, _token = await make.running(await make.job(next_fire_at=CLOCK))
    assert await make.store.leases.cancel(key, now=NOW) is RunState.RUNNING
    return key


async def test_a_run_that_waits_for_a_worker_is_told(make: Maker, ear: Ear) -> None:
    await make.pending(await make.job(next_fire_at=CLOCK))
    assert await ear.next() == Hint(ready_at=NOW)


async def test_a_fire_that_was_handed_over_is_not_told_and_one_that_waits_is(make: Maker, ear: Ear) -> None:
    job = await make.job(next_fire_at=NOW)
    assert await ear.next() == Hint(due=(job.job_id % make.store.slots,))
    await make.fire(FirePlan(runs=(new_run(lane=0),), next_fire_at=CLOCK))
    assert await ear.next() == Hint(ready_at=NOW)


async def test_runs_that_come_back_are_told(make: Maker, ear: Ear) -> None:
    key, token = await make.running(await make.job(next_fire_at=CLOCK))
    await make.store.leases.release([(key, token)], now=NOW)
    assert await ear.next() == Hint(ready_at=NOW)
    assert await make.claim_one() is not None
    await make.store.leases.expire(
        now=NOW + LEASE_US + SECOND, limit=10, decide=Judge(RetryRun(NOW, counts=True, spends=True))
    )
    assert await ear.next() == Hint(ready_at=NOW)


async def test_clocks_that_are_due_soon_are_told_with_their_slots(make: Maker, ear: Ear) -> None:
    slots = make.store.slots
    later = await make.job(next_fire_at=NOW + SOON_US + 1)
    soon = await make.job(next_fire_at=NOW + SOON_US)
    assert await ear.next() == Hint(due=(soon.job_id % slots,))
    assert later.next_fire_at is not None


async def test_a_run_that_was_asked_to_stop_is_told_by_name(make: Maker, ear: Ear) -> None:
    key = await last_word(make, ear)
    assert await ear.next() == Hint(stopped=(key,))


async def test_runs_of_a_job_that_is_paused_with_cancel_are_told_by_name(make: Maker, ear: Ear) -> None:
    job = await make.job(next_fire_at=CLOCK, max_running=3)
    keys = [(await make.running(job, NOW + lane, lane=lane))[0] for lane in range(3)]
    change = JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None, cancels_running=True)
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: change)
    hint = await ear.next()
    assert (hint.ready_at, sorted(hint.stopped)) == (None, keys)


async def test_runs_of_a_job_that_is_resumed_are_told(make: Maker, ear: Ear) -> None:
    job = await make.job(next_fire_at=CLOCK)
    await make.pending(job, NOW - SECOND)
    assert await ear.next() == Hint(ready_at=NOW - SECOND)
    paused = JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)
    active = JobChange(state=JobState.ACTIVE, next_fire_at=CLOCK)
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: paused)
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: active)
    assert await ear.next() == Hint(ready_at=NOW - SECOND)


async def test_nobody_hears_of_his_own_writes(make: Maker, nodes: list[Store], ear: Ear) -> None:
    own = Ear(nodes[0])
    assert await own.listen()
    await make.pending(await make.job(next_fire_at=CLOCK))
    assert await ear.next() == Hint(ready_at=NOW)
    await Maker(nodes[1]).pending(await make.job(next_fire_at=CLOCK), NOW + SECOND)
    assert await own.next() == Hint(ready_at=NOW + SECOND)
    assert own._heard.empty()


async def test_where_nobody_is_there_nothing_is_told(make: Maker, ear: Ear) -> None:
    make.store.hint_to_others(False)
    await make.pending(await make.job(next_fire_at=NOW))
    make.store.hint_to_others(True)
    key = await last_word(make, ear)
    assert await ear.next() == Hint(stopped=(key,))


async def test_what_is_rolled_back_is_not_told(make: Maker, ear: Ear) -> None:
    job = await make.job(next_fire_at=CLOCK)
    with pytest.raises(AssertionError, match="asked for a decision"):
        await make.store.fires.insert_run(job.job_id, now=NOW, decide=never)  # type: ignore[arg-type]
    await make.pending(job)
    assert await ear.next() == Hint(ready_at=NOW)
    assert ear._heard.empty()


async def test_a_connection_that_the_server_ends_is_made_anew(make: Maker, url: str, ear: Ear) -> None:
    administrator = await asyncpg.connect(url)
    ended = await administrator.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    await administrator.close()
    assert ended
    async with asyncio.timeout(20):
        while await ear.listen():  # until it is missed
            await asyncio.sleep(0.01)
        while not await ear.listen():
            await asyncio.sleep(0.01)
    await make.pending(await make.job(next_fire_at=CLOCK))
    assert await ear.next() == Hint(ready_at=NOW)


async def test_what_others_say_on_the_channel_is_passed_over(make: Maker, url: str, ear: Ear) -> None:
    stranger = await asyncpg.connect(url)
    for payload in ("", "hello", '{"sender": 1}', '{"sender": "x", "hint": {"stopped": [["a", 1]]}}'):
        await stranger.execute("SELECT pg_notify('onbeat', $1)", payload)
    await stranger.execute(
        "SELECT pg_notify('onbeat', $1)", '{"sender": "x", "hint": {"ready_at": 7, "of a later release": 1}}'
    )
    await stranger.close()
    assert await ear.next() == Hint(ready_at=7)


async def test_behind_a_pooler_nobody_listens_and_nobody_tells(url: str, ear: Ear, make: Maker) -> None:
    pooled = await open_store(f"{url}?pooled=1")
    assert await pooled.listen(lambda hint: None) is False
    pooled.hint_to_others(True)
    await Maker(pooled).pending(await make.job(next_fire_at=CLOCK))
    key = await last_word(make, ear)
    assert await ear.next() == Hint(stopped=(key,))
    await pooled.close()


async def test_a_database_that_does_not_answer_is_not_listened_to_and_no_error(url: str) -> None:
    store = await open_store(url)
    administrator = await asyncpg.connect(url.rpartition("/")[0] + "/postgres")
    name = url.rpartition("/")[2]
    await administrator.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    assert await store.listen(lambda hint: None) is False
    await administrator.execute(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")
    assert await store.listen(lambda hint: None) is True
    await administrator.close()
    await store.close()
