"""A whole scheduler in one process, from start to stop. The order in which things start and stop is decided HERE."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

import structlog

from onbeat.api.application import build_api
from onbeat.api.context import ApiContext
from onbeat.app.api_server import ApiServer
from onbeat.app.deliverer import Deliverer
from onbeat.app.delivery_processes import DeliveryProcesses
from onbeat.app.opening import open_for_node
from onbeat.app.process import EXIT_GAVE_BACK, EXIT_OK, process_name
from onbeat.app.services import Services
from onbeat.config import Settings
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import OnbeatError
from onbeat.domain.ids import format_job_id, format_run_id
from onbeat.domain.outcome import Outcome
from onbeat.domain.zones import TZDATA_VERSION
from onbeat.loops.dispatcher import dispatcher_loop, second_dispatcher_loop
from onbeat.loops.hints import hints_loop
from onbeat.loops.loop import Loop
from onbeat.loops.maintenance import (
    backfills_loop,
    pauses_loop,
    reaper_loop,
    replanner_loop,
    retention_loop,
)
from onbeat.loops.membership import membership_loop, sweeper_loop
from onbeat.loops.supervisor import StopSignal, Supervisor
from onbeat.services.assignment import Assignment
from onbeat.store.database_url import hide_password
from onbeat.telemetry import Metrics

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FireSeen:
    """An attempt that ended in this process, for whoever watches it."""

    job_id: str
    job_name: str
    run_id: str
    trigger: str
    attempt: int
    scheduled_at: int
    started_at: int
    duration_us: int
    outcome: str
    status: int | None
    error: str | None

    @property
    def lag_ms(self) -> float:
        """From the planned instant to the start of the attempt."""
        return (self.started_at - self.scheduled_at) / 1_000


@dataclass(frozen=True, slots=True)
class DevMode:
    """`onbeat dev`: no API keys, loopback only, and somebody watches."""

    on_fire: Callable[[FireSeen], None] | None = None
    on_ready: Callable[[str], None] | None = None


async def serve(settings: Settings, *, dev: DevMode | None = None) -> int:
    """A whole scheduler in one process: dispatcher, workers, maintenance and API. Answer: the exit code."""
    stop = StopSignal()
    stop.install()
    egress = EgressRules.for_development() if dev is not None else None
    server = ApiServer(settings.host, settings.port)
    async with contextlib.AsyncExitStack() as stack:
        try:
            services = await open_for_node(stack, settings, egress=egress, stop=stop, server=server)
            return EXIT_OK if services is None else await _Node(settings, services, stop, dev).run(server)
        finally:
            await server.stop()


class _Node:
    """One running scheduler process."""

    def __init__(self, settings: Settings, services: Services, stop: StopSignal, dev: DevMode | None) -> None:
        self._settings = settings
        self._services = services
        self._stop = stop
        self._dev = dev
        self._metrics = Metrics()
        self._name = process_name()
        self._membership = services.membership_of(
            self._name, about={"version": version("onbeat"), "pid": os.getpid(), "workers": settings.workers}
        )
        self._supervisor = Supervisor(on_failure=stop.trigger)
        self._delivering = self._make_delivering()

    async def run(self, server: ApiServer) -> int:
        """Until the stop signal. The order of the stop: no new fires and claims; what runs ends; the API; the rest."""
        services, firing, delivering = self._services, self._firing(), self._delivering
        self._listen()
        self._supervisor.start([*firing, *delivering.loops, *self._maintenance()])
        try:
            url = await server.serve(build_api(self._api()))
            log.info("listening", url=url, data=hide_password(self._settings.data), tzdata=TZDATA_VERSION)
            if self._dev is not None and self._dev.on_ready is not None:
                self._dev.on_ready(url)
            await self._stop.wait()
            for loop in firing:
                loop.stop()
            services.handoff.close()
            # Others fire in these slots while what runs here takes its time.
            _, drained = await asyncio.gather(self._leave(), delivering.drain())
        finally:
            await server.stop()
            await delivering.close()
            await self._supervisor.stop()
            await self._leave()
        return EXIT_OK if drained else EXIT_GAVE_BACK

    async def _leave(self) -> None:
        with contextlib.suppress(OnbeatError):
            await self._membership.leave()

    def _firing(self) -> list[Loop]:
        services = self._services
        dispatcher = dispatcher_loop(
            services.dispatch, clock=services.clock, wake=services.dispatch_wake, metrics=self._metrics
        )
        if not services.store.is_shared:
            return [dispatcher]
        return [
            dispatcher,
            second_dispatcher_loop(services.dispatch, clock=services.clock, metrics=self._metrics),
            sweeper_loop(services.dispatch, metrics=self._metrics),
        ]

    def _make_delivering(self) -> Deliverer | DeliveryProcesses:
        services, settings = self._services, self._settings
        if settings.delivery_processes and self._dev is None:
            return DeliveryProcesses(settings, services=services, metrics=self._metrics, node=self._name)
        return Deliverer(
            services.leasing_for(self._name),
            settings=settings,
            egress=services.egress,
            clock=services.clock,
            metrics=self._metrics,
            capacity=settings.workers,
            on_end=self._report_fire if self._dev is not None and self._dev.on_fire is not None else None,
        )

    def _listen(self) -> None:
        services = self._services
        services.running.listen(self._delivering.cancel)
        services.running.listen_for_doubt(self._delivering.doubt)
        services.endings.listen(self._metrics.observe_endings)

    def _maintenance(self) -> list[Loop]:
        services = self._services
        loops = [
            reaper_loop(services.reap),
            retention_loop(services.retain),
            replanner_loop(services.calendars, wake=services.replan_wake),
            pauses_loop(services.pauses, clock=services.clock, wake=services.pauses_wake),
            backfills_loop(services.backfills, clock=services.clock, wake=services.backfills_wake),
            membership_loop(self._membership, is_shared=services.store.is_shared),
        ]
        if services.store.is_shared:
            loops.append(hints_loop(services.hints))
        return loops

    def _api(self) -> ApiContext:
        services = self._services
        return ApiContext(
            jobs=services.jobs,
            calendars=services.calendars,
            blackouts=services.blackouts,
            almanac=services.almanac,
            runs=services.runs,
            resumptions=services.resumptions,
            callbacks=services.callbacks,
            pauses=services.pauses,
            backfills=services.backfills,
            leasing_for=services.leasing_for,
            keys=None if self._dev is not None else services.keys,
            secrets=services.secrets,
            idempotency=services.idempotency,
            nodes=services.nodes,
            clock=services.clock,
            counts=services.store.counts,
            failing_loops=lambda: list(dict.fromkeys([*self._supervisor.failing, *self._delivering.missing])),
            is_stopping=lambda: self._stop.is_set,
            metrics=self._metrics,
            allowed_hosts=self._settings.allowed_hosts,
            version=version("onbeat"),
        )

    def _report_fire(self, assignment: Assignment, outcome: Outcome) -> None:
        if self._dev is None or self._dev.on_fire is None:
            return
        self._dev.on_fire(
            FireSeen(
                job_id=format_job_id(assignment.key.job_id),
                job_name=assignment.job_name,
                run_id=format_run_id(assignment.key),
                trigger=assignment.trigger.value,
                attempt=assignment.attempt,
                scheduled_at=assignment.key.scheduled_at,
                started_at=outcome.started_at,
                duration_us=outcome.duration_us,
                outcome=outcome.kind.value,
                status=outcome.status,
                error=outcome.error,
            )
        )
