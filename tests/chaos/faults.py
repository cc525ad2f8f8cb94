"""Faults at random for processes that a test started: killed and started again, or frozen for longer than a lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from tests.support.process import ServerProcess

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
            assert await self.process.wait_ready(), f"{self.name} died at its start: see {self.process.log}"

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


async def torment(chosen: list[Victim], *, until: Callable[[], bool], lease_s: float, dice: random.Random) -> None:
    """One fault after the other, most of them for one victim at a time, until told."""
    while not until():
        victim = dice.choice(chosen)
        if dice.random() < 0.4:
            await victim.kill()
        else:
            await victim.freeze(lease_s * dice.uniform(1.3, 2.5))
        await asyncio.sleep(dice.uniform(0.2, 0.8))
