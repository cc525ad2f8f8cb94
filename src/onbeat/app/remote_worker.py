"""A worker process on another machine: claims over HTTP, delivers, reports."""

from __future__ import annotations

import asyncio
import contextlib
import random

import structlog

from onbeat.app.deliverer import Deliverer
from onbeat.app.egress import egress_rules
from onbeat.app.process import EXIT_GAVE_BACK, EXIT_OK, process_name
from onbeat.client.link import HttpLink
from onbeat.clock import DatabaseClock
from onbeat.config import Settings
from onbeat.domain.errors import StoreUnavailable
from onbeat.loops.loop import FIRST_BACKOFF_S, LONGEST_BACKOFF_S
from onbeat.loops.maintenance import clock_loop
from onbeat.loops.supervisor import StopSignal, Supervisor
from onbeat.telemetry import Metrics

log = structlog.get_logger(__name__)

REMOTE_CLAIM_WAIT_S = 20.0
"""How long a remote claim waits at the server: shorter than what proxies cut off."""


async def run_worker(*, server: str, key: str | None, name: str | None, concurrency: int, settings: Settings) -> int:
    """A worker process on another machine: claims over HTTP, delivers, reports. Answer: the exit code."""
    stop = StopSignal()
    stop.install()
    async with HttpLink(server, key=key, worker=name or process_name()) as link:
        clock = await _first_reading(link, stop)
        if clock is None:
            return EXIT_OK
        deliverer = Deliverer(
            link,
            settings=settings,
            egress=egress_rules(settings),
            clock=clock,
            metrics=Metrics(),
            capacity=concurrency,
            claim_wait_s=REMOTE_CLAIM_WAIT_S,
        )
        supervisor = Supervisor(on_failure=stop.trigger)
        supervisor.start([*deliverer.loops, clock_loop(clock)])
        log.info("worker_started", server=server, concurrency=concurrency)
        await stop.wait()
        link.stop_claiming()
        drained = await deliverer.drain()
        await deliverer.close()
        await supervisor.stop()
    return EXIT_OK if drained else EXIT_GAVE_BACK


async def _first_reading(link: HttpLink, stop: StopSignal) -> DatabaseClock | None:
    """The server's clock as soon as the server answers, however long that takes. None: told to stop before.

    A fleet is often started together with its server, and a server that is being started again is no reason to leave.
    """
    clock = DatabaseClock(link.read_clock)
    backoff_s = FIRST_BACKOFF_S
    while not stop.is_set:
        try:
            await clock.refresh()
        except StoreUnavailable as error:
            log.warning("server_unreachable", error=error.detail)
        else:
            return clock
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(backoff_s * random.uniform(0.5, 1.0)):  # noqa: S311  spreads retries only
                await stop.wait()
        backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
    return None
