"""How many signed POSTs a second the sender delivers to a trivial local sink, and how far that is from the limit.

The sink is another process: uvloop, one `asyncio.Protocol`, a fixed answer. The limit is a bare keep-alive loop against
the same sink in the same run: fixed bytes out, `httptools` in, no signing, no deadlines, no pool. Both use the same
number of connections. Bounded by --exchanges. Then the same over TLS (1.3, with a certificate made for the run and
verified), and with a new connection for every webhook, as jobs get that fire once a minute.

    python bench/sender.py [--exchanges 60000] [--connections 32] [--loop uvloop|asyncio]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Coroutine
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop
from tests.delivery.authority import make_authority

from onbeat.clock import boottime_s, host_time_us
from onbeat.delivery.limits import SenderLimits
from onbeat.delivery.request import Delivery
from onbeat.delivery.sender import Sender
from onbeat.delivery.tls import create_tls_context
from onbeat.domain.egress import EgressRules
from onbeat.domain.ids import RunKey
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import Trigger

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
LAST_ANSWER = ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
ONE_EACH_SHARE = 20  # a connection costs so much more than an exchange that this part of them is enough
BATCH = 64


class SinkProtocol(asyncio.Protocol):
    """Answers every request; understands just enough to find where one ends, and if it is the connection's last."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (head_end := self._buffer.find(b"\r\n\r\n")) >= 0:
            at = self._buffer.find(b"content-length: ") + 16
            end = head_end + 4 + int(self._buffer[at : self._buffer.find(b"\r", at)])
            if len(self._buffer) < end:
                return
            is_last = self._buffer.startswith(b"POST /last ")
            self._buffer = self._buffer[end:]
            self._transport.write(LAST_ANSWER if is_last else ANSWER)


def run_sink(pipe: Pipe, folder: Path) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        tls = make_authority(folder).serve("127.0.0.1")
        servers = [await loop.create_server(SinkProtocol, "127.0.0.1", 0, ssl=context) for context in (None, tls)]
        pipe.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.gather(*(server.serve_forever() for server in servers))

    uvloop.run(serve())


class BareClient(asyncio.Protocol):
    """The limit: writes the same bytes again as soon as an answer is complete."""

    def __init__(self, request: bytes, left: list[int], done: asyncio.Event) -> None:
        self._request, self._left, self._done = request, left, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._left[0] -= 1
        if self._left[0] > 0:
            self._transport.write(self._request)
        else:
            self._transport.close()
            self._done.set()


async def measure_bare(port: int, *, exchanges: int, connections: int, request: bytes) -> tuple[float, float]:
    done, left = asyncio.Event(), [exchanges]
    started, cpu = time.perf_counter(), time.process_time()
    for _ in range(connections):
        await asyncio.get_running_loop().create_connection(lambda: BareClient(request, left, done), "127.0.0.1", port)
    await done.wait()
    return time.perf_counter() - started, time.process_time() - cpu


class HostClock:
    """The host's clocks, as on SQLite."""

    skew_us = 0

    def now(self) -> int:
        return host_time_us()

    def boottime(self) -> float:
        return boottime_s()

    async def refresh(self) -> None:
        return


async def grant(delivery: Delivery) -> bool:
    return True


async def measure_sender(url: str, *, ca_file: Path, exchanges: int, connections: int) -> tuple[float, float]:
    sender = Sender(
        rules=EgressRules.for_development(),
        clock=HostClock(),
        ask_permit=grant,
        ssl_context=create_tls_context(ca_file=ca_file),
        limits=SenderLimits(connections_per_origin=connections),
    )
    target = WebhookTarget(url=url, payload='{"report":"daily","customer":4711}')
    keys = (os.urandom(32),)
    first_at = host_time_us()
    done, begun, ended = asyncio.Event(), 0, 0

    def feed(count: int) -> None:
        nonlocal begun
        count = min(count, exchanges - begun)
        granted = boottime_s()
        sender.send(
            [
                Delivery(
                    key=RunKey(job_id=1 + number % 1_000, scheduled_at=first_at + number),
                    token=b"",
                    attempt=1,
                    trigger=Trigger.SCHEDULE,
                    job_key="daily-report",
                    job_name="Daily report",
                    target=target,
                    keys=keys,
                    timeout_s=30,
                    granted=granted,
                )
                for number in range(begun, begun + count)
            ],
            record,
        )
        begun += count

    def record(_: Delivery, outcome: Outcome) -> None:
        nonlocal ended
        if outcome.kind is not OutcomeKind.SUCCEEDED:
            raise SystemExit(f"the sink's answer was not understood: {outcome}")
        ended += 1
        if ended % BATCH == 0 and begun < exchanges:
            feed(BATCH)
        if ended == exchanges:
            done.set()

    started, cpu = time.perf_counter(), time.process_time()
    feed(2 * max(connections, BATCH))
    await done.wait()
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    await sender.close()
    return wall, cpu


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--exchanges", type=int, default=60_000)
    options.add_argument("--connections", type=int, default=32)
    options.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    given = options.parse_args()
    run = uvloop.run if given.loop == "uvloop" else asyncio.run
    with tempfile.TemporaryDirectory() as folder:
        rows = _measure(Path(folder), run, exchanges=given.exchanges, connections=given.connections)
    print(f"{given.exchanges} exchanges, {given.connections} connections, {given.loop}; sink: uvloop, other process")
    print(f"{'client':<40}{'exchanges/s':>12}{'µs each':>10}{'CPU µs each':>13}")
    for name, (exchanges, wall, cpu) in rows.items():
        each = 1e6 / exchanges
        print(f"{name:<40}{exchanges / wall:>12,.0f}{wall * each:>10.1f}{cpu * each:>13.1f}")


def _measure(
    folder: Path,
    run: Callable[[Coroutine[Any, Any, tuple[float, float]]], tuple[float, float]],
    *,
    exchanges: int,
    connections: int,
) -> dict[str, tuple[int, float, float]]:
    """Per client: how many exchanges, in how many seconds, of which how many on the processor."""
    ours, theirs = multiprocessing.Pipe()
    sink = multiprocessing.get_context("spawn").Process(target=run_sink, args=(theirs, folder), daemon=True)
    sink.start()
    try:
        port, tls_port = ours.recv()
        body = b'{"run_id":"run_00000000000000000000000000","payload":' + b"1" * 200 + b"}"
        request = b"POST /hook HTTP/1.1\r\nhost: 127.0.0.1\r\nx: %b\r\ncontent-length: %d\r\n\r\n%b" % (
            b"h" * 500,
            len(body),
            body,
        )
        gc.freeze()
        bare = run(measure_bare(port, request=request, exchanges=exchanges, connections=connections))
        rows = {"bare httptools loop": (exchanges, *bare)}
        few = max(1, exchanges // ONE_EACH_SHARE)
        for name, url, count in (
            ("onbeat Sender, http", f"http://127.0.0.1:{port}/hook", exchanges),
            ("onbeat Sender, https", f"https://127.0.0.1:{tls_port}/hook", exchanges),
            ("onbeat Sender, http, connection each", f"http://127.0.0.1:{port}/last", few),
            ("onbeat Sender, https, connection each", f"https://127.0.0.1:{tls_port}/last", few),
        ):
            measured = measure_sender(url, ca_file=folder / "ca.pem", exchanges=count, connections=connections)
            rows[name] = (count, *run(measured))
        return rows
    finally:
        sink.terminate()
        sink.join()


if __name__ == "__main__":
    main()
