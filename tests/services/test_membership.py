"""Several nodes on one database: who serves which slots, and that no fire is lost or doubled when one goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.support.scheduler import RECOVERY_PER_S, SECOND, Scheduler, every, scheduling
from tests.support.sharing import sharing

from onbeat.domain.ids import RunKey
from onbeat.loops.dispatcher import LOOK_AMONG_NODES_EVERY_S
from onbeat.loops.membership import SHARED_BEAT_EVERY_S, SWEEP_EVERY_S
from onbeat.services.dispatch import SWEEP_AFTER_US
from onbeat.services.membership import DEAD_AFTER_S, Membership
from onbeat.store.values import Page, RunFilter

NAMES = ("a", "b", "c")
JOBS = 60


class Node:
    """A scheduler and its place among the others."""

    def __init__(self, name: str, scheduler: Scheduler) -> None:
        self.name = name
        self.scheduler = scheduler
        self.membership: Membership = scheduler.membership_of(name)

    async def fire(self) -> int:
        """One batch of its own slots. Answer: of how many jobs."""
        return (await self.scheduler.dispatch.fire_due()).batch.jobs

    async def sweep(self) -> int:
        report = await self.scheduler.dispatch.sweep()
        return 0 if report is None else report.batch.jobs


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[Node]]:
    """Three that know each other, and jobs that fire each second."""
    async with sharing(tmp_path / "onbeat.db", nodes=len(NAMES)) as schedulers:
        together = [Node(name, scheduler) for name, scheduler in zip(NAMES, schedulers, strict=True)]
        for _ in range(2):  # the first of them learns of the others with its second beat
            for node in together:
                await node.membership.beat()
        for _ in range(JOBS):
            await schedulers[0].job(every(1), overlap="allow", max_running=100)
        yield together


def pass_time(nodes: list[Node], seconds: float) -> None:
    nodes[0].scheduler.clock.advance(seconds)


async def beat(*nodes: Node) -> None:
    for node in nodes:
        await node.membership.beat()


async def recorded(nodes: list[Node]) -> Counter[int]:
    """Records by planned instant."""
    store = nodes[0].scheduler.store
    found = await store.runs.find(RunFilter(), Page(limit=1_000))
    return Counter(run.key.scheduled_at for run in found)


async def test_nodes_share_the_slots_and_fire_each_job_once(nodes: list[Node]) -> None:
    pass_time(nodes, 1)
    fired = [await node.fire() for node in nodes]
    assert sum(fired) == JOBS
    assert min(fired) > 0
    assert [await node.fire() for node in nodes] == [0, 0, 0]
    assert set((await recorded(nodes)).values()) == {JOBS}


async def test_slots_of_a_node_that_died_are_shared_out_and_those_of_the_living_stay(nodes: list[Node]) -> None:
    *living, dead = nodes
    await beat(*nodes)
    pass_time(nodes, DEAD_AFTER_S - 1)
    await beat(*living)
    fired = [await node.fire() for node in living]
    assert sum(fired) == JOBS - await dead.fire()  # it may be merely slow
    pass_time(nodes, 1)
    await beat(*living)
    after = [await node.fire() for node in living]
    assert sum(after) == JOBS
    assert all(more >= fewer for more, fewer in zip(after, fired, strict=True))


async def test_a_node_that_leaves_in_order_hands_over_with_the_next_beat_and_beats_no_more(nodes: list[Node]) -> None:
    *staying, leaving = nodes
    await leaving.membership.leave()
    await leaving.membership.beat()
    await beat(*staying)
    pass_time(nodes, 1)
    assert sum([await node.fire() for node in staying]) == JOBS
    found = await nodes[0].scheduler.store.nodes.find(seen_after=0)
    assert [node.name for node in found] == ["a", "b"]


async def test_the_last_node_serves_all_slots_without_a_filter(nodes: list[Node]) -> None:
    last, *others = nodes
    for node in others:
        await node.membership.leave()
    await beat(last)
    assert last.scheduler.dispatch.is_alone
    pass_time(nodes, 1)
    assert await last.fire() == JOBS
    pass_time(nodes, 60)
    assert await last.sweep() == 0


async def test_what_is_overdue_in_slots_of_a_node_that_stands_still_is_swept_by_another(nodes: list[Node]) -> None:
    awake, still, other = nodes
    pass_time(nodes, 1)
    fired = await awake.fire() + await other.fire()
    pass_time(nodes, SWEEP_AFTER_US / SECOND - 0.1)
    await beat(*nodes)  # it beats, and does not fire
    assert await awake.sweep() == 0
    pass_time(nodes, 0.1)
    assert await other.fire() + await awake.fire() == fired
    assert await awake.sweep() == JOBS - fired
    assert await other.sweep() == 0
    assert await still.fire() == 0
    assert set((await recorded(nodes)).values()) == {JOBS}


async def test_nodes_that_disagree_about_who_lives_fire_nothing_twice(nodes: list[Node]) -> None:
    first, second, third = nodes
    for node in (second, third):
        await node.membership.leave()
    await beat(first)  # serves everything; the others go on as if they had not left
    for _ in range(5):
        pass_time(nodes, 1)
        for node in (second, first, third):
            await node.fire()
    assert set((await recorded(nodes)).values()) == {JOBS}


async def test_a_change_of_share_wakes_the_dispatcher_and_divides_the_recovery_rate(nodes: list[Node]) -> None:
    first, second, third = nodes
    assert await first.scheduler.dispatch_wake.wait(0)
    await beat(first)
    assert not await first.scheduler.dispatch_wake.wait(0)  # nothing changed
    recovery = first.scheduler.recovery
    now = first.scheduler.clock.now()
    begun = recovery.begin(now=now)
    places = Counter(begun.place(RunKey(1, number), earliest=now) // SECOND for number in range(100))
    assert max(places.values()) == RECOVERY_PER_S // len(NAMES)
    for node in (second, third):
        await node.membership.leave()
    await beat(first)
    assert await first.scheduler.dispatch_wake.wait(0)
    begun = recovery.begin(now=now)
    later = now + 3_600 * SECOND
    places = Counter(begun.place(RunKey(2, number), earliest=later) // SECOND for number in range(100))
    assert max(places.values()) == RECOVERY_PER_S


async def test_workers_among_the_processes_take_no_slots(nodes: list[Node]) -> None:
    first, *others = nodes
    store = first.scheduler.store
    (row, *_) = await store.nodes.find(seen_after=0)
    await store.nodes.beat(msgspec.structs.replace(row, name="worker", kind="worker"))
    await beat(first)
    pass_time(nodes, 1)
    assert sum([await node.fire() for node in (first, *others)]) == JOBS


async def test_a_node_that_has_the_database_to_itself_beats_and_looks_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduling(tmp_path / "onbeat.db") as scheduler:
        membership = scheduler.membership_of("a")
        await membership.beat()
        (row,) = await scheduler.store.nodes.find(seen_after=0)
        assert (row.name, row.kind, row.seen_at) == ("a", "node", scheduler.clock.now())

        async def unexpected(*, seen_after: int) -> None:
            raise AssertionError("looked for others")

        monkeypatch.setattr(scheduler.store.nodes, "find", unexpected)
        await membership.beat()
        assert scheduler.dispatch.is_alone


def test_three_beats_are_missed_before_a_node_is_dead_and_five_seconds_are_kept() -> None:
    assert DEAD_AFTER_S >= 3 * SHARED_BEAT_EVERY_S
    assert DEAD_AFTER_S + SHARED_BEAT_EVERY_S + LOOK_AMONG_NODES_EVERY_S < 5
    assert SWEEP_AFTER_US / SECOND + SWEEP_EVERY_S < 5
