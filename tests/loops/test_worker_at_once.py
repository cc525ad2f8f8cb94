"""What a worker does at once: several claims and reports, and each end of an attempt in one report at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from tests.support.receiver import receiving
from tests.support.scheduler import Scheduler, every, scheduling

from onbeat.delivery.sender import Sender
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.model import WebhookTarget
from onbeat.domain.states import RunState
from onbeat.loops import worker as worker_module
from onbeat.loops.supervisor import Supervisor
from onbeat.loops.worker import Worker
from onbeat.store.values import Finish, Finished, Page, RunFilter
from onbeat.telemetry import Metrics


@pytest.fixture
async def scheduler(either_database: str) -> AsyncIterator[Scheduler]:
    async with scheduling(either_database) as opened:
        yield opened


class HeldReports:
    """Every report waits for `let_through` of its number. One number is refused as if the database was gone."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, *, refused: int | None = None) -> None:
        self.reports: list[list[bytes]] = []
        self.under_way: list[bytes] = []
        self._refused = refused
        self._gates: dict[int, asyncio.Event] = {}
        self._finish = scheduler.leasing.finish
        monkeypatch.setattr(scheduler.leasing, "finish", self._hold_and_finish)

    def gate(self, number: int) -> asyncio.Event:
        return self._gates.setdefault(number, asyncio.Event())

    def open(self) -> None:
        """From now on nothing is held."""
        for number in range(100):
            self.gate(number).set()

    async def _hold_and_finish(self, items: Sequence[Finish]) -> list[Finished]:
        number, tokens = len(self.reports), [item.token for item in items]
        assert not set(tokens) & set(self.under_way), "one end is in two reports at once"
        self.reports.append(tokens)
        self.under_way += tokens
        try:
            await self.gate(number).wait()
            if number == self._refused:
                raise StoreUnavailable
            return await self._finish(items)
        finally:
            self.under_way = [token for token in self.under_way if token not in tokens]


@contextlib.asynccontextmanager
async def working(scheduler: Scheduler, *, capacity: int, reports: HeldReports | None = None) -> AsyncIterator[Worker]:
    worker = Worker(scheduler.leasing, clock=scheduler.clock, metrics=Metrics(), capacity=capacity, heartbeat_s=10)
    sender = Sender(rules=EgressRules.for_development(), clock=scheduler.clock, ask_permit=worker.ask_permit)
    worker.attach(sender)
    supervisor = Supervisor(on_failure=lambda: None)
    supervisor.start(worker.loops)
    try:
        yield worker
    finally:
        if reports is not None:
            reports.open()
        scheduler.handoff.close()  # a claim that waits would wait for a clock that stands still
        await sender.close()
        await supervisor.stop()


async def until(holds: Callable[[], bool]) -> None:
    """Let everything go on until something holds."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


async def fire(scheduler: Scheduler, jobs: int, url: str) -> None:
    """So many runs, all due now, given to whoever waits."""
    for _ in range(jobs):
        await scheduler.job(every(3_600), target=WebhookTarget(url=url))
    await until(lambda: bool(scheduler.handoff._parked))
    scheduler.clock.advance(3_600)
    while (await scheduler.dispatch.fire_due()).full:
        pass


async def test_full_reports_go_out_beside_each_other_and_what_failed_is_reported_again(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPORT_BATCH", 4)
    reports = HeldReports(scheduler, monkeypatch, refused=0)
    async with receiving() as receiver, working(scheduler, capacity=50, reports=reports) as worker:
        await fire(scheduler, 10, receiver.url)
        await until(lambda: len(reports.reports) == 2)
        assert len(reports.reports[1]) == 4  # while the first one waits, and however few that one told of
        assert worker.held == 10
        reports.open()
        await until(lambda: worker.held == 0)
        runs = await scheduler.store.runs.find(RunFilter(), Page())
        assert [run.state for run in runs] == [RunState.SUCCEEDED] * 10
        # The refused ones went out twice, all others once.
        sent = [token for tokens in reports.reports for token in tokens]
        assert (len(sent) - len(reports.reports[0]), len(set(sent)), len(receiver.calls)) == (10, 10, 10)


async def test_less_than_a_full_report_waits_for_the_one_under_way(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPORT_BATCH", 4)
    reports = HeldReports(scheduler, monkeypatch)
    async with receiving() as receiver, working(scheduler, capacity=50, reports=reports) as worker:
        await fire(scheduler, 1, receiver.url)
        await until(lambda: len(reports.reports) == 1)
        await fire(scheduler, 3, receiver.url)
        await until(lambda: len(worker._ended) >= 3)
        await asyncio.sleep(2 * worker_module.REPORT_WITHIN_S)
        assert len(reports.reports) == 1
        reports.open()
        await until(lambda: worker.held == 0)


async def test_a_stop_gives_back_no_attempt_whose_end_is_being_reported(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = HeldReports(scheduler, monkeypatch)
    async with receiving() as receiver, working(scheduler, capacity=50, reports=reports) as worker:
        await fire(scheduler, 3, receiver.url)
        await until(lambda: len(reports.under_way) == 3)
        scheduler.handoff.close()  # as a node does
        draining = asyncio.create_task(worker.drain(0.01))
        await until(lambda: worker._claiming[0]._stopping)
        await asyncio.sleep(0.05)
        reports.open()
        assert not await draining
        runs = await scheduler.store.runs.find(RunFilter(), Page())
        assert [(run.state, run.attempt) for run in runs] == [(RunState.SUCCEEDED, 1)] * 3


async def test_a_worker_claims_once_more_while_its_claim_waits_and_much_room_has_come(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "ROOM_FOR_MORE", 3)
    async with receiving() as receiver, working(scheduler, capacity=5) as worker:
        may_answer = asyncio.Event()

        async def answer(_call: object) -> int:
            await may_answer.wait()
            return 200

        receiver.answer = answer
        await fire(scheduler, 3, receiver.url)
        await until(lambda: sum(claim.capacity for claim in scheduler.handoff._parked) == 2)
        may_answer.set()
        await until(lambda: worker.held == 0)
        await until(lambda: sorted(claim.capacity for claim in scheduler.handoff._parked) == [2, 3])
