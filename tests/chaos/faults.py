"""Faults at random for processes that a test started: killed and started again, or frozen for longer than a lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import asyncpg
from tests.support.process import ServerProcess

STARTS_WITHIN_S = 90.0
_SET_CLOCKS_BACK = """
UPDATE clocks AS c SET next_fire_at = c.next_fire_at - 2000000
FROM (
    SELECT slot, job_id FROM clocks
    WHERE job_id = ANY($1) AND next_fire_at - 2000000 >= $2
    ORDER BY random() LIMIT 5
    FOR UPDATE SKIP LOCKED
) AS chosen
WHERE c.slot = chosen.slot AND c.job_id = chosen.job_id
"""

Start = Callable[[], AbstractAsyncContextManager[ServerProcess]]


@dataclass
class Victim:
    """One process and how to start it again. Every process of it is gone when the stack of the test ends."""

    name: str
    start: Start
    stack: contextlib.AsyncExitStack
    answers_health: bool
    process: ServerProcess | None = None
    suffered: list[str] = field(default_factory=list)

    @property
    def running(self) -> ServerProcess:
        assert self.process is not None, f"{self.name} was never started"
        return self.process

    async def begin(self) -> None:
        """Start it; a server also answers its health check."""
        self.process = await self.stack.enter_async_context(self.start())
        if self.answers_health:
            assert await self.process.wait_ready(timeout_s=STARTS_WITHIN_S), (
                f"{self.name} died at its start: see {self.process.log}"
            )

    async def kill(self) -> None:
        """SIGKILL, then another process in its place."""
        self.suffered.append("killed")
        await self.running.kill()
        await self.begin()

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT."""
        self.suffered.append(f"frozen {seconds:.1f} s")
        pid = self.running.process.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def victims(*wanted: tuple[str, Start, bool]) -> AsyncIterator[list[Victim]]:
    """Start these, in order: name, how, and whether it answers a health check."""
    async with contextlib.AsyncExitStack() as stack:
        started = [Victim(name, start, stack, answers_health) for name, start, answers_health in wanted]
        for victim in started:
            await victim.begin()
        yield started


async def torment(
    chosen: Sequence[Victim], *, until: Callable[[], bool], longest_freeze_s: float, dice: random.Random
) -> None:
    """One fault after the other, for one victim at a time, until told."""
    while not until():
        victim = dice.choice(chosen)
        if dice.random() < 0.4:
            await victim.kill()
        else:
            await victim.freeze(longest_freeze_s * dice.uniform(0.5, 1.0))
        await asyncio.sleep(dice.uniform(0.2, 0.8))


async def set_clocks_back(url: str, job_ids: Sequence[int], *, not_before: int, until: Callable[[], bool]) -> None:
    """Let clocks of these jobs show instants that are recorded. The locks of dispatchers keep them from recording an
    instant twice; this shows what the identity of a fire is worth without them.

    The jobs must be such that every instant becomes a run: a range of instants that are marked together is believed.
    """
    connection = await asyncpg.connect(url)
    try:
        while not until():
            await connection.execute(_SET_CLOCKS_BACK, job_ids, not_before)
            await asyncio.sleep(1)
    finally:
        await connection.close()
