"""What of the leases looks for runs in all slots, one slot at a time: claims, the next run of a queue, expiry.

Several nodes and workers look at the same time, each in an order of its own. No claim sees all lines of a queue at
once, so priorities hold within a slot, and between slots what has been ready longest goes first, as far as is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from onbeat.domain.errors import OnbeatError
from onbeat.store.postgres.claims import FROM_THE_BEGINNING, claim, first_ready
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.looks import MOST_LOOKS, Look, Looks
from onbeat.store.values import Finished, Lease, LeasedRun


class LeasesBySlot:
    """Of one database."""

    def __init__(self, *, database: Database, slots: int, looks: Looks) -> None:
        self._database = database
        self._slots = slots
        self._looks = looks
        self._expires_from = 0

    async def next_ready_at(self, queue: str | None) -> int | None:
        """The first that is known, once those slots were looked into of which nothing is known."""
        ready = self._looks.ready(queue)
        for slot in ready.unknown():
            look = ready.look(slot)

            async def read(connection: Connection, look: Look = look) -> None:
                look.found(await _next_ready_at(connection, queue))

            await self._database.prompt.read(read, look=look)
        return ready.earliest()

    async def claim(self, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
        """From slot to slot, the one with the oldest run first, until there is a run for each lease."""
        await self.next_ready_at(queue)
        ready = self._looks.ready(queue)
        claimed: list[LeasedRun] = []
        for slot in ready.due(now=now):
            left = leases[len(claimed) :]
            look = ready.look(slot)

            async def write(connection: Connection, left: Sequence[Lease] = left, look: Look = look) -> list[LeasedRun]:
                found = await claim(connection, left, FROM_THE_BEGINNING, now=now, queue=queue)
                look.found(now if len(found) == len(left) else await _next_ready_at(connection, queue))
                return found

            try:
                claimed += await self._database.prompt.write(write, look=look)
            except OnbeatError:
                if not claimed:
                    raise
                break  # those that are leased already must be told of
            if len(claimed) == len(leases):
                break
        return claimed

    async def expire(self, limit: int, work: Callable[[int, int], Awaitable[list[Finished]]]) -> list[Finished]:
        """Round and round over all slots, no more than MOST_LOOKS of them in one call."""
        expired: list[Finished] = []
        for _ in range(min(self._slots, MOST_LOOKS)):
            slot = self._expires_from
            self._expires_from = (slot + 1) % self._slots
            try:
                expired += await work(limit - len(expired), slot)
            except OnbeatError:
                if not expired:
                    raise
                break  # what was taken back must be told
            if len(expired) >= limit:
                break
        return expired


async def _next_ready_at(connection: Connection, queue: str | None) -> int | None:
    ready_ats = await first_ready(connection, FROM_THE_BEGINNING, queue=queue)
    return min((ready_at for ready_at in ready_ats if ready_at is not None), default=None)
