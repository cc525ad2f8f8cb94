"""Processes that are measured: started on a free port, waited for, and read from /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx


def free_port() -> int:
    """A port on loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def onbeat_dev(data: Path, *, port: int, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`onbeat dev` over `data`; keyword arguments are settings. Stopped in order at the end."""
    environment = {f"ONBEAT_{name.upper()}": value for name, value in settings.items()}
    with stopping(
        subprocess.Popen(
            [sys.executable, "-m", "onbeat", "dev", "--data", str(data), "--port", str(port)],
            env=os.environ | {"ONBEAT_LOG_LEVEL": "error"} | environment,
            stdout=subprocess.DEVNULL,
        )
    ) as server:
        yield server


@contextlib.contextmanager
def stopping(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """SIGTERM at the end, and wait."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def wait_until_up(url: str) -> None:
    """Until `url` answers anything."""
    async with asyncio.timeout(60), httpx.AsyncClient() as http:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(url)).status_code:
                    return
            await asyncio.sleep(0.02)


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
