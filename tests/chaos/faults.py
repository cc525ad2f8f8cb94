"""Faults at random for processes that a test started: killed and started again, or frozen for longer than a lease."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from tests.support.process import ServerProcess

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US

STARTS_WITHIN_S = 240.0
_SET_CLOCKS_BACK = """
UPDATE clocks AS c SET next_fire_at = c.next_fire_at - 2000000
FROM (
    SELECT slot, job_id FROM clocks
    WHERE job_id = ANY($1) AND next_fire_at - 2000000 >= $2
    ORDER BY random() LIMIT 20
    FOR UPDATE SKIP LOCKED
) AS chosen
WHERE c.slot = chosen.slot AND c.job_id = chosen.job_id
"""

Start = Callable[[], AbstractAsyncContextManager[ServerProcess]]

HEALS_WITHIN_US = 20 * SECOND_US
"""After a fault: the lease of two seconds, sweeps, retries, and the backlog that has gathered."""

LOOKS_EVERY_S = 0.5


@dataclass
class Disturbances:
    """When faults and overload began and ended, for rules about time."""

    spans: list[tuple[int, int]] = field(default_factory=list)

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """While the block runs, and as long after it as healing takes."""
        begins_at = host_time_us()
        try:
            yield
        finally:
            self.spans.append((begins_at, host_time_us() + HEALS_WITHIN_US))

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Note overload of the machine while the block runs: more processes that want to run than processors, or a look
        that came late.
        """
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()

    async def _watch(self) -> None:
        looked_at = host_time_us()
        while True:
            await asyncio.sleep(LOOKS_EVERY_S)
            now = host_time_us()
            is_late = now - looked_at > 3 * LOOKS_EVERY_S * SECOND_US
            wanting = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
            if is_late or wanting > (os.cpu_count() or 1):
                self.spans.append((looked_at, now + round(LOOKS_EVERY_S * SECOND_US)))
            looked_at = now


@dataclass
class Victim:
    """One process and how to start it again. Every process of it is gone when the stack of the test ends."""

    name: str
    start: Start
    stack: contextlib.AsyncExitStack
    answers_health: bool
    disturbances: Disturbances
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
        with self.disturbances.fault():
            await self.running.kill()
            await self.begin()

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT."""
        self.suffered.append(f"frozen {seconds:.1f} s")
        pid = self.running.process.pid
        with self.disturbances.fault():
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def victims(
    *wanted: tuple[str, Start, bool], disturbances: Disturbances | None = None
) -> AsyncIterator[list[Victim]]:
    """Start these, in order: name, how, and whether it answers a health check."""
    noted = disturbances or Disturbances()
    async with contextlib.AsyncExitStack() as stack:
        started = [Victim(name, start, stack, answers_health, noted) for name, start, answers_health in wanted]
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
    instant twice; this shows what the identity of a fire, and the ranges of marks, are worth without them.
    """
    connection = await asyncpg.connect(url)
    try:
        while not until():
            await connection.execute(_SET_CLOCKS_BACK, job_ids, not_before)
            await asyncio.sleep(1)
    finally:
        await connection.close()
