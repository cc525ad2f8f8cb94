"""Two nodes on one PostgreSQL: what one of them records is claimed at the other, by a hint or by looking."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from tests.support.postgres import Databases
from tests.support.scheduler import START, Scheduler, every, scheduling

from onbeat.clock import ManualClock
from onbeat.domain.ids import RunKey
from onbeat.services import readiness
from onbeat.services.assignment import Assignment
from onbeat.services.readiness import LOOK_EVERY_S
from onbeat.store.hints import Hint

NEVER_S = 3_600.0


@pytest.fixture
async def nodes(databases: Databases) -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """The one that dispatches, and the one whose workers wait."""
    url, clock = await databases.create(), ManualClock(START)
    async with scheduling(url, clock=clock) as first, scheduling(url, clock=clock) as second:
        yield first, second
    await databases.drop(url)


async def waiting(node: Scheduler, monkeypatch: pytest.MonkeyPatch) -> asyncio.Task[list[Assignment]]:
    """A claim that has found nothing and waits."""
    next_ready_at, has_looked = node.store.leases.next_ready_at, asyncio.Event()

    async def noted(*, queue: str | None, now: int) -> int | None:
        found = await next_ready_at(queue=queue, now=now)
        has_looked.set()
        return found

    monkeypatch.setattr(node.store.leases, "next_ready_at", noted)
    claiming = asyncio.create_task(node.leasing_for("w").claim(queue=None, limit=5, wait_s=NEVER_S))
    async with asyncio.timeout(20):
        await has_looked.wait()
    assert node.handoff._parked
    return claiming


async def granted(claiming: asyncio.Task[list[Assignment]]) -> list[RunKey]:
    async with asyncio.timeout(20):
        return [assignment.key for assignment in await claiming]


async def test_a_run_of_one_node_is_claimed_at_another_by_a_hint(
    nodes: tuple[Scheduler, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", NEVER_S)  # by looking, it would be found in an hour
    first, second = nodes
    assert await second.hints.listen()
    job = await first.job(every(3_600))
    claiming = await waiting(second, monkeypatch)
    run = await first.runs.trigger(job.job_id, payload=None)
    assert await granted(claiming) == [run.key]


async def test_a_fire_of_one_node_is_claimed_at_another_by_a_hint(
    nodes: tuple[Scheduler, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", NEVER_S)
    first, second = nodes
    assert await second.hints.listen()
    job = await first.job(every(10))
    claiming = await waiting(second, monkeypatch)
    first.clock.advance(10)
    assert (await first.dispatch.fire_due()).batch.pending == 1
    assert [key.job_id for key in await granted(claiming)] == [job.job_id]


async def test_without_hints_it_is_found_by_looking(
    nodes: tuple[Scheduler, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nodes
    job = await first.job(every(3_600))
    claiming = await waiting(second, monkeypatch)
    run = await first.runs.trigger(job.job_id, payload=None)
    assert await granted(claiming) == [run.key]


async def test_claims_that_wait_look_together_and_at_most_four_times_a_second(
    nodes: tuple[Scheduler, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    _first, second = nodes
    looks: list[float] = []
    next_ready_at = second.store.leases.next_ready_at

    async def noted(*, queue: str | None, now: int) -> int | None:
        found = await next_ready_at(queue=queue, now=now)
        looks.append(asyncio.get_running_loop().time())
        return found

    monkeypatch.setattr(second.store.leases, "next_ready_at", noted)
    claims = [asyncio.create_task(second.leasing_for(str(n)).claim(queue=None, limit=1, wait_s=60)) for n in range(8)]
    async with asyncio.timeout(20):
        while len(looks) < len(claims) + 3:
            await asyncio.sleep(0.01)
    together = looks[len(claims) :]  # after the first look of each
    assert all(later - earlier >= LOOK_EVERY_S for earlier, later in itertools.pairwise(together))
    second.handoff.close()
    await asyncio.gather(*claims)


async def test_a_run_that_is_ready_later_is_claimed_when_it_is_and_not_at_the_next_look(
    nodes: tuple[Scheduler, Scheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    _first, second = nodes
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", NEVER_S)
    look = await second.readiness.look(None, now=START)
    assert look.next_look_s(now=START) > 60
    ahead = readiness.ReadyLook(START + 2_000_000, look.wakes, look.looked_at)
    assert ahead.next_look_s(now=START) == 2.0


async def test_a_new_job_wakes_the_dispatcher_that_serves_its_slot_and_no_other(
    nodes: tuple[Scheduler, Scheduler],
) -> None:
    memberships = [node.membership_of(name) for node, name in zip(nodes, "ab", strict=True)]
    for membership in [*memberships, *memberships]:
        await membership.beat()
    first, second = nodes
    for node in nodes:
        await node.dispatch_wake.wait(0)  # their shares were news
    job = await first.job(every(3_600))
    slot = job.job_id % first.store.slots
    for node in nodes:
        node.hints.heed(Hint(due=(slot,)))
    woken = [await node.dispatch_wake.wait(0) for node in nodes]
    assert woken[1] is second.dispatch.serves_any((slot,))
    assert second.dispatch.serves_any((slot,)) is not first.dispatch.serves_any((slot,))


async def test_a_run_that_may_have_been_stopped_elsewhere_is_doubted_and_not_cancelled(
    nodes: tuple[Scheduler, Scheduler],
) -> None:
    _first, second = nodes
    doubted: list[RunKey] = []
    cancelled: list[RunKey] = []
    second.running.listen_for_doubt(doubted.append)
    second.running.listen(cancelled.append)
    second.hints.heed(Hint(stopped=(RunKey(1, 2),)))
    assert (doubted, cancelled) == ([RunKey(1, 2)], [])


async def test_a_node_that_is_alone_hints_at_nothing(nodes: tuple[Scheduler, Scheduler]) -> None:
    first, second = nodes
    heard: list[Hint] = []
    assert await second.store.listen(heard.append)
    alone = first.membership_of("a")
    await alone.beat()
    job = await first.job(every(3_600))
    await first.runs.trigger(job.job_id, payload=None)
    await second.membership_of("b").beat()
    await alone.beat()
    await first.runs.trigger(job.job_id, payload=None)
    async with asyncio.timeout(20):
        while not heard:
            await asyncio.sleep(0.01)
    assert heard == [Hint(ready_at=START)]
