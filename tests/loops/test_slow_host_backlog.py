"""A worker full of a slow host, beside a large backlog of it: counted in grants, the clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.scheduler import SECOND, START, Scheduler, draft, every, scheduling

from onbeat.delivery.request import Delivery
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.loops import worker as worker_module
from onbeat.loops.crowding import EXTRA_SHARE
from onbeat.loops.worker import Worker
from onbeat.services.assignment import Assignment
from onbeat.services.leasing import Leasing
from onbeat.store.values import StoredJob
from onbeat.telemetry import Metrics

CAPACITY = 10
STEP_S = 0.1
SLOW = "http://slow.example/"
HEALTHY = "http://healthy.example/"


class Network:
    """In place of the sender: attempts end as long after their beginning as their host takes."""

    def __init__(self, scheduler: Scheduler, *, slow_s: float) -> None:
        self._clock = scheduler.clock
        self._slow_s = slow_s
        self._in_flight: list[tuple[float, Delivery, Callable[[Delivery, Outcome], None]]] = []
        self.begun: list[tuple[float, Delivery]] = []
        self.ended = 0

    def send(self, deliveries: Sequence[Delivery], on_outcome: Callable[[Delivery, Outcome], None]) -> None:
        now = self._clock.boottime()
        for delivery in deliveries:
            lasts_s = self._slow_s if delivery.target.url == SLOW else 0.0
            self._in_flight.append((now + lasts_s, delivery, on_outcome))
            self.begun.append((now, delivery))

    def kept_waiting(self, *, for_s: float) -> set[Delivery]:
        now = self._clock.boottime()
        waiting = {delivery for ends_at, delivery, _on_outcome in self._in_flight if ends_at > now}
        return {one for at, one in self.begun if one in waiting and now - at >= for_s}

    def cancel(self, _delivery: Delivery) -> None:
        raise AssertionError("nothing is cancelled here")

    def pass_on(self) -> None:
        """What has ended by now."""
        now = self._clock.boottime()
        over = [entry for entry in self._in_flight if entry[0] <= now]
        self._in_flight = [entry for entry in self._in_flight if entry[0] > now]
        for _at, delivery, on_outcome in over:
            self.ended += delivery.target.url == SLOW
            on_outcome(delivery, Outcome(OutcomeKind.SUCCEEDED, self._clock.now(), 1, 200))


class CountingLink(Leasing):
    """The real one, which counts what it grants for the slow host."""

    granted = 0

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        found = await super().claim(queue=queue, limit=limit, wait_s=0)
        self.granted += sum(isinstance(a.target, WebhookTarget) and a.target.url == SLOW for a in found)
        return found


async def drain(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, *, backlog: int, slow_s: float, most_s: float
) -> tuple[int, Network]:
    """Deliver a backlog of the slow host beside a job of another one that fires all 10 s. Answer: the grants."""
    monkeypatch.setattr(worker_module, "REPORT_WITHIN_S", 0)
    link = scheduler.leasing_for("w")
    link.__class__ = CountingLink
    assert isinstance(link, CountingLink)
    worker = Worker(link, clock=scheduler.clock, metrics=Metrics(), capacity=CAPACITY, heartbeat_s=10)
    network = Network(scheduler, slow_s=slow_s)
    worker.attach(network)  # type: ignore[arg-type]
    slow = draft(every(86_400), target=WebhookTarget(url=SLOW))
    for job in await scheduler.jobs.create_many([slow] * backlog, namespace="default"):
        assert isinstance(job, StoredJob)
        assert job.next_fire_at is not None
        scheduler.clock.set(job.next_fire_at)  # the same for all
    while (await scheduler.dispatch.fire_due()).full:
        pass
    await scheduler.job(every(10), target=WebhookTarget(url=HEALTHY))
    steps = 0
    while network.ended < backlog:
        steps += 1
        assert steps * STEP_S < most_s, (network.ended, link.granted)
        scheduler.clock.advance(STEP_S)
        await scheduler.dispatch.fire_due()
        network.pass_on()
        while worker._ended:
            await worker._report_step(0)
        granted = -1
        while granted != link.granted:  # as long as it finds something, it goes on at once
            granted = link.granted
            await worker._claim_step(0)
            while worker._is_starting:
                await asyncio.sleep(0)
            while worker._ended:
                await worker._report_step(0)
        if steps % 50 == 0:
            await worker._beat_step()
            await scheduler.reap.expire_leases()
    return link.granted, network


def assert_others_were_on_time(network: Network) -> None:
    healthy = [(at, delivery) for at, delivery in network.begun if delivery.target.url == HEALTHY]
    assert len(healthy) >= 2
    for at, delivery in healthy:
        assert at - (delivery.key.scheduled_at - START) / SECOND <= 0.5 + STEP_S


@pytest.mark.parametrize("backlog", [100, 300])
async def test_grants_for_a_backlog_of_a_slow_host_grow_with_it_and_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backlog: int
) -> None:
    slow_s = 2.0
    async with scheduling(f"sqlite:///{tmp_path}/onbeat.db") as scheduler:
        shortest_s = backlog * slow_s / CAPACITY
        granted, network = await drain(
            scheduler, monkeypatch, backlog=backlog, slow_s=slow_s, most_s=1.5 * shortest_s + 10
        )
        assert_others_were_on_time(network)
        assert granted <= 5 * backlog  # one to look past it, its own, and those that came a little early


async def test_a_host_that_hangs_costs_a_limited_number_of_grants_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backlog, slow_s = 60, 30.0
    async with scheduling(f"sqlite:///{tmp_path}/onbeat.db") as scheduler:
        shortest_s = backlog * slow_s / CAPACITY
        granted, network = await drain(
            scheduler, monkeypatch, backlog=backlog, slow_s=slow_s, most_s=1.5 * shortest_s + 10
        )
        assert_others_were_on_time(network)
        assert granted <= 3 * backlog + shortest_s * CAPACITY / EXTRA_SHARE


async def test_what_begins_beyond_the_capacity_is_counted_within_one_claim_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "REPORT_WITHIN_S", 0)
    async with scheduling(f"sqlite:///{tmp_path}/onbeat.db") as scheduler:
        worker = Worker(scheduler.leasing, clock=scheduler.clock, metrics=Metrics(), capacity=CAPACITY, heartbeat_s=10)
        network = Network(scheduler, slow_s=60)
        worker.attach(network)  # type: ignore[arg-type]
        for url in [SLOW] * CAPACITY + [HEALTHY] * (3 * CAPACITY):
            job = await scheduler.job(every(86_400), target=WebhookTarget(url=url))
            await scheduler.runs.trigger(job.job_id, payload=None)
            scheduler.clock.advance(0.001)
        for _ in range(2):
            await worker._claim_step(0)
            while worker._is_starting:
                await asyncio.sleep(0)
            scheduler.clock.advance(1)
        begun = [delivery.target.url for _at, delivery in network.begun]
        assert begun.count(SLOW) == CAPACITY
        assert begun.count(HEALTHY) == CAPACITY // EXTRA_SHARE
