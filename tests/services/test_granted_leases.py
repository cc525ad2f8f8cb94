"""A lease that was granted reaches somebody who delivers it, or goes back at once: none waits for its end unseen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.database import look
from tests.support.receiver import Call, receiving
from tests.support.scheduler import LEASE_S, TARGET, Scheduler, every, scheduling

from onbeat.delivery.limits import SenderLimits
from onbeat.delivery.request import Delivery
from onbeat.delivery.sender import Sender
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.loops.supervisor import Supervisor
from onbeat.loops.worker import Worker
from onbeat.services import readiness
from onbeat.store.values import Page, RunFilter, RunView
from onbeat.telemetry import Metrics


@pytest.fixture
async def scheduler(data: str) -> AsyncIterator[Scheduler]:
    async with scheduling(data) as opened:
        yield opened


class SlowTransaction:
    """Holds the dispatcher's transaction back until it is let through."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self._record_due = scheduler.store.fires.record_due
        monkeypatch.setattr(scheduler.store.fires, "record_due", self._wait_and_record)

    async def _wait_and_record(self, **arguments: Any) -> Any:
        self.begun.set()
        await self.may_go_on.wait()
        return await self._record_due(**arguments)


async def turns_until(holds: Callable[[], bool]) -> None:
    """Let the loop go on until something holds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


async def runs_of(scheduler: Scheduler) -> list[RunView]:
    return await scheduler.store.runs.find(RunFilter(), Page())


async def test_a_claim_whose_time_is_up_takes_the_runs_of_a_hand_over_under_way(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", 0.02)
    await scheduler.job(every(1))
    scheduler.clock.advance(1)
    transaction = SlowTransaction(scheduler, monkeypatch)
    claiming = asyncio.create_task(scheduler.leasing.claim(queue=None, limit=5, wait_s=5))
    await turns_until(lambda: bool(scheduler.handoff._parked))
    (parked,) = scheduler.handoff._parked
    firing = asyncio.create_task(scheduler.dispatch.fire_due())
    await transaction.begun.wait()
    scheduler.clock.advance(5)  # its time is up while the transaction goes on
    await turns_until(lambda: parked.leaves or parked.runs.done())
    transaction.may_go_on.set()
    report = await firing
    (assignment,) = await claiming
    assert [run.token for run in report.batch.leased] == [assignment.token]


async def test_what_an_unreadable_secret_is_for_fails_and_the_rest_is_delivered(
    scheduler: Scheduler, data: str
) -> None:
    await scheduler.secrets.rotate("default", "broken")
    broken = await scheduler.job(every(1), target=WebhookTarget(url=TARGET.url, secret="broken"))
    good = await scheduler.job(every(1))
    look(data, "update secrets set ciphertext = ? where name = 'broken'", b"\x01")
    scheduler.clock.advance(1)
    await scheduler.dispatch.fire_due()
    assert [assignment.key.job_id for assignment in await scheduler.claim()] == [good.job_id]
    states = {run.key.job_id: run.state for run in await runs_of(scheduler)}
    assert states == {good.job_id: RunState.RUNNING, broken.job_id: RunState.FAILED}


async def test_a_claim_that_fails_after_the_grant_gives_everything_back(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduler.job(every(1), delivery="at_most_once")
    scheduler.clock.advance(1)
    await scheduler.dispatch.fire_due()

    async def unavailable(*_arguments: object) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(scheduler.store.access, "find_secrets", unavailable)
        with pytest.raises(StoreUnavailable):
            await scheduler.claim()
    (run,) = await runs_of(scheduler)
    assert (run.state, run.attempt) == (RunState.PENDING, 0)
    (assignment,) = await scheduler.claim()
    assert assignment.attempt == 1


async def test_a_process_that_stands_still_while_a_lease_is_taken_in_does_not_take_it_for_younger(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that believed so would begin without asking again, when the run is somebody else's."""
    clock = scheduler.clock
    began_at = clock.now()
    boottime_at_start = clock.boottime()
    await scheduler.job(every(1))
    clock.advance(1)
    await scheduler.dispatch.fire_due()

    def standing_still(read: Callable[[], Any]) -> Callable[[], Any]:
        def read_and_stand_still() -> Any:
            found = read()
            clock.advance(1)
            return found

        return read_and_stand_still

    monkeypatch.setattr(clock, "now", standing_still(clock.now))
    monkeypatch.setattr(clock, "boottime", standing_still(clock.boottime))
    (assignment,) = await scheduler.claim()
    granted_boottime = boottime_at_start + (assignment.granted_at - began_at) / 1e6
    assert assignment.granted_boottime <= granted_boottime


async def test_a_stop_delivers_what_a_claim_under_way_is_granted(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving() as receiver:
        await scheduler.job(every(1), target=WebhookTarget(url=receiver.url))
        scheduler.clock.advance(1)
        worker = Worker(scheduler.leasing, clock=scheduler.clock, metrics=Metrics(), capacity=5, heartbeat_s=10)
        rules = EgressRules.for_development()
        sender = Sender(rules=rules, clock=scheduler.clock, ask_permit=worker.ask_permit)
        worker.attach(sender)
        supervisor = Supervisor(on_failure=lambda: None)
        supervisor.start(worker.loops)
        transaction = SlowTransaction(scheduler, monkeypatch)
        await turns_until(lambda: bool(scheduler.handoff._parked))
        firing = asyncio.create_task(scheduler.dispatch.fire_due())
        await transaction.begun.wait()
        scheduler.handoff.close()
        draining = asyncio.create_task(worker.drain(10))
        await asyncio.sleep(0)
        transaction.may_go_on.set()
        await firing
        assert await draining
        (run,) = await runs_of(scheduler)
        assert (run.state, len(receiver.calls)) == (RunState.SUCCEEDED, 1)
        await sender.close()
        await supervisor.stop()


@pytest.mark.parametrize("is_sent", [True, False])
async def test_a_run_whose_lease_ran_out_unnoticed_is_not_cancelled_by_the_heartbeat_that_came_too_late(
    scheduler: Scheduler, is_sent: bool
) -> None:
    may_answer = asyncio.Event()

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async def ask_permit(_delivery: Delivery) -> bool:
        await may_answer.wait()
        return False

    ended: list[OutcomeKind] = []
    async with receiving(answer) as receiver:
        await scheduler.job(every(3_600), target=WebhookTarget(url=receiver.url))
        scheduler.clock.advance(3_600)
        await scheduler.dispatch.fire_due()
        worker = Worker(
            scheduler.leasing,
            clock=scheduler.clock,
            metrics=Metrics(),
            capacity=1,
            heartbeat_s=3_600,
            on_end=lambda _assignment, outcome: ended.append(outcome.kind),
        )
        limits = SenderLimits() if is_sent else SenderLimits(permit_s=-1)
        sender = Sender(
            rules=EgressRules.for_development(), clock=scheduler.clock, ask_permit=ask_permit, limits=limits
        )
        worker.attach(sender)
        supervisor = Supervisor(on_failure=lambda: None)
        supervisor.start(worker.loops)
        await turns_until(lambda: bool(receiver.calls) if is_sent else sender.in_flight == 1)
        for loop in worker.loops:
            if loop.name.startswith("worker-claim"):
                loop.stop()  # what comes back is not claimed again
        (run,) = await runs_of(scheduler)
        scheduler.clock.advance(LEASE_S + 1)
        worker.doubt(run.key)
        await turns_until(lambda: bool(ended) and not worker.held)
        (run,) = await runs_of(scheduler)
        kind = OutcomeKind.NO_ANSWER if is_sent else OutcomeKind.INTERRUPTED
        assert (ended, run.state, run.attempt) == ([kind], RunState.PENDING, int(is_sent))
        may_answer.set()
        await sender.close()
        await supervisor.stop()


async def test_runs_that_were_ready_are_taken_before_more_is_handed_over(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, fired = await scheduler.job(every(3_600)), await scheduler.job(every(1))
    await scheduler.runs.trigger(waiting.job_id, payload=None)
    scheduler.clock.advance(1)
    next_ready_at, may_answer = scheduler.store.leases.next_ready_at, asyncio.Event()

    async def look_slowly(*, queue: str | None, now: int) -> int | None:
        ready_at = await next_ready_at(queue=queue, now=now)
        await may_answer.wait()
        return ready_at

    monkeypatch.setattr(scheduler.store.leases, "next_ready_at", look_slowly)
    claiming = asyncio.create_task(scheduler.leasing.claim(queue=None, limit=1, wait_s=5))
    await turns_until(lambda: bool(scheduler.handoff._parked))
    await scheduler.dispatch.fire_due()
    may_answer.set()
    assert [assignment.key.job_id for assignment in await claiming] == [fired.job_id]
    (assignment,) = await scheduler.leasing.claim(queue=None, limit=1, wait_s=5)
    assert assignment.key.job_id == waiting.job_id
