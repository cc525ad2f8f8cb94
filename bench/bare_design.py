"""What the design itself comes to on a machine, with nothing of onbeat in it: the limit of a node in one process.

    python -m bench.bare_design [--fires 60000] [--attempts 2000]

One process, one SQLite file as durable as onbeat's, the tables of design §5 with the columns that carry the load. A
transaction at a time moves clocks that are due, writes their runs as live, and makes history of the runs that were
answered since the last one; each run is one signed POST over a kept-alive connection, its answer read by `httptools`.
There is nothing else: no definitions, misfires, overlap, lanes, fencing, deadlines, permits, egress rules, limits of
answers, retries, metrics, API. So what a node needs more than this is what those cost.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hmac
import os
import tempfile
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, cast

import apsw
import httptools
import uvloop

from bench.databases import BATCH
from bench.figures import Figure, Result
from bench.measures import Measure, Stopwatch
from bench.rig import CONNECTIONS
from bench.scenario import parser_of, run_alone
from bench.sink import receiving
from onbeat.clock import host_time_us
from onbeat.store.sqlite.connection import open_writing_connection

_SCHEMA: Final = """
CREATE TABLE jobs (job INTEGER PRIMARY KEY, definition TEXT) STRICT;
CREATE TABLE clocks (job INTEGER PRIMARY KEY, at INTEGER) STRICT;
CREATE INDEX clocks_due ON clocks (at);
CREATE TABLE live (job INTEGER, at INTEGER, token BLOB, until INTEGER, PRIMARY KEY (job, at)) STRICT, WITHOUT ROWID;
CREATE TABLE history (id INTEGER PRIMARY KEY, job INTEGER, at INTEGER, body TEXT) STRICT;
CREATE UNIQUE INDEX history_key ON history (job, at);
"""
_DEFINITION: Final = "d" * 400
_ANSWER: Final = "a" * 150
_HEAD: Final = b"POST / HTTP/1.1\r\nhost: sink\r\ncontent-type: application/json\r\nx: %b\r\n" % (b"h" * 250)
_KEY: Final = os.urandom(32)
_PERIOD_US: Final = 3_600_000_000

Fire = tuple[int, int]
"""Job and planned instant."""


class _File:
    """The tables, and the one transaction that is made again and again. Used by one thread at a time."""

    def __init__(self, path: Path, *, jobs: int) -> None:
        self._connection = connection = open_writing_connection(str(path))
        connection.pragma("wal_autocheckpoint", 8_192)
        connection.execute(_SCHEMA)
        with connection:
            connection.executemany("INSERT INTO jobs VALUES (?, ?)", ((job, _DEFINITION) for job in range(jobs)))
            connection.executemany("INSERT INTO clocks VALUES (?, 0)", ((job,) for job in range(jobs)))
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def record(self, ended: list[Fire], room: int) -> list[Fire]:
        """Make history of what has ended, and live runs of up to `room` clocks that are due."""
        execute, many = self._connection.execute, self._connection.executemany
        with self._connection:
            many("INSERT INTO history (job, at, body) VALUES (?, ?, ?)", [(*fire, _ANSWER) for fire in ended])
            many("DELETE FROM live WHERE job = ? AND at = ?", ended)
            now = host_time_us()
            rows = list(
                execute(
                    "SELECT job, at, definition FROM clocks JOIN jobs USING (job) WHERE at <= ? ORDER BY at LIMIT ?",
                    (now, room),
                )
            )
            due = [(job, at) for job, at, _definition in rows]
            until = now + 30_000_000
            many("INSERT INTO live VALUES (?, ?, ?, ?)", [(*fire, os.urandom(16), until) for fire in due])
            many("UPDATE clocks SET at = ? WHERE job = ?", [(now + _PERIOD_US, job) for job, _at in due])
        return due

    def close(self) -> None:
        self._connection.close()


class _Line(asyncio.Protocol):
    """A connection: the next request when the last one is answered."""

    def __init__(
        self, waiting: deque[tuple[Fire, bytes]], on_end: Callable[[Fire], None], on_lost: Callable[[], None]
    ) -> None:
        self._waiting, self._on_end, self._on_lost = waiting, on_end, on_lost
        self._fire: Fire | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._parser = httptools.HttpResponseParser(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()

    def close(self) -> None:
        self._transport.close()

    def send_next(self) -> None:
        """If nothing is under way, and something waits."""
        if self._fire is None and self._waiting:
            self._fire, request = self._waiting.popleft()
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        fire, self._fire = self._fire, None
        assert fire is not None
        self._on_end(fire)
        self.send_next()


def _request(fire: Fire) -> bytes:
    run_id = b"run_%013d%013d" % fire
    body = b'{"run_id":"%b","job":{"id":"job_%013d"},"payload":%b}' % (run_id, fire[0], b"1" * 100)
    timestamp = host_time_us() // 1_000_000
    signature = b2a_base64(hmac.digest(_KEY, b"%b.%d.%b" % (run_id, timestamp, body), "sha256"), newline=False)
    head = b"webhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: v1,%b\r\ncontent-length: %d\r\n\r\n"
    return _HEAD + head % (run_id, timestamp, signature, len(body)) + body


async def _run(file: _File, *, port: int, fires: int, attempts: int) -> Measure:
    loop = asyncio.get_running_loop()
    waiting: deque[tuple[Fire, bytes]] = deque()
    ended: list[Fire] = []
    may_record = asyncio.Event()
    under_way = finished = 0
    is_lost = False

    def end(fire: Fire) -> None:
        ended.append(fire)
        may_record.set()

    def lose() -> None:
        nonlocal is_lost
        is_lost = True
        may_record.set()

    def make_line() -> _Line:
        return _Line(waiting, end, lose)

    lines = [(await loop.create_connection(make_line, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
    watch = Stopwatch()
    with ThreadPoolExecutor(1) as writer:
        while finished < fires:
            may_record.clear()
            if is_lost:
                raise ConnectionError("the receiver closed a connection")
            batch = ended[:BATCH]
            del ended[: len(batch)]
            under_way -= len(batch)
            due = await loop.run_in_executor(writer, file.record, batch, min(BATCH, attempts - under_way))
            finished += len(batch)
            under_way += len(due)
            waiting.extend((fire, _request(fire)) for fire in due)
            for line in lines:
                line.send_next()
            if not due and not ended and finished < fires:
                await may_record.wait()
    seen = watch.stop("bare design", fires)
    for line in lines:
        line.close()
    return seen


def run_bare_design(*, fires: int, attempts: int) -> tuple[Measure, str]:
    """Let so many jobs fire once each, as fast as it goes. Answer: and which program received."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder, receiving(Path(folder)) as sink:
        file = _File(Path(folder) / "bare.sqlite3", jobs=fires)
        gc.collect()
        gc.freeze()
        try:
            return uvloop.run(_run(file, port=sink.port, fires=fires, attempts=attempts)), sink.program
        finally:
            gc.unfreeze()
            file.close()


def measure(options: argparse.Namespace) -> Result:
    """Once."""
    seen, receiver = run_bare_design(fires=options.fires, attempts=options.attempts)
    figures = [Figure("fires delivered", seen.per_second, "fires/s"), Figure("CPU", seen.cpu_us, "µs/fire")]
    return Result(f"{options.fires:,} fires, receiver {receiver}", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--fires", type=int, default=60_000)
    parser.add_argument("--attempts", type=int, default=2_000, help="at once")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
