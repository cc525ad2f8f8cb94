"""How long the dispatcher sleeps: until the next clock is due, and never so long that a job of another node is late."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.scheduler import Scheduler, every, scheduling

from onbeat.domain.model import SECOND_US, MisfirePolicy
from onbeat.domain.rendezvous import Share
from onbeat.loops.dispatcher import (
    LOOK_AMONG_NODES_EVERY_S,
    LOOK_BESIDE_EVERY_S,
    LOOK_EVERY_S,
    dispatcher_loop,
    second_dispatcher_loop,
)
from onbeat.loops.loop import Loop
from onbeat.services import dispatch as dispatch_module
from onbeat.services.wake import Wake
from onbeat.store.values import FiredBatch, Page, RunFilter
from onbeat.telemetry import Metrics


class Sleeps(Wake):
    """Notes how long the loop wants to sleep, and ends it after so many times."""

    loop: Loop

    def __init__(self, most: int) -> None:
        super().__init__()
        self.lengths_s: list[float] = []
        self._most = most

    async def wait(self, timeout_s: float) -> bool:
        self.lengths_s.append(timeout_s)
        if len(self.lengths_s) == self._most:
            self.loop.stop()
        return True


async def first_sleep(scheduler: Scheduler) -> float:
    sleeps = Sleeps(1)
    sleeps.loop = dispatcher_loop(scheduler.dispatch, clock=scheduler.clock, wake=sleeps, metrics=Metrics())
    await sleeps.loop.run()
    return sleeps.lengths_s[0]


@pytest.mark.parametrize(
    ("share", "longest_s"),
    [(None, LOOK_EVERY_S), (Share(nodes=2, own=tuple(range(256)), foreign=()), LOOK_AMONG_NODES_EVERY_S)],
    ids=["alone", "among nodes"],
)
async def test_the_dispatcher_sleeps_until_a_clock_is_due_but_no_longer_than_this(
    tmp_path: Path, share: Share | None, longest_s: float
) -> None:
    async with scheduling(tmp_path / "onbeat.db") as scheduler:
        scheduler.dispatch.serve(share)
        assert await first_sleep(scheduler) == longest_s
        await scheduler.job(every(3_600))
        assert await first_sleep(scheduler) == longest_s
        await scheduler.job(every(1))
        scheduler.clock.advance(0.9)
        assert await first_sleep(scheduler) == pytest.approx(0.1)


async def test_batches_that_are_recorded_at_once_record_each_fire_once(
    either_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 10)
    async with scheduling(either_database) as scheduler:
        jobs = [await scheduler.job(every(3_600), misfire=MisfirePolicy(policy="catch_up", max=2)) for _ in range(75)]
        scheduler.clock.advance(3_600)
        together = Together(scheduler, 3, monkeypatch)
        while together.recorded < len(jobs):
            await asyncio.gather(*(scheduler.dispatch.fire_due() for _ in range(4)))
        runs = await scheduler.store.runs.find(RunFilter(), Page(limit=100))
        assert sorted(run.key.job_id for run in runs) == sorted(job.job_id for job in jobs)
        assert together.conflicts == 0


async def test_while_the_dispatcher_is_late_a_second_one_records_batches_beside_it(
    either_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 10)
    async with scheduling(either_database) as scheduler:
        jobs = [await scheduler.job(every(3_600)) for _ in range(75)]
        scheduler.clock.advance(3_600 + 1)
        first, second = scheduler.dispatch.fire_due, scheduler.dispatch.help_out
        if not scheduler.store.is_shared:
            await first()
            assert await second() is None
            return
        assert await second() is None  # nothing is known to be late yet
        together = Together(scheduler, 2, monkeypatch)
        await first()
        assert await scheduler.dispatch.late.wait(0)
        while together.recorded < len(jobs):
            await asyncio.gather(first(), second())
        assert together.met.is_set()
        assert together.conflicts == 0
        await first()  # the last two may each have seen what the other had in hand
        assert await second() is None
        runs = await scheduler.store.runs.find(RunFilter(), Page(limit=100))
        assert sorted(run.key.job_id for run in runs) == sorted(job.job_id for job in jobs)


async def test_the_second_dispatcher_leaves_alone_what_is_not_late(
    either_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "BATCH", 10)
    async with scheduling(either_database) as scheduler:
        for _ in range(30):
            await scheduler.job(every(3_600))
        scheduler.clock.advance(3_600 + (dispatch_module.LATE_US - 1) / SECOND_US)
        assert (await scheduler.dispatch.fire_due()).full
        assert await scheduler.dispatch.help_out() is None
        assert not await scheduler.dispatch.late.wait(0)
        scheduler.clock.advance(1 / SECOND_US)
        assert (await scheduler.dispatch.help_out() is not None) == scheduler.store.is_shared


async def test_both_dispatchers_look_less_often_for_what_stays_in_other_hands(
    either_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduling(either_database) as scheduler:
        await scheduler.job(every(3_600))
        scheduler.clock.advance(3_600 + 1)
        record_due = scheduler.store.fires.record_due

        async def record_nothing(**arguments: Any) -> FiredBatch:
            return replace(await record_due(**arguments | {"limit": 0}), next_due_at=scheduler.clock.now() - SECOND_US)

        monkeypatch.setattr(scheduler.store.fires, "record_due", record_nothing)
        sleeps = Sleeps(6)
        sleeps.loop = dispatcher_loop(scheduler.dispatch, clock=scheduler.clock, wake=sleeps, metrics=Metrics())
        await sleeps.loop.run()
        assert sleeps.lengths_s == [0.01, 0.02, 0.04, 0.08, 0.08, 0.08]
        sleeps = scheduler.dispatch.late = Sleeps(2)
        sleeps.loop = second_dispatcher_loop(scheduler.dispatch, clock=scheduler.clock, metrics=Metrics())
        await sleeps.loop.run()
        assert sleeps.lengths_s == [LOOK_BESIDE_EVERY_S, LOOK_BESIDE_EVERY_S]


class Together:
    """From the second batch on, batches wait until so many are there at once."""

    def __init__(self, scheduler: Scheduler, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.met = asyncio.Event()
        self.recorded = self.conflicts = 0
        self._at_once = at_once
        self._begun = 0
        self._here = 0
        self._record_due = scheduler.store.fires.record_due
        monkeypatch.setattr(scheduler.store.fires, "record_due", self._meet_and_record)

    async def _meet_and_record(self, **arguments: Any) -> FiredBatch:
        self._begun += 1
        if self._begun > 1 and not self.met.is_set():
            self._here += 1
            if self._here == self._at_once:
                self.met.set()
            await self.met.wait()
        batch = await self._record_due(**arguments)
        self.recorded += batch.jobs
        self.conflicts += batch.conflicts
        return batch
