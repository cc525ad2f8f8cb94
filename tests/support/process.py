"""Real scheduler processes: started, waited for, killed by their own id."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
from tests.support.ports import free_port
from tests.support.starting import Process, Start, start_interpreter

from onbeat.api.awaiting import AWAITED

QUICK = {"ONBEAT_LEASE_S": "1", "ONBEAT_HEARTBEAT_S": "0.25", "ONBEAT_DRAIN_S": "5", "ONBEAT_LOG_LEVEL": "warning"}
"""Production lengths, scaled down: the same code with a lease of one second."""


class ServerProcess:
    """One process of ours."""

    def __init__(self, process: Process, url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def wait_ready(self, *, timeout_s: float = 90.0) -> bool:
        """Until it has its database and answers. False: it died before."""
        async with asyncio.timeout(timeout_s), httpx.AsyncClient() as http:
            while self.is_running:
                with contextlib.suppress(httpx.TransportError):
                    if AWAITED not in (await http.get(f"{self.url}/readyz")).text:
                        return True
                await asyncio.sleep(0.02)
        return False

    async def stop(self) -> int:
        """SIGTERM; answer: the exit code."""
        if self.is_running:
            self.process.send_signal(signal.SIGTERM)
        return await self.wait_exit()

    async def kill(self) -> None:
        """SIGKILL."""
        if self.is_running:
            self.process.kill()
        await self.wait_exit()

    async def wait_exit(self, *, timeout_s: float = 30.0) -> int:
        """The exit code; negative numbers are signals."""
        async with asyncio.timeout(timeout_s):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def running(
    command: Callable[[int], list[str]],
    *,
    log: Path,
    port: int | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    start: Start = start_interpreter,
) -> AsyncIterator[ServerProcess]:
    """Start `python <command(port)>` and make sure that it is gone at the end."""
    chosen = port or free_port()
    with log.open("ab") as output:
        process = await start(command(chosen), output=output, env=os.environ | (env or {}), cwd=cwd)
    server = ServerProcess(process, f"http://127.0.0.1:{chosen}", log)
    try:
        yield server
    finally:
        await server.kill()
