"""A trivial receiver in a process of its own: answers 204 to everything and notes how late each fire arrived.

Until SIGTERM; then it reports, in order of arrival, when each fire arrived, in seconds since 1970, and how many
milliseconds that was after its planned instant.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

from bench.processes import stopping

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Arrivals(NamedTuple):
    """What a sink saw."""

    at_s: list[float]
    lags_ms: list[float]

    def between(self, from_s: float, to_s: float) -> list[float]:
        """The lags of those that arrived in between, shortest first."""
        return sorted(lag for at, lag in zip(self.at_s, self.lags_ms, strict=True) if from_s <= at < to_s)


class SinkProtocol(asyncio.Protocol):
    """Understands just enough to find where a request ends and when it was planned."""

    at_s = array("d")
    lags_ms = array("d")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        arrived_s = time.time()  # noqa: TID251  the receiver's own clock: it is another program
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = int(_header(self._buffer, b"content-length", end) or 0)
            if len(self._buffer) < end + 4 + length:
                return
            scheduled_at = _header(self._buffer, b"onbeat-scheduled-at", end)
            self._buffer = self._buffer[end + 4 + length :]
            if scheduled_at is not None:
                self.at_s.append(arrived_s)
                self.lags_ms.append(1e3 * (arrived_s - datetime.fromisoformat(scheduled_at.decode()).timestamp()))
            self._transport.write(ANSWER)


def _header(buffer: bytes, name: bytes, end: int) -> bytes | None:
    start = buffer.find(b"\r\n" + name + b": ", 0, end)
    if start < 0:
        return None
    start += len(name) + 4
    return buffer[start : buffer.find(b"\r\n", start)]


@contextlib.contextmanager
def sink(port: int, report: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A sink's process while the block runs."""
    program = "import sys; from bench.sink import run_sink; run_sink(*sys.argv[1:])"
    with stopping(subprocess.Popen([sys.executable, "-c", program, str(port), str(report)])) as process:
        yield process


def read_report(report: Path) -> Arrivals:
    """What a sink that has ended wrote."""
    return Arrivals(**json.loads(report.read_text()))


async def _serve(port: int, report: Path) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(SinkProtocol, "127.0.0.1", port)
    await stop.wait()
    server.close()
    arrivals = Arrivals(SinkProtocol.at_s.tolist(), SinkProtocol.lags_ms.tolist())
    report.write_text(json.dumps(arrivals._asdict()))


def run_sink(port: str, report: str) -> None:
    """The whole process."""
    uvloop.run(_serve(int(port), Path(report)))
