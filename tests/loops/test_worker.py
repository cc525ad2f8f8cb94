"""The worker over a link of its own: what is granted and not begun yet can still be stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from tests.support.receiver import receiving

from onbeat.clock import DatabaseClock, ManualClock, boottime_s, host_time_us
from onbeat.delivery.request import Delivery
from onbeat.delivery.sender import Sender
from onbeat.delivery.signing import new_secret
from onbeat.domain.egress import EgressRules
from onbeat.domain.ids import RunKey
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState, Trigger
from onbeat.loops.supervisor import Supervisor
from onbeat.loops.worker import START_AT_ONCE, Worker
from onbeat.services.assignment import Assignment, Held
from onbeat.store.values import Finish, Finished, FinishResult, LeaseStatus
from onbeat.telemetry import Metrics

SECRETS = (new_secret(),)
NOON = 1_800_000_000_000_000


def assignment(number: int, url: str) -> Assignment:
    now = host_time_us()
    return Assignment(
        key=RunKey(number, now // 1_000_000 * 1_000_000),
        token=number.to_bytes(16, "big"),
        attempt=1,
        trigger=Trigger.SCHEDULE,
        job_name="job",
        job_key=None,
        job_version=1,
        namespace="default",
        target=WebhookTarget(url=url),
        timeout_s=10,
        at_most_once=False,
        payload=None,
        queue=None,
        lease_until=now + 30_000_000,
        granted_at=now,
        deadline_at=None,
        late_after=now,
        secrets=SECRETS,
        connect_timeout_s=None,
        callback_url=None,
        granted_boottime=boottime_s(),
    )


class Scheduler:
    """A link that grants what it has at once, and keeps what is reported."""

    def __init__(self, runs: list[Assignment]) -> None:
        self.runs = runs
        self.reports: list[Finish] = []
        self.released: list[Held] = []
        self.status = LeaseStatus.LIVE  # what a heartbeat says
        self.granted = asyncio.Event()
        self.reported = asyncio.Event()

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        if not self.runs:
            await asyncio.sleep(wait_s)
            return []
        taken, self.runs = self.runs[:limit], self.runs[limit:]
        self.granted.set()
        return taken

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        return [self.status] * len(held)

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        return [LeaseStatus.LIVE] * len(held)

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        self.reports += items
        self.reported.set()
        return [Finished(item.key, FinishResult.ENDED, RunState.SUCCEEDED) for item in items]

    async def release(self, held: Sequence[Held]) -> int:
        self.released += held
        return len(held)


async def host_clock() -> int:
    return host_time_us()


@contextlib.asynccontextmanager
async def working(scheduler: Scheduler, *, capacity: int, heartbeat_s: float = 10) -> AsyncIterator[Worker]:
    clock = await DatabaseClock.start(host_clock)
    worker = Worker(
        scheduler, clock=clock, metrics=Metrics(), capacity=capacity, heartbeat_s=heartbeat_s, claim_wait_s=0.05
    )
    sender = Sender(rules=EgressRules.for_development(), clock=clock, ask_permit=worker.ask_permit)
    worker.attach(sender)
    supervisor = Supervisor(on_failure=lambda: None)
    supervisor.start(worker.loops)
    try:
        yield worker
    finally:
        await worker.drain(0)
        await sender.close()
        await supervisor.stop()


async def until_reported(scheduler: Scheduler, count: int) -> dict[int, OutcomeKind]:
    async with asyncio.timeout(30):
        while len(scheduler.reports) < count:
            scheduler.reported.clear()
            await scheduler.reported.wait()
    return {item.key.job_id: item.outcome.kind for item in scheduler.reports}


async def test_many_that_are_granted_at_once_are_all_delivered_once() -> None:
    count = 3 * START_AT_ONCE + 1
    async with receiving() as receiver:
        scheduler = Scheduler([assignment(number, receiver.url) for number in range(count)])
        async with working(scheduler, capacity=count):
            kinds = await until_reported(scheduler, count)
        assert kinds == dict.fromkeys(range(count), OutcomeKind.SUCCEEDED)
        assert len(scheduler.reports) == len(receiver.calls) == count


async def test_a_run_that_is_cancelled_before_its_turn_is_never_sent() -> None:
    count = 2 * START_AT_ONCE
    async with receiving() as receiver:
        scheduler = Scheduler([assignment(number, receiver.url) for number in range(count)])
        last = scheduler.runs[-1].key
        async with working(scheduler, capacity=count) as worker:
            await scheduler.granted.wait()
            while worker.held < count:
                await asyncio.sleep(0)
            worker.cancel(last)
            kinds = await until_reported(scheduler, count)
        assert kinds.pop(last.job_id) is OutcomeKind.CANCELLED
        assert set(kinds.values()) == {OutcomeKind.SUCCEEDED}
        assert len(receiver.calls) == count - 1


async def test_a_run_whose_lease_is_lost_before_its_turn_is_never_sent_and_nobody_hears_that_it_was_cancelled() -> None:
    count = 20 * START_AT_ONCE
    async with receiving() as receiver:
        scheduler = Scheduler([assignment(number, receiver.url) for number in range(count)])
        async with working(scheduler, capacity=count, heartbeat_s=0.001):
            await scheduler.granted.wait()
            scheduler.status = LeaseStatus.LEASE_LOST
            kinds = await until_reported(scheduler, count)
        assert OutcomeKind.CANCELLED not in kinds.values()
        assert kinds[count - 1] is OutcomeKind.INTERRUPTED


async def test_what_is_given_back_before_its_turn_is_never_sent() -> None:
    count = 20 * START_AT_ONCE
    async with receiving() as receiver:
        scheduler = Scheduler([assignment(number, receiver.url) for number in range(count)])
        async with working(scheduler, capacity=count) as worker:
            await scheduler.granted.wait()
            while worker.held < count:
                await asyncio.sleep(0)
            await worker.drain(0)
            assert worker.held == 0
        assert len(scheduler.released) + len(scheduler.reports) == count
        assert len(receiver.calls) <= count - START_AT_ONCE  # some had not had their turn


class StoppedOften(ManualClock):
    """Of a process that stands still for a second after each look at the time."""

    def now(self) -> int:
        found = super().now()
        self.advance(1)
        return found

    def boottime(self) -> float:
        found = super().boottime()
        self.advance(1)
        return found


async def test_a_process_that_stands_still_as_an_attempt_begins_does_not_give_it_longer() -> None:
    clock = StoppedOften(now=NOON)
    scheduler = Scheduler([msgspec.structs.replace(assignment(1, "http://localhost"), deadline_at=NOON + 60_000_000)])
    worker = Worker(scheduler, clock=clock, metrics=Metrics(), capacity=1, heartbeat_s=10, claim_wait_s=0.05)
    sent: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    sender = Sender(rules=EgressRules.for_development(), clock=clock, ask_permit=worker.ask_permit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender, "send", lambda deliveries, on_outcome: sent.set_result(*deliveries))
        worker.attach(sender)
        supervisor = Supervisor(on_failure=lambda: None)
        supervisor.start(worker.loops)
        delivery = await asyncio.wait_for(sent, 10)
        await worker.drain(0)
        await supervisor.stop()
        await sender.close()
    assert delivery.deadline is not None
    assert delivery.deadline <= 60
