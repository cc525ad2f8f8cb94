"""This node among the others: its heartbeat, who else lives, and what share of the slots it serves because of that.

No node leads. Each writes its own row and reads those of the others; the database's time says who is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from onbeat.clock import Clock
from onbeat.domain.model import SECOND_US
from onbeat.domain.rendezvous import share_of
from onbeat.services.dispatch import Dispatch
from onbeat.services.recovery import Recovery
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import NodeInfo

log = structlog.get_logger(__name__)

NODE = "node"
"""The kind of a process that has a dispatcher."""

DEAD_AFTER_S = 3.0
"""A node that was not heard of for this long has died: three beats. With a look each second its slots are served again
within 4.5 s of its last beat (design: 5 s). One that was merely slow goes on as before once it beats again.
"""

SILENT_AFTER_S = 15.0
"""The same where no other process works on the database, and a beat comes each 5 s: for people only."""


class Membership:
    """Keeps this node's row fresh and tells its dispatcher which slots to serve."""

    def __init__(
        self,
        *,
        name: str,
        about: Mapping[str, str | int],
        store: Store,
        clock: Clock,
        dispatch: Dispatch,
        recovery: Recovery,
        dispatch_wake: Wake,
    ) -> None:
        """`about`: what people want to know of this process."""
        self._name = name
        self._about = about
        self._store = store
        self._clock = clock
        self._dispatch = dispatch
        self._recovery = recovery
        self._dispatch_wake = dispatch_wake
        self._started_at = clock.now()
        self._others: frozenset[str] = frozenset()
        self._slots = store.slots  # so many are its own
        self._left = False
        self._beating = asyncio.Lock()  # a beat under way when the node leaves must not write its row after that

    async def beat(self) -> None:
        """Write the heartbeat; where others may have come or gone, look who lives and take the share that follows."""
        async with self._beating:
            if self._left:
                return
            now = self._clock.now()
            await self._store.nodes.beat(
                NodeInfo(
                    name=self._name,
                    kind=NODE,
                    started_at=self._started_at,
                    seen_at=now,
                    detail=msgspec.json.encode(self._detail()).decode(),
                )
            )
        if self._store.is_shared:
            found = await self._store.nodes.find(seen_after=now - round(DEAD_AFTER_S * SECOND_US))
            others = frozenset(node.name for node in found if node.kind == NODE) - {self._name}
            self._store.hint_to_others(bool(others))
            self._take_share(others)

    async def leave(self) -> None:
        """Beat no more and take the row away: the others serve these slots from their next beat on."""
        async with self._beating:
            self._left = True
            await self._store.nodes.leave(self._name)

    def _take_share(self, others: frozenset[str]) -> None:
        if others == self._others:
            return
        share = share_of(self._name, nodes={self._name, *others}, slots=self._store.slots)
        self._others = others
        self._dispatch.serve(share)
        self._recovery.share_among(len(others) + 1)
        self._dispatch_wake.set()
        self._slots = self._store.slots if share is None else len(share.own)
        log.info("slots_shared", nodes=len(others) + 1, slots=self._slots)

    def _detail(self) -> dict[str, str | int]:
        return {**self._about, "slots": self._slots, "clock_skew_us": self._clock.skew_us}
