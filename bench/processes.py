"""Processes that are measured: started on a free port, waited for, and read from /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx

UP_WITHIN_S = 60.0


@contextlib.contextmanager
def onbeat(*arguments: str, settings: Mapping[str, str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """`onbeat <arguments>`, stopped in order at the end. Without a file for its log it tells errors only."""
    environment = {"ONBEAT_LOG_LEVEL": "info" if log else "error"}
    environment |= {f"ONBEAT_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "onbeat", *arguments]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=output)
        yield stack.enter_context(stopping(process))


@contextlib.contextmanager
def onbeat_dev(data: Path | str, *, port: int, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """`onbeat dev` over `data`."""
    with onbeat("dev", "--data", str(data), "--port", str(port), settings=settings) as server:
        yield server


@contextlib.contextmanager
def stopping(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """SIGTERM at the end, and wait."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def wait_until_up(url: str) -> None:
    """Until `url` answers anything."""
    async with asyncio.timeout(UP_WITHIN_S), httpx.AsyncClient() as http:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(url)).status_code:
                    return
            await asyncio.sleep(0.02)


def wait_until_logged(log: Path, event: str) -> None:
    """Until a process of ours has said so."""
    must_have_by = time.monotonic() + UP_WITHIN_S
    while event not in log.read_text():
        if time.monotonic() > must_have_by:
            raise TimeoutError(f"{event} is not in:\n{log.read_text()}")
        time.sleep(0.05)


def wait_until_answers(port: int) -> None:
    """Until somebody listens there."""
    must_answer_by = time.monotonic() + UP_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > must_answer_by:
                raise
            time.sleep(0.02)
        else:
            return


def cpu_s(pid: int) -> float:
    """User and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
