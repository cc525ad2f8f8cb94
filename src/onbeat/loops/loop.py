"""The only endless loop. Everything that repeats is a step handed to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from onbeat.services.wake import Wake

log = structlog.get_logger(__name__)

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0
"""After an error a step is tried again soon, and at least this often: work resumes by itself within 10 s (P19)."""


class Loop:
    """Repeats a step until told to stop.

    1. Run the step; it answers how many seconds later to look again.
    2. Wait that long, or until woken; a wake-up during the step is not lost.
    3. An error of the step is logged and the step repeated with a growing, jittered delay: a loop never dies of one.
    """

    def __init__(self, name: str, step: Callable[[], Awaitable[float]], *, wake: Wake | None = None) -> None:
        self.name = name
        self.wake = wake if wake is not None else Wake()
        self.failures = 0  # in a row; 0 says that the loop is healthy
        self._step = step
        self._stopping = False

    def stop(self) -> None:
        """Finish the step under way and return."""
        self._stopping = True
        self.wake.set()

    async def run(self) -> None:
        """Repeat until `stop`."""
        while not self._stopping:
            try:
                delay_s = await self._step()
                self.failures = 0
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.failures += 1
                delay_s = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self.failures - 1, 10))
                delay_s *= random.uniform(0.5, 1.0)  # noqa: S311  spreads retries, protects nothing
                self._log_failure(error)
            if delay_s > 0 and not self._stopping:
                await self.wake.wait(delay_s)
            else:
                await asyncio.sleep(0)

    def _log_failure(self, error: Exception) -> None:
        # The first failure tells everything; the next ones one line each, so that an outage does not fill the disk.
        log.error("loop_failed", loop=self.name, failures=self.failures, error=repr(error), exc_info=self.failures == 1)
