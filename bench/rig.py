"""Whole nodes under load: everything that a scenario with deliveries has in common.

`onbeat serve`, `onbeat worker`, the database server and the receiver are processes of their own, all on this machine;
commits are durable and deliveries signed. `rate` fires are due at each full second, the hardest shape there is, since
planned instants are whole seconds. A rate above what the machine can do shows what it sustains; one below, the lag.
What is measured begins some seconds after all processes are up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from tests.support.database import looking_into
from tests.support.fleet import LOOPBACK, make_key
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY

from bench.databases import Place, fresh_place
from bench.figures import Figure, Limit
from bench.many_jobs import JobShape, create_jobs, make_schema
from bench.measures import cpu_s_of_server
from bench.processes import cpu_s, onbeat, wait_until_logged, wait_until_up
from bench.sender import measure_bare
from bench.sink import Arrival, Sink, receiving
from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_run_id
from onbeat.domain.model import SECOND_US, Definition, WebhookTarget
from onbeat.domain.moved_start import moved_start

SETTLES_S: Final = 5
EXCHANGES_PER_S: Final = 4_000
"""Of the bare loop, for each second that is measured; of the bare rows as many."""
CONNECTIONS: Final = 64
LONGEST_LIMIT_S: Final = 15
REQUEST: Final = b"POST / HTTP/1.1\r\nhost: sink\r\nx: %b\r\ncontent-length: 200\r\n\r\n%b" % (b"h" * 500, b"1" * 200)


@dataclass(frozen=True, slots=True)
class Load:
    """What is run."""

    rate: int
    """Fires that are due at each full second."""
    seconds: int
    """Measured; some more pass before."""
    engine: str = "sqlite"
    nodes: int = 1
    """`onbeat serve`; more than one only on PostgreSQL."""
    workers: int = 0
    """`onbeat worker`. 0: the nodes deliver; otherwise they do not."""
    delivery_processes: int = 0
    """Of each node. Its CPU is told with theirs."""
    attempts: int = 2_000
    """At once, of each process that delivers."""
    jobs: int = 0
    """A multiple of `rate`, each firing once in `jobs / rate` seconds. 0: as many as are due in what is measured."""
    addresses: int = 1
    """The jobs call so many hosts in equal parts."""
    spread_s: int = 0
    """The jobs' starts are moved by lengths of their own below this: from there their lag counts."""
    slow_addresses: int = 0
    slow_s: float = 0.0
    """When those answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen between two moments."""

    load: Load
    receiver: str
    from_s: float
    to_s: float
    arrivals: list[Arrival]
    cpu_s: dict[str, float]
    """By kind of process."""
    finished: int
    handed_over: int
    """Of the finished those that were recorded as leased, without waiting to be claimed."""
    exchanges_per_s: float
    rows_per_s: float

    @property
    def lags_ms(self) -> list[float]:
        return [lag_ms(arrival, spread_s=self.load.spread_s) for arrival in self.arrivals]

    @property
    def setting(self) -> str:
        """For the head of a table."""
        load = self.load
        processes = f"{load.nodes} node(s)" + (f" and {load.workers} worker(s)" if load.workers else "")
        if load.delivery_processes:
            processes += f" with {load.delivery_processes} delivery process(es)"
        return f"{load.engine}, {processes}, {load.rate:,} due a second for {load.seconds} s, receiver {self.receiver}"

    def per_second(self) -> Figure:
        """Arrivals."""
        limit = Limit("bare httptools loop", self.exchanges_per_s)
        return Figure("fires delivered", len(self.arrivals) / (self.to_s - self.from_s), "fires/s", limit=limit)

    def costs(self) -> list[Figure]:
        """CPU for each fire that arrived, by process, and how many cores were in use."""
        count = len(self.arrivals)
        return [
            *(Figure(f"CPU, {name}", used * 1e6 / count, "µs/fire") for name, used in self.cpu_s.items()),
            Figure("cores in use", sum(self.cpu_s.values()) / (self.to_s - self.from_s), "cores"),
        ]

    def cost_of_a_fire(self) -> float:
        """µs of CPU of onbeat and its database."""
        return sum(used for name, used in self.cpu_s.items() if name != "receiver") * 1e6 / len(self.arrivals)


def run_load(load: Load) -> Seen:
    """Everything, one after the other: the limits are measured while nothing else runs."""
    os.environ["ONBEAT_MASTER_KEY"] = MASTER_KEY
    with (
        tempfile.TemporaryDirectory(prefix="onbeat-bench-") as name,
        fresh_place(load.engine) as place,
        _receiver(load, Path(name)) as (sink, exchanges_per_s),
    ):
        rows_per_s = place.write_bare(_limit_size(load), _limit_size(load)).per_second
        asyncio.run(make_schema(place.data))
        key = asyncio.run(make_key(place.data, "admin"))
        starts_within_s = _rehearse(load, place, key, Path(name))
        jobs = JobShape(
            load.jobs or load.rate * load.seconds, load.rate, sink.url, addresses=load.addresses, spread_s=load.spread_s
        )
        first_at = create_jobs(place.data, jobs, lead_s=starts_within_s)
        with _started(load, place, key, Path(name)) as used:
            _wait_until(first_at + SETTLES_S * SECOND_US)
            from_s, before = host_time_us() / 1e6, used() | {"receiver": sink.cpu_s()}
            time.sleep(load.seconds)
            to_s, after = host_time_us() / 1e6, used() | {"receiver": sink.cpu_s()}
        finished, handed_over = _count_finished(place.data, from_s=from_s, to_s=to_s)
        time.sleep(1)  # the receiver writes what it saw
        arrivals = [arrival for arrival in sink.arrivals() if from_s <= arrival.at_s < to_s]
    if not arrivals:
        raise RuntimeError("no fire arrived")
    spent = {name: after[name] - before[name] for name in before}
    return Seen(
        load, sink.program, from_s, to_s, arrivals, spent, finished, handed_over, exchanges_per_s, rows_per_s
    )  # fmt: skip


@contextlib.contextmanager
def _receiver(load: Load, folder: Path) -> Iterator[tuple[Sink, float]]:
    """And what a bare loop does with one that answers at once."""
    with receiving(folder) as quick:
        exchanges_per_s = bare_exchanges_per_s(quick.port, count=_limit_size(load))
    with receiving(folder, addresses=load.addresses, slow_addresses=load.slow_addresses, slow_s=load.slow_s) as sink:
        yield sink, exchanges_per_s


def _limit_size(load: Load) -> int:
    return EXCHANGES_PER_S * min(load.seconds, LONGEST_LIMIT_S)


def bare_exchanges_per_s(port: int, *, count: int) -> float:
    """The limit of HTTP: kept-alive connections, the same bytes again and again, answers parsed by httptools."""
    wall_s, _cpu_s = uvloop.run(measure_bare(port, exchanges=count, connections=CONNECTIONS, request=REQUEST))
    return count / wall_s


def _rehearse(load: Load, place: Place, key: str, folder: Path) -> int:
    """Seconds, twice what the start of all processes takes on this machine now: jobs are not to be due before."""
    began_s = time.monotonic()
    with _started(load, place, key, folder):
        return round(2 * (time.monotonic() - began_s)) + 2


@contextlib.contextmanager
def _started(load: Load, place: Place, key: str, folder: Path) -> Iterator[Callable[[], dict[str, float]]]:
    """All processes of onbeat. Answer: reads their CPU seconds."""
    ports = [free_port() for _ in range(load.nodes)]
    settings = _OPEN | {"workers": "0" if load.workers else str(load.attempts), "master_key": MASTER_KEY}
    settings |= {"delivery_processes": str(load.delivery_processes)}
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(onbeat("serve", "--data", place.data, "--port", str(port), settings=settings)).pid
            for port in ports
        ]
        for port in ports:
            asyncio.run(wait_until_up(f"http://127.0.0.1:{port}/healthz"))
        logs = [folder / f"worker-{number}.log" for number in range(load.workers)]
        workers = [
            stack.enter_context(
                onbeat(
                    "worker", "--server", f"http://127.0.0.1:{ports[number % load.nodes]}",
                    "--concurrency", str(load.attempts), settings=_OPEN | {"api_key": key}, log=log,
                )
            ).pid
            for number, log in enumerate(logs)
        ]  # fmt: skip
        for log in logs:
            wait_until_logged(log, "worker_started")

        def used() -> dict[str, float]:
            spent = {"nodes": sum(map(cpu_s_of_server, nodes))}
            if workers:
                spent["workers"] = sum(map(cpu_s, workers))
            if place.engine == "postgres":
                spent["PostgreSQL"] = place.server_cpu_s()
            return spent

        yield used


_OPEN: Final = {name.removeprefix("ONBEAT_").lower(): value for name, value in LOOPBACK.items()}


def _count_finished(data: str, *, from_s: float, to_s: float) -> tuple[int, int]:
    """Runs that succeeded, and were recorded as such, in between; and those of them that were born leased."""
    with looking_into(data) as look:
        ((count, handed_over),) = look(
            "SELECT count(*), count(CASE WHEN started_at = created_at THEN 1 END) FROM ended_runs "
            "WHERE state = 'succeeded' AND finished_at >= ? AND finished_at < ?",
            round(from_s * 1e6),
            round(to_s * 1e6),
        )
    return int(count), int(handed_over)


def lag_ms(arrival: Arrival, *, spread_s: int) -> float:
    """From the moment at which the fire was to start."""
    if not spread_s:
        return arrival.lag_ms
    key = parse_run_id(arrival.webhook_id)
    moved = moved_start(Definition((), WebhookTarget(""), spread_s=spread_s), job_id=key.job_id)
    return arrival.lag_ms - moved.spread_us / 1e3


def _wait_until(instant: int) -> None:
    time.sleep(max(0.0, (instant - host_time_us()) / SECOND_US))
