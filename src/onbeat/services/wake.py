"""Wake-ups between a service that changed something and whoever waits for it, inside one process.

A hint and never the truth: whoever waits also looks by itself after a while. Waiting never loses a wake-up, since the
event stays set until the waiter has taken it.
"""

from __future__ import annotations

import asyncio
import contextlib


class Wake:
    """An event that one waiter takes: set it any number of times, the waiter runs once more."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """There is something to look at."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for `set` or the timeout, and take the wake-up. True: it was set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(timeout_s, 0)):
                await self._event.wait()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
