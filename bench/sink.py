"""The receiver: trivial, outside of what is measured, and it notes when each fire arrived.

nginx where the machine has it, else a Python process on uvloop; the Python one also where answers have to take their
time. Both answer 204 and write one line per request: when it arrived, its webhook-id, its planned instant and the
address that it was sent to. Whoever else is measured beside onbeat sends the same two headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import uvloop
from tests.support.ports import free_port

from bench.measures import cpu_s_of_server
from bench.processes import stopping, wait_until_answers

ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
WRITTEN_AFTER_S: Final = 0.2
NGINX: Final = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-errors.log;
worker_processes 1;
events {{ worker_connections 8192; }}
http {{
    log_format arrivals '$msec $http_webhook_id $http_onbeat_scheduled_at $server_addr';
    access_log {folder}/arrivals.log arrivals buffer=64k flush=200ms;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        {listens}
        location / {{ return 204; }}
    }}
}}
"""


class Arrival(NamedTuple):
    """A request that named its planned instant."""

    at_s: float
    webhook_id: str
    planned_at_s: float
    address: str

    @property
    def lag_ms(self) -> float:
        return 1e3 * (self.at_s - self.planned_at_s)


@dataclass(frozen=True, slots=True)
class Sink:
    """A receiver that runs."""

    program: str
    pid: int
    port: int
    addresses: list[str]
    log: Path

    @property
    def url(self) -> str:
        """Of its first address."""
        return f"http://{self.addresses[0]}:{self.port}/hook"

    def cpu_s(self) -> float:
        """So far."""
        return cpu_s_of_server(self.pid)

    def arrivals(self) -> list[Arrival]:
        """In order; those of the last moment only after its end."""
        with self.log.open("rb") as lines:
            return [arrival for line in lines if (arrival := read_arrival(line)) is not None]


def read_arrival(line: bytes) -> Arrival | None:
    """None: it named no planned instant, or the line is not written to its end yet."""
    fields = line.decode().split()
    if len(fields) != 4 or not line.endswith(b"\n") or fields[2] == "-":
        return None
    return Arrival(float(fields[0]), fields[1], datetime.fromisoformat(fields[2]).timestamp(), fields[3])


@contextlib.contextmanager
def receiving(folder: Path, *, addresses: int = 1, slow_addresses: int = 0, slow_s: float = 0) -> Iterator[Sink]:
    """A receiver on so many addresses of loopback. The first `slow_addresses` of them answer after `slow_s`."""
    hosts = [f"127.0.0.{number + 1}" for number in range(addresses)]
    port = free_port()
    log = folder / "arrivals.log"
    version = nginx_version()
    if version is not None and not slow_addresses:
        listens = " ".join(f"listen {host}:{port};" for host in hosts)
        configuration = folder / "nginx.conf"
        configuration.write_text(NGINX.format(folder=folder, listens=listens))
        program, command = version, [_nginx() or "", "-c", str(configuration), "-e", str(folder / "nginx-errors.log")]
    else:
        code = "import sys; from bench.sink import run_sink; run_sink(*sys.argv[1:])"
        program = "bench/sink.py"
        command = [sys.executable, "-c", code, str(port), str(log), str(slow_addresses), str(slow_s), *hosts]
    with stopping(subprocess.Popen(command, stdout=subprocess.DEVNULL)) as process:
        wait_until_answers(port)
        yield Sink(program, process.pid, port, hosts, log)
        time.sleep(2 * WRITTEN_AFTER_S)


def nginx_version() -> str | None:
    """None: the machine has none."""
    nginx = _nginx()
    if nginx is None:
        return None
    said = subprocess.run([nginx, "-v"], capture_output=True, text=True, check=True).stderr
    return "nginx " + re.sub(r".*nginx/(\S+).*", r"\1", said.strip())


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class SinkProtocol(asyncio.Protocol):
    """Understands just enough to find where a request ends and what its headers say."""

    def __init__(self, log: BinaryIO, slow: frozenset[str], slow_s: float) -> None:
        self._log, self._slow, self._slow_s = log, slow, slow_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""
        self._address = transport.get_extra_info("sockname")[0]

    def data_received(self, data: bytes) -> None:
        arrived_s = time.time()  # noqa: TID251  the receiver's own clock: it is another program
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = int(_header(self._buffer, b"content-length", end) or 0)
            if len(self._buffer) < end + 4 + length:
                return
            webhook_id = _header(self._buffer, b"webhook-id", end) or b"-"
            planned_at = _header(self._buffer, b"onbeat-scheduled-at", end) or b"-"
            self._buffer = self._buffer[end + 4 + length :]
            self._log.write(b"%.6f %b %b %b\n" % (arrived_s, webhook_id, planned_at, self._address.encode()))
            if self._address in self._slow:
                asyncio.get_running_loop().call_later(self._slow_s, self._answer)
            else:
                self._transport.write(ANSWER)

    def _answer(self) -> None:
        if not self._transport.is_closing():  # who asked may have hung up meanwhile
            self._transport.write(ANSWER)


def _header(buffer: bytes, name: bytes, end: int) -> bytes | None:
    start = buffer.find(b"\r\n" + name + b": ", 0, end)
    if start < 0:
        return None
    start += len(name) + 4
    return buffer[start : buffer.find(b"\r\n", start)]


async def _serve(port: int, log: BinaryIO, hosts: list[str], slow: frozenset[str], slow_s: float) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: SinkProtocol(log, slow, slow_s), hosts, port, backlog=4096)
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), WRITTEN_AFTER_S)
        log.flush()
    server.close()


def run_sink(port: str, log: str, slow_addresses: str, slow_s: str, *hosts: str) -> None:
    """The whole process."""
    slow = frozenset(hosts[: int(slow_addresses)])
    with Path(log).open("wb") as file:
        uvloop.run(_serve(int(port), file, list(hosts), slow, float(slow_s)))
