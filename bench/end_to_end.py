"""End to end: fires per second of whole nodes, from the due clock to the finished run, with signed deliveries.

    python -m bench.end_to_end [--engine sqlite|postgres] [--nodes 1] [--rate 6000] [--seconds 30] [--json FILE]

`onbeat serve` (one process on SQLite, 1 to 3 nodes on PostgreSQL), the database server and a trivial receiver are
processes of their own, all on this machine; commits are durable. Jobs fire once in as many seconds as are measured,
`--rate` of them at every full second. A rate above what the machine can do shows what it sustains; one below shows the
lag. What is measured begins some seconds after the nodes are up.

Limits, measured in the same run: a bare `httptools` loop against the same receiver, and the rows of a fire written in
batches to the same database by nobody else. CPU is told per fire and by process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table
from tests.support.database import looking_into
from tests.support.fleet import LOOPBACK
from tests.support.postgres import MASTER_KEY, Databases, running_postgres

from bench.bare_rows import write_to_postgres, write_to_sqlite
from bench.machine import describe_machine
from bench.measures import Measure, cpu_s_of_server
from bench.processes import cpu_s, free_port, stopping, wait_until_up
from bench.sender import measure_bare
from bench.sink import read_report, sink
from onbeat.clock import host_time_us
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.open import open_store
from onbeat.store.values import NewJob

CREATED_AT_ONCE = 5_000
GRACE_S = 3_600
SETTLES_S = 5
LEAD_S = 5
STARTS_WITHIN_S = 3
EXCHANGES = 60_000
CONNECTIONS = 64
BARE_FIRES = 50_000
REQUEST = b"POST / HTTP/1.1\r\nhost: sink\r\nx: %b\r\ncontent-length: 200\r\n\r\n%b" % (b"h" * 500, b"1" * 200)


class Place(NamedTuple):
    """A database, its server's process, and the bare writes that it is compared with."""

    data: str
    server: int | None
    write_bare: Callable[[], Measure]


@contextlib.contextmanager
def on_sqlite(options: argparse.Namespace) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-", dir=options.directory) as folder:
        bare = Path(folder) / "bare.sqlite3"
        yield Place(
            str(Path(folder) / "bench.sqlite3"),
            None,
            lambda: write_to_sqlite(bare, fires=BARE_FIRES, batch=500, jobs=BARE_FIRES, randomness=random.Random(7)),
        )


@contextlib.contextmanager
def on_postgres(options: argparse.Namespace) -> Iterator[Place]:
    tempfile.tempdir = None if options.directory is None else str(options.directory)
    with running_postgres() as server:
        url = asyncio.run(Databases(server).create())
        yield Place(
            url,
            server.pid,
            lambda: asyncio.run(
                write_to_postgres(
                    url,
                    server=server.pid,
                    fires=BARE_FIRES,
                    batch=500,
                    jobs=BARE_FIRES,
                    randomness=random.Random(7),
                )
            ),
        )


async def create_jobs(data: str, options: argparse.Namespace, *, url: str) -> int:
    """`rate` jobs for each second of the interval. Answer: when the first of them fire, which is after the creation.

    How long it takes is found with jobs that fire a day later.
    """
    store = await open_store(data)
    randomness = random.Random(1)
    count = options.rate * options.seconds

    async def create(numbers: range, first_at: int) -> None:
        jobs = [_new_job(randomness, number, options, url=url, first_at=first_at) for number in numbers]
        await store.jobs.create(jobs, now=host_time_us())

    try:
        began_at = host_time_us()
        await create(range(CREATED_AT_ONCE), began_at // SECOND_US * SECOND_US + 86_400 * SECOND_US)
        takes_us = (host_time_us() - began_at) * count // CREATED_AT_ONCE
        first_at: int = (host_time_us() + takes_us * 5 // 4) // SECOND_US * SECOND_US + LEAD_S * SECOND_US
        for start in range(0, count, CREATED_AT_ONCE):
            await create(range(start, min(start + CREATED_AT_ONCE, count)), first_at)
    finally:
        await store.close()
    return first_at


def _new_job(randomness: random.Random, number: int, options: argparse.Namespace, *, url: str, first_at: int) -> NewJob:
    due_at = first_at + number // options.rate * SECOND_US
    definition = Definition(
        schedules=(EverySchedule(every_s=options.seconds, anchor_at=due_at),),
        target=WebhookTarget(url=url, payload='{"report":"daily","customer":4711}'),
        grace_s=GRACE_S,
    )
    return NewJob(
        job_id=randomness.getrandbits(JOB_ID_BITS),
        namespace="default",
        key=None,
        name=f"Job {number}",
        tags=(),
        definition=encode_definition(definition),
        max_running=1,
        state=JobState.ACTIVE,
        next_fire_at=due_at,
    )


@contextlib.contextmanager
def onbeat_serve(data: str, *, port: int, workers: int) -> Iterator[subprocess.Popen[bytes]]:
    """A node as an operator runs it, that may deliver to loopback."""
    settings = LOOPBACK | {
        "ONBEAT_WORKERS": str(workers),
        "ONBEAT_LOG_LEVEL": "error",
        "ONBEAT_MASTER_KEY": MASTER_KEY,
    }
    command = [sys.executable, "-m", "onbeat", "serve", "--data", data, "--port", str(port)]
    with stopping(subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL)) as node:
        yield node


async def wait_until(instant: int) -> None:
    while (left_us := instant - host_time_us()) > 0:
        await asyncio.sleep(left_us / SECOND_US)


async def watch(place: Place, options: argparse.Namespace, receiver: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Start the nodes, let them settle, and watch what the processes use."""
    with contextlib.ExitStack() as stack:
        ports = [free_port() for _ in range(options.nodes)]
        nodes = [
            stack.enter_context(onbeat_serve(place.data, port=port, workers=options.workers)).pid for port in ports
        ]
        for port in ports:
            await wait_until_up(f"http://127.0.0.1:{port}/healthz")
        await asyncio.sleep(SETTLES_S)

        def used() -> dict[str, float]:
            servers = {} if place.server is None else {"PostgreSQL": cpu_s_of_server(place.server)}
            return {"onbeat": sum(map(cpu_s, nodes)), **servers, "receiver": cpu_s(receiver.pid)}

        from_s, before = host_time_us() / 1e6, used()
        await asyncio.sleep(options.seconds - SETTLES_S)
        to_s, after = host_time_us() / 1e6, used()
    return {"from_s": from_s, "to_s": to_s, "cpu_s": {name: after[name] - before[name] for name in before}}


async def measure_exchanges(port: int) -> float:
    """Exchanges a second of the bare loop."""
    wall_s, _ = await measure_bare(port, exchanges=EXCHANGES, connections=CONNECTIONS, request=REQUEST)
    return EXCHANGES / wall_s


def count_finished(data: str, *, from_s: float, to_s: float) -> tuple[int, int]:
    """Runs that succeeded, and were recorded as such, in between; and those of them that were born leased."""
    with looking_into(data if "://" in data else Path(data)) as look:
        ((count, handed_over),) = look(
            "SELECT count(*), count(CASE WHEN started_at = created_at THEN 1 END) FROM ended_runs "
            "WHERE state = 'succeeded' AND finished_at >= ? AND finished_at < ?",
            round(from_s * 1e6),
            round(to_s * 1e6),
        )
    return int(count), int(handed_over)


def measure(place: Place, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Everything, one after the other: the limits are measured while nothing else runs."""
    port, report = free_port(), folder / "arrivals.json"
    url = f"http://127.0.0.1:{port}/hook"
    with sink(port, report) as receiver:
        asyncio.run(wait_until_up(url))
        exchanges_per_s = uvloop.run(measure_exchanges(port))
        rows_per_s = place.write_bare().per_second
        first_at = asyncio.run(create_jobs(place.data, options, url=url))
        asyncio.run(wait_until(first_at - STARTS_WITHIN_S * SECOND_US))
        watched = asyncio.run(watch(place, options, receiver))
    from_s, to_s = watched["from_s"], watched["to_s"]
    lags_ms = read_report(report).between(from_s, to_s)
    arrived = max(len(lags_ms), 1)
    finished, handed_over = count_finished(place.data, from_s=from_s, to_s=to_s)
    return {
        "delivered_per_s": len(lags_ms) / (to_s - from_s),
        "finished_per_s": finished / (to_s - from_s),
        "handed_over_%": 100 * handed_over / max(finished, 1),
        "lag_p50_ms": lags_ms[len(lags_ms) // 2] if lags_ms else None,
        "lag_p99_ms": lags_ms[len(lags_ms) * 99 // 100] if lags_ms else None,
        "cpu_us": {name: seconds * 1e6 / arrived for name, seconds in watched["cpu_s"].items()},
        "cores": sum(watched["cpu_s"].values()) / (to_s - from_s),
        "limit_exchanges_per_s": exchanges_per_s,
        "limit_rows_per_s": rows_per_s,
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--nodes", type=int, default=1, help="processes; more than one only on PostgreSQL")
    parser.add_argument("--rate", type=int, default=6_000, help="fires that are due at every full second")
    parser.add_argument("--seconds", type=int, default=30, help=f"of which the first {SETTLES_S} are not measured")
    parser.add_argument("--workers", type=int, default=500, help="attempts at once of each node")
    parser.add_argument("--directory", type=Path, help="where the data is kept; default: the temporary directory")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.engine == "sqlite" and options.nodes != 1:
        parser.error("a data file belongs to one process")
    with (
        tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder,
        (on_sqlite if options.engine == "sqlite" else on_postgres)(options) as place,
    ):
        result = measure(place, options, Path(folder))
    console = Console()
    console.print(describe_machine())
    title = f"{options.engine}, {options.nodes} node(s), {options.rate:,} due a second, {options.seconds} s"
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    for name, value in result.items():
        parts = value if isinstance(value, dict) else {"": value}
        for part, number in parts.items():
            table.add_row(f"{name} {part}".strip(), "-" if number is None else f"{number:,.1f}")
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": describe_machine(), "setting": title, **result}, indent=2))


if __name__ == "__main__":
    main()
