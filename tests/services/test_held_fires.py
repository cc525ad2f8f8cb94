"""How many fires a batch records: as many as workers take while they come and go, and all of them where nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.domain.rendezvous import Share
from onbeat.services import dispatch as dispatch_module
from onbeat.services.dispatch import BATCH, BEHIND_US, HELD_BESIDE_IDLE_US, HELD_US
from onbeat.services.handoff import Handoff
from onbeat.store.values import FiredBatch

JOBS = 10


@pytest.fixture
async def scheduler(data: str) -> AsyncIterator[Scheduler]:
    """Ten jobs are due now."""
    async with scheduling(data) as scheduler:
        for _ in range(JOBS):
            await scheduler.job(every(3_600))
        scheduler.clock.set(START + 3_600 * SECOND)
        yield scheduler


async def test_a_batch_is_as_large_as_the_room_of_those_who_wait(scheduler: Scheduler) -> None:
    scheduler.handoff.park("worker", queue=None, capacity=4)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (4, 0, True)


async def test_the_rest_waits_for_a_worker_that_comes_back(scheduler: Scheduler) -> None:
    scheduler.handoff.park("worker", queue=None, capacity=4)
    await scheduler.dispatch.fire_due()
    firing = asyncio.create_task(scheduler.dispatch.fire_due())
    await asyncio.sleep(0)
    scheduler.handoff.park("worker", queue=None, capacity=100)
    report = await firing
    assert (len(report.batch.leased), report.batch.pending, report.full) == (6, 0, False)


async def test_without_a_worker_everything_is_recorded_at_once(scheduler: Scheduler) -> None:
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (0, JOBS, False)


async def test_a_worker_that_does_not_come_back_holds_nothing_up(scheduler: Scheduler) -> None:
    scheduler.handoff.park("worker", queue=None, capacity=4)
    await scheduler.dispatch.fire_due()
    report = await scheduler.dispatch.fire_due()  # the clock of the test stands still: only the worker's is waited for
    assert (len(report.batch.leased), report.batch.pending, report.full) == (0, 6, False)


@pytest.mark.parametrize(
    ("share", "held_us"),
    [(None, HELD_US), (Share(nodes=2, own=tuple(range(256)), foreign=()), HELD_BESIDE_IDLE_US)],
    ids=["alone", "among nodes"],
)
async def test_no_fire_is_held_longer_than_this_after_it_was_due(
    scheduler: Scheduler, share: Share | None, held_us: int
) -> None:
    scheduler.dispatch.serve(share)
    scheduler.handoff.park("worker", queue=None, capacity=4)
    await scheduler.dispatch.fire_due()
    scheduler.clock.advance(held_us / SECOND)
    scheduler.handoff.park("worker", queue=None, capacity=1)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (1, 5, False)


async def test_beside_other_nodes_no_more_is_recorded_for_nobody_while_nobody_takes_it(scheduler: Scheduler) -> None:
    scheduler.dispatch.serve(Share(nodes=2, own=tuple(range(256)), foreign=()))
    await scheduler.dispatch.fire_due()
    for _ in range(JOBS):
        await scheduler.job(every(1_800))
    scheduler.clock.advance(1_800)
    scheduler.handoff.park("worker", queue=None, capacity=1)
    await scheduler.dispatch.fire_due()
    scheduler.clock.advance(HELD_BESIDE_IDLE_US / SECOND)
    claiming = asyncio.create_task(scheduler.leasing.claim(queue=None, limit=1, wait_s=60))
    while not scheduler.handoff.is_left:  # it has seen the first ten
        await asyncio.sleep(0)
    scheduler.handoff.park("worker", queue=None, capacity=4)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (4, 0, True)
    await claiming


async def test_what_was_left_is_forgotten_when_nothing_is_ready_any_more(scheduler: Scheduler) -> None:
    await scheduler.dispatch.fire_due()
    claim = scheduler.leasing.claim
    assert len(await claim(queue=None, limit=JOBS, wait_s=1)) == JOBS
    assert scheduler.handoff.is_left
    waiting = asyncio.create_task(claim(queue=None, limit=1, wait_s=60))
    while scheduler.handoff.is_left:
        await asyncio.sleep(0.01)
    scheduler.handoff.close()
    assert await waiting == []


async def test_a_dispatcher_that_is_behind_with_runs_goes_on_to_record_for_those_in_line(scheduler: Scheduler) -> None:
    for _ in range(2):
        scheduler.handoff.park("worker", queue=None, capacity=4)
        report = await scheduler.dispatch.fire_due()
        assert (len(report.batch.leased), report.batch.pending) == (4, 0)
        scheduler.clock.advance(BEHIND_US / SECOND + 1)


async def test_workers_have_no_part_in_what_comes_too_late_to_run(scheduler: Scheduler) -> None:
    scheduler.clock.advance(600)
    for _ in range(2):
        scheduler.handoff.park("worker", queue=None, capacity=1)
        report = await scheduler.dispatch.fire_due()
    assert (report.batch.marks, report.full) == (JOBS - 1, False)


async def test_of_what_waits_too_long_some_is_recorded_for_nobody_beside_what_workers_take(data: str) -> None:
    async with scheduling(data) as scheduler:
        for _ in range(2 * BATCH):
            await scheduler.job(every(3_600))
        scheduler.clock.set(START + 3_600 * SECOND)
        scheduler.handoff.park("worker", queue=None, capacity=1)
        await scheduler.dispatch.fire_due()
        scheduler.clock.advance(HELD_US / SECOND)
        scheduler.handoff.park("worker", queue=None, capacity=BATCH)
        report = await scheduler.dispatch.fire_due()
        assert (len(report.batch.leased), report.batch.pending) == (BATCH, BATCH // 4)


async def test_a_burst_that_few_workers_take_minutes_for_is_recorded_without_waiting_for_them(data: str) -> None:
    async with scheduling(data) as scheduler:
        for _ in range(2 * BATCH + 1):
            await scheduler.job(every(3_600))
        scheduler.clock.set(START + 3_600 * SECOND)
        scheduler.handoff.park("worker", queue=None, capacity=1)
        await scheduler.dispatch.fire_due()
        scheduler.clock.advance(HELD_US / SECOND)
        scheduler.handoff.note_work(None)  # it is back for more within 250 ms
        firing = asyncio.create_task(scheduler.dispatch.fire_due())
        await asyncio.sleep(0.01)
        scheduler.handoff.park("worker", queue=None, capacity=1)
        report = await firing
        assert (len(report.batch.leased), report.batch.pending) == (0, 2 * BATCH)


async def test_nobody_leaves_the_line_between_the_count_and_the_batch(scheduler: Scheduler) -> None:
    """A claim that finds something ready in the database leaves to fetch it."""
    scheduler.handoff.park("worker", queue=None, capacity=1)
    await scheduler.dispatch.fire_due()
    firing = asyncio.create_task(scheduler.dispatch.fire_due())
    await asyncio.sleep(0.01)
    claim = scheduler.handoff.park("worker", queue=None, capacity=4)
    await asyncio.sleep(0)
    scheduler.handoff.dismiss(claim)
    report = await firing
    assert (len(report.batch.leased), report.batch.pending) == (4, 0)
    assert len(claim.runs.result()) == 4


async def test_a_claim_that_does_not_wait_tells_nothing_of_workers_that_come_and_go(scheduler: Scheduler) -> None:
    """Beyond its capacity a worker full of slow receivers claims, too."""
    await scheduler.dispatch.fire_due()
    assert await scheduler.leasing.claim(queue=None, limit=1, wait_s=0)
    waiting = asyncio.create_task(scheduler.handoff.wait_for_room(limit_s=60))
    await asyncio.sleep(0)
    assert waiting.done()
    assert await scheduler.leasing.claim(queue=None, limit=1, wait_s=1)
    waiting = asyncio.create_task(scheduler.handoff.wait_for_room(limit_s=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_worker_that_waits_for_a_queue_without_work_makes_no_small_batches(scheduler: Scheduler) -> None:
    scheduler.handoff.park("mailer", queue="mail", capacity=1)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (0, JOBS, False)


async def test_workers_of_a_queue_that_has_work_are_waited_for_as_all_are(scheduler: Scheduler) -> None:
    scheduler.handoff.note_work("mail")
    scheduler.handoff.park("mailer", queue="mail", capacity=1)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (0, 1, True)
    report = await scheduler.dispatch.fire_due()  # what is due is not what they wait for: no other batch like that
    assert (len(report.batch.leased), report.batch.pending, report.full) == (0, JOBS - 1, False)


async def test_what_a_worker_full_of_slow_receivers_would_take_beyond_its_capacity_is_not_held(
    scheduler: Scheduler,
) -> None:
    """One of its places comes and goes; the others are at a host that hangs (P22)."""
    scheduler.handoff.park("worker", queue=None, capacity=1)
    await scheduler.dispatch.fire_due()
    firing = asyncio.create_task(scheduler.dispatch.fire_due())  # waits for that one to come back
    await asyncio.sleep(0.01)
    assert await scheduler.leasing.claim(queue=None, limit=200, wait_s=0) == []
    scheduler.handoff.park("worker", queue=None, capacity=1)
    report = await firing
    assert (len(report.batch.leased), report.batch.pending, report.full) == (1, JOBS - 2, False)


async def test_a_claim_outside_the_line_that_found_enough_has_fires_held_again(scheduler: Scheduler) -> None:
    claim = scheduler.leasing.claim
    assert await claim(queue=None, limit=1, wait_s=0) == []
    assert scheduler.handoff.is_wanted_outside
    await scheduler.dispatch.fire_due()
    assert len(await claim(queue=None, limit=JOBS, wait_s=0)) == JOBS
    assert not scheduler.handoff.is_wanted_outside


@pytest.mark.parametrize("wait_s", [0, 60])
async def test_a_worker_of_a_queue_that_has_nothing_to_do_does_not_wait_for_workers_of_others(
    scheduler: Scheduler, wait_s: float
) -> None:
    """What is due may be for it. Claims of either kind: those that wait, and those that ask again and again."""
    scheduler.handoff.park("worker", queue=None, capacity=1)
    await scheduler.dispatch.fire_due()
    asking = asyncio.create_task(scheduler.leasing.claim(queue="mail", limit=1, wait_s=wait_s))
    await asyncio.sleep(0.05)
    scheduler.clock.advance(HELD_BESIDE_IDLE_US / SECOND)
    scheduler.handoff.park("worker", queue=None, capacity=1)
    report = await scheduler.dispatch.fire_due()
    assert (len(report.batch.leased), report.batch.pending, report.full) == (1, JOBS - 2, False)
    scheduler.handoff.close()
    assert await asking == []


async def test_what_was_left_in_one_queue_says_nothing_of_the_others() -> None:
    handoff = Handoff()
    handoff.note_work("mail")
    handoff.note_ready("mail", is_ready=True)
    assert handoff.is_left
    handoff.note_work(None)  # whose workers at other nodes may be idle
    assert not handoff.is_left
    handoff.note_ready(None, is_ready=True)
    assert handoff.is_left


async def test_what_was_left_is_forgotten_when_its_worker_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    handoff = Handoff()
    for queue in ("mail", None):
        handoff.note_ready(queue, is_ready=True)
    monkeypatch.setattr("onbeat.services.handoff.HEARD_FOR_S", 0)
    handoff.note_work(None)
    assert not handoff.is_left


async def test_whoever_waits_for_room_hears_of_claims_that_a_sweep_did_not_use() -> None:
    handoff = Handoff()
    handoff.park("worker", queue=None, capacity=4)
    handoff.note_work(None)
    reservation = handoff.reserve(until=0)
    waiting = asyncio.create_task(handoff.wait_for_room(limit_s=60))
    await asyncio.sleep(0.01)
    handoff.settle(reservation, ())
    for _ in range(10):
        await asyncio.sleep(0)
    assert waiting.done()
    assert await waiting == 4


async def test_the_smallest_batch_of_a_dispatcher_that_is_behind_is_what_is_oldest(scheduler: Scheduler) -> None:
    await scheduler.job(every(1))
    scheduler.handoff.park("worker", queue=None, capacity=1)
    await scheduler.dispatch.fire_due()
    scheduler.clock.advance(BEHIND_US / SECOND + 1)
    scheduler.handoff.park("worker", queue=None, capacity=1)
    report = await scheduler.dispatch.fire_due()
    assert [run.key.scheduled_at for run in report.batch.leased] == [START + 3_600 * SECOND]


async def test_fires_that_no_worker_is_needed_for_are_not_recorded_one_by_one(data: str) -> None:
    """Those of jobs that are busy, and are skipped: a worker in line would get none of them."""
    async with scheduling(data) as scheduler:
        for _ in range(JOBS):
            await scheduler.job(every(3_600), overlap="skip")
        scheduler.clock.set(START + 3_600 * SECOND)
        await scheduler.dispatch.fire_due()
        assert len(await scheduler.claim(limit=JOBS)) == JOBS
        scheduler.clock.advance(3_600)
        scheduler.handoff.park("worker", queue=None, capacity=1)
        assert (await scheduler.dispatch.fire_due()).full
        report = await scheduler.dispatch.fire_due()
        assert (report.batch.marks, report.full) == (JOBS - 1, False)


async def test_one_jobs_batch_tells_nothing_of_the_next_one_of_all(data: str) -> None:
    async with scheduling(data) as scheduler:
        for _ in range(JOBS):
            await scheduler.job(every(3_600), grace_s=1)
        other = await scheduler.job(every(86_400))
        scheduler.clock.set(START + 3_603 * SECOND)
        scheduler.handoff.park("worker", queue=None, capacity=1)
        assert (await scheduler.dispatch.fire_due()).full
        await scheduler.dispatch.fire_due(only=other.job_id)
        report = await scheduler.dispatch.fire_due()
        assert (report.batch.marks, report.full) == (JOBS - 1, False)


async def test_a_large_backlog_and_what_came_due_last_take_turns(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 16)
    async with scheduling(data) as scheduler:
        for _ in range(150):
            await scheduler.job(every(3_600), grace_s=1)
        calls = Calls(scheduler, monkeypatch)
        scheduler.clock.set(START + 3_610 * SECOND)
        fresh = await scheduler.job(every(1), grace_s=1)
        while True:
            scheduler.clock.advance(1)
            report = await scheduler.dispatch.fire_due()
            if not report.full:
                break
            lag_us = scheduler.clock.now() - ((await scheduler.jobs.get(fresh.job_id)).next_fire_at or 0)
            assert lag_us <= SECOND  # one turn of the backlog
        backlog, last = {"limit": 32, "latest": 0, "in_any_order": True}, {"limit": 4, "latest": 4}
        assert calls.made[0] == {"limit": 16, "latest": 0}
        turns = calls.made[1:-1]
        assert len(turns) >= 4
        assert turns == [backlog, last] * (len(turns) // 2) + [backlog] * (len(turns) % 2)


class Calls:
    """What a dispatcher asks for."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[dict[str, Any]] = []
        self._record_due = scheduler.store.fires.record_due
        monkeypatch.setattr(scheduler.store.fires, "record_due", self._record)

    async def _record(self, *, limit: int, latest: int, in_any_order: bool, **others: Any) -> FiredBatch:
        call: dict[str, Any] = {"limit": limit, "latest": latest}
        self.made.append(call | {"in_any_order": True} if in_any_order else call)
        return await self._record_due(limit=limit, latest=latest, in_any_order=in_any_order, **others)
