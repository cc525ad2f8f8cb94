"""When the next run of each queue is ready: one look into the database for all claims that wait for that queue."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from weakref import WeakValueDictionary

from onbeat.services.handoff import Handoff
from onbeat.store.contract import Store

LOOK_EVERY_S = 0.25
"""How often waiting claims look for runs that another process made ready, and did not hint at."""


@dataclass(frozen=True, slots=True)
class ReadyLook:
    """What one look found."""

    ready_at: int | None  # None: nothing waits
    wakes: int  # the hand-off's count from before it
    looked_at: float  # on the event loop's clock

    def is_ready(self, *, now: int) -> bool:
        """Is there something to claim?"""
        return self.ready_at is not None and self.ready_at <= now

    @property
    def is_fresh(self) -> bool:
        """Is it too early to look again?"""
        return self._stale_in_s > 0

    def next_look_s(self, *, now: int) -> float:
        """How long whoever found nothing to do may wait: until the run in sight is ready, or somebody must look. Not at
        all for one that became ready since.
        """
        wait_s = self._stale_in_s
        if self.ready_at is not None:
            wait_s = min(wait_s, (self.ready_at - now) / 1e6)
        return max(wait_s, 0.0)

    @property
    def _stale_in_s(self) -> float:
        return self.looked_at + LOOK_EVERY_S - asyncio.get_running_loop().time()


class Readiness:
    """Looks for those that wait. At most four times a second for a queue, however many they are."""

    def __init__(self, *, store: Store, handoff: Handoff) -> None:
        self._store = store
        self._handoff = handoff
        self._last: dict[str | None, ReadyLook] = {}
        self._looking: WeakValueDictionary[str | None, asyncio.Lock] = WeakValueDictionary()

    def put_off(self) -> ReadyLook:
        """In place of a look, for whoever has looked just now: as if nothing was there."""
        return ReadyLook(None, self._handoff.wakes, asyncio.get_running_loop().time())

    async def look(self, queue: str | None, *, now: int) -> ReadyLook:
        """Look now."""
        wakes = self._handoff.wakes
        ready_at = await self._store.leases.next_ready_at(queue=queue, now=now)
        return ReadyLook(ready_at, wakes, asyncio.get_running_loop().time())

    async def look_again(self, queue: str | None, *, now: int) -> ReadyLook:
        """For a claim that has looked before and has waited: where another one has found nothing meanwhile, that does
        for it, too.
        """
        async with self._looking.setdefault(queue, asyncio.Lock()):
            last = self._last.get(queue)
            if last is None or not last.is_fresh or last.wakes != self._handoff.wakes or last.is_ready(now=now):
                last = await self.look(queue, now=now)
                self._last = {name: look for name, look in self._last.items() if look.is_fresh} | {queue: last}
            return last
