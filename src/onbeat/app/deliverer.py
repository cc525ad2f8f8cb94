"""A worker and the sender that works for it: what delivers, in a node, beside it, or on another machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onbeat.app.egress import egress_proxy
from onbeat.clock import Clock
from onbeat.config import Settings
from onbeat.delivery.sender import Sender
from onbeat.domain.egress import EgressRules
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome
from onbeat.loops.loop import Loop
from onbeat.loops.worker import LOCAL_CLAIM_WAIT_S, Worker
from onbeat.services.assignment import Assignment, WorkerLink
from onbeat.telemetry import Metrics


class Deliverer:
    """Delivers what its link grants, from the start of its loops to `close`."""

    missing: Sequence[str] = ()
    """It is there as long as its process is."""

    def __init__(
        self,
        link: WorkerLink,
        *,
        settings: Settings,
        egress: EgressRules,
        clock: Clock,
        metrics: Metrics,
        capacity: int,
        claim_wait_s: float = LOCAL_CLAIM_WAIT_S,
        on_end: Callable[[Assignment, Outcome], None] | None = None,
    ) -> None:
        self._drain_s = settings.drain_s
        self._worker = Worker(
            link,
            clock=clock,
            metrics=metrics,
            capacity=capacity,
            heartbeat_s=settings.heartbeat_s,
            claim_wait_s=claim_wait_s,
            on_end=on_end,
        )
        self._sender = Sender(
            rules=egress, clock=clock, ask_permit=self._worker.ask_permit, proxy=egress_proxy(settings)
        )
        self._worker.attach(self._sender)

    @property
    def loops(self) -> Sequence[Loop]:
        """To be started together."""
        return self._worker.loops

    def cancel(self, key: RunKey) -> None:
        """A person cancelled that run: stop its attempt here, now."""
        self._worker.cancel(key)

    def doubt(self, key: RunKey) -> None:
        """Another process says that this run was asked to stop."""
        self._worker.doubt(key)

    async def drain(self) -> bool:
        """Stop claiming and let what runs end for up to `drain_s`. True: everything ended."""
        return await self._worker.drain(self._drain_s)

    async def close(self) -> None:
        """End what still runs."""
        await self._sender.close()
