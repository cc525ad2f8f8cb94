"""The delivery processes of a node: started, served, started again when one dies, drained when the node stops.

One Python process uses one core, and half of it goes into requests and answers. With delivery processes a node's
decisions, its database and its API have that core to themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import structlog

from onbeat.app.pipe_end import PipeEnd
from onbeat.app.process import EXIT_GAVE_BACK, EXIT_OK
from onbeat.app.services import Services
from onbeat.client.frames import Frames
from onbeat.client.pipe import Begin, Call
from onbeat.config import Settings
from onbeat.domain.ids import RunKey
from onbeat.loops.loop import Loop
from onbeat.telemetry import Metrics

log = structlog.get_logger(__name__)

START_AGAIN_AFTER_S: Final = 1.0
"""After a death: often enough for the leases of its runs to be what is waited for, not so often as to fill the log."""

LEAVES_WITHIN_S: Final = 15.0
"""Beyond `drain_s`, a process that is told to leave may take this long before it is killed."""

SILENT_AFTER_S: Final = 30.0
"""A process asks for the time every 10 s: one that has said nothing for so long stands still."""

_OWN_SETTINGS: Final = {"data", "master_key"}
_OWN_ENVIRONMENT: Final = ("ONBEAT_", "PG")
"""What a process that sends webhooks has no business with: the way to the database, and the key to its secrets."""


class DeliveryProcesses:
    """As many as the settings say; together they run up to `workers` attempts at once."""

    def __init__(self, settings: Settings, *, services: Services, metrics: Metrics, node: str) -> None:
        count = settings.delivery_processes
        started_as = version("onbeat")  # read now: another one may be installed when a process is started again
        share, rest = divmod(settings.workers, count)
        self._drain_s = settings.drain_s
        self._processes = [
            _DeliveryProcess(
                f"{node}/{number + 1}",
                Begin(share + (number < rest), settings.model_dump_json(exclude=_OWN_SETTINGS)),
                started_as=started_as,
                services=services,
                metrics=metrics,
            )
            for number in range(count)
        ]
        self._loops = [
            Loop(f"delivery-process-{number + 1}", process.live) for number, process in enumerate(self._processes)
        ]

    @property
    def loops(self) -> Sequence[Loop]:
        """To be started together. A step is the life of a process."""
        return self._loops

    @property
    def missing(self) -> list[str]:
        """The loops whose process is not there now, has not said a word yet, or stands still."""
        pairs = zip(self._loops, self._processes, strict=True)
        return [loop.name for loop, process in pairs if not process.is_there]

    def cancel(self, key: RunKey) -> None:
        """A person cancelled that run: stop its attempt, in whichever process it is."""
        for process in self._processes:
            process.cancel(key)

    def doubt(self, key: RunKey) -> None:
        """Another node says that this run was asked to stop."""
        for process in self._processes:
            process.doubt(key)

    async def drain(self) -> bool:
        """Let what runs end for up to `drain_s`. True: everything ended."""
        for loop in self._loops:
            loop.stop()
        limit_s = self._drain_s + LEAVES_WITHIN_S
        codes = await asyncio.gather(*(process.drain(limit_s) for process in self._processes))
        return all(code == EXIT_OK for code in codes)

    async def close(self) -> None:
        """Leave nobody behind, however this node ends."""
        for loop, process in zip(self._loops, self._processes, strict=True):
            loop.stop()
            process.hang_up()


class _DeliveryProcess:
    """One of them, over all its lives."""

    def __init__(self, name: str, begin: Begin, *, started_as: str, services: Services, metrics: Metrics) -> None:
        self._name = name
        self._begin = begin
        self._started_as = started_as
        self._services = services
        self._metrics = metrics
        self._end: PipeEnd | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._is_leaving = False

    @property
    def is_there(self) -> bool:
        return self._end is not None and self._end.silent_s < SILENT_AFTER_S

    async def live(self) -> float:
        """Start it and serve it until it is gone. Answer: after how long to start it again."""
        if self._is_leaving:
            return START_AGAIN_AFTER_S
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = self._process = await self._start(theirs)
        except BaseException:
            ours.close()
            raise
        try:
            code = await self._serve(ours, process)
        finally:
            self._end = None
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self._process = None
        if not self._is_leaving:
            log.error("delivery_process_died", process=self._name, pid=process.pid, code=code)
        return START_AGAIN_AFTER_S

    def cancel(self, key: RunKey) -> None:
        if self._end is not None:
            self._end.cancel(key)

    def doubt(self, key: RunKey) -> None:
        if self._end is not None:
            self._end.doubt(key)

    async def drain(self, limit_s: float) -> int:
        """Answer: its exit code; one that was not there, or has not begun, has nothing to drain."""
        self._is_leaving = True
        process = self._process
        if process is None or self._end is None or not self._end.was_heard:
            self.hang_up()
            return EXIT_OK
        self._end.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                return await process.wait()
        self.hang_up()
        return EXIT_GAVE_BACK

    def hang_up(self) -> None:
        self._is_leaving = True
        if self._end is not None:
            self._end.hang_up()

    async def _start(self, connected: socket.socket) -> asyncio.subprocess.Process:
        # -P: modules come from where the node's come from, never from files that happen to lie where it was started.
        command = [sys.executable, "-P", "-m", "onbeat.app.delivery_child", str(connected.fileno()), self._started_as]
        environment = {name: text for name, text in os.environ.items() if not name.startswith(_OWN_ENVIRONMENT)}
        # In a session of its own, an interrupt at the terminal does not reach it before it can ignore one.
        return await asyncio.create_subprocess_exec(
            *command, pass_fds=[connected.fileno()], env=environment, start_new_session=True
        )

    async def _serve(self, connected: socket.socket, process: asyncio.subprocess.Process) -> int:
        frames: Frames[Call] = await Frames.open(connected, reads=Call)
        services = self._services
        end = self._end = PipeEnd(
            frames, leasing=services.leasing_for(self._name), clock=services.clock, metrics=self._metrics
        )
        if self._is_leaving:
            end.hang_up()
        with contextlib.suppress(ConnectionError):
            await frames.send(self._begin)
        await end.serve()
        # It hung up, so it is dead or about to be; one that stands still is not waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_AGAIN_AFTER_S):
                return await process.wait()
        return -9
