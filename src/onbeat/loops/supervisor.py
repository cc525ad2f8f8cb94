"""Starts and stops the loops of a process in order. Signals end here."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

import structlog

from onbeat.loops.loop import Loop

log = structlog.get_logger(__name__)

EXIT_FORCED = 130
"""Exit code after a second signal: the process leaves at once, leases end by themselves."""


class StopSignal:
    """SIGTERM, SIGINT and SIGHUP ask for a graceful stop; a second one leaves at once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def install(self) -> None:
        """Take over the signals of the running event loop. Works as process 1 in a container too."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive, number)

    def trigger(self) -> None:
        """Ask for a graceful stop from inside."""
        self._event.set()

    async def wait(self) -> None:
        """Until somebody asks for a stop."""
        await self._event.wait()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def _receive(self, number: signal.Signals) -> None:
        if self._event.is_set():
            log.warning("stop_forced", signal=number.name)
            os._exit(EXIT_FORCED)
        log.info("stopping", signal=number.name)
        self._event.set()


class Supervisor:
    """Runs loops as tasks; a loop that returns early, which must not happen, stops the process loudly."""

    def __init__(self, *, on_failure: Callable[[], None]) -> None:
        self._loops: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._on_failure = on_failure

    @property
    def failing(self) -> list[str]:
        """Names of the loops whose last step failed."""
        return [loop.name for loop in self._loops if loop.failures]

    def start(self, loops: Sequence[Loop]) -> None:
        """Run these from now on."""
        for loop in loops:
            task = asyncio.create_task(loop.run(), name=loop.name)
            task.add_done_callback(self._notice_end)
            self._loops.append(loop)
            self._tasks.append(task)

    async def stop(self) -> None:
        """Let every loop finish its step."""
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _notice_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("loop_died", loop=task.get_name(), error=repr(task.exception()))
            self._on_failure()
