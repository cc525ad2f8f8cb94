"""Fires per second and start lag through `onbeat worker` processes: one server, 1 to 4 workers of 50 attempts each.

    python -m bench.fleet [--engines sqlite,postgres] [--workers 1,2,4] [--rates 1000] [--seconds 15]

Server, workers and PostgreSQL are real processes on this machine; the trivial receiver is this one. At a rate of N
there are N jobs that all fire at every full second. Where fewer arrive than are planned, the fleet, the server or the
machine is at its limit, and the lag says how far behind: with `queue`, the default for overlap, the newest fire waits
then and older ones are skipped. The CPU shown is that of the server, of all workers together and of PostgreSQL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table
from tests.support.fleet import LOOPBACK, make_key
from tests.support.postgres import MASTER_KEY, Databases, PostgresServer, running_postgres
from tests.support.process import ServerProcess, running

from bench.machine import describe_machine
from bench.measures import cpu_s_of_server
from bench.processes import cpu_s
from bench.sink import SinkProtocol

CONCURRENCY = 50
SETTLES_S = 5.0
"""After the jobs were created: connections are opened, and what was due meanwhile is delivered."""

QUIET = LOOPBACK | {"ONBEAT_LOG_LEVEL": "error"}


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table."""

    workers: int
    rate: int
    arrived_per_s: float
    lags_ms: list[float]
    server_cpu: float  # cores
    workers_cpu: float
    database_cpu: float


@contextlib.contextmanager
def fresh_data(engine: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """The setting `data`, and how to read the CPU seconds of its database server."""
    if engine == "sqlite":
        yield str(folder / "bench.sqlite3"), lambda: 0.0
        return
    with running_postgres() as server, Databases(server).fresh() as url:
        yield url, _cpu_of(server)


def _cpu_of(server: PostgresServer) -> Callable[[], float]:
    return lambda: cpu_s_of_server(server.pid)


def measure(engine: str, *, workers: int, rate: int, seconds: int) -> Result:
    """One rate through fresh processes over a fresh database."""
    with tempfile.TemporaryDirectory() as name, fresh_data(engine, Path(name)) as (data, database_cpu_s):
        return asyncio.run(
            _measure(data, database_cpu_s, workers=workers, rate=rate, seconds=seconds, folder=Path(name))
        )


async def _measure(
    data: str,
    database_cpu_s: Callable[[], float],
    *,
    workers: int,
    rate: int,
    seconds: int,
    folder: Path,
) -> Result:
    key = await make_key(data, "admin")
    sink = await asyncio.get_running_loop().create_server(SinkProtocol, "127.0.0.1", 0)
    target = {"url": f"http://127.0.0.1:{sink.sockets[0].getsockname()[1]}/"}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            running(
                lambda port: ["-m", "onbeat", "serve", "--data", data, "--port", str(port)],
                log=folder / "server.log",
                env=QUIET | {"ONBEAT_WORKERS": "0"},
            )
        )
        assert await server.wait_ready()
        fleet = [await stack.enter_async_context(_worker(server, key, folder, number)) for number in range(workers)]
        for worker in fleet:
            await _has_started(worker)
        await _create_jobs(server, key, target, rate=rate)
        await asyncio.sleep(SETTLES_S)
        del SinkProtocol.lags_ms[:]
        before = (_cpu(server), sum(map(_cpu, fleet)), database_cpu_s())
        await asyncio.sleep(seconds)
        after = (_cpu(server), sum(map(_cpu, fleet)), database_cpu_s())
        lags_ms = sorted(SinkProtocol.lags_ms)
    sink.close()
    used = [(late - early) / seconds for early, late in zip(before, after, strict=True)]
    return Result(workers, rate, len(lags_ms) / seconds, lags_ms, *used)


def _worker(
    server: ServerProcess, key: str, folder: Path, number: int
) -> contextlib.AbstractAsyncContextManager[ServerProcess]:
    return running(
        lambda _port: ["-m", "onbeat", "worker", "--server", server.url, "--concurrency", str(CONCURRENCY)],
        log=folder / f"worker-{number}.log",
        env=LOOPBACK | {"ONBEAT_LOG_LEVEL": "info", "ONBEAT_API_KEY": key},
    )


async def _has_started(worker: ServerProcess) -> None:
    async with asyncio.timeout(60):
        while "worker_started" not in worker.log.read_text():
            await asyncio.sleep(0.05)


async def _create_jobs(server: ServerProcess, key: str, target: dict[str, str], *, rate: int) -> None:
    jobs = [
        {"name": f"job {number}", "schedules": [{"every": 1, "anchor": "epoch"}], "target": target}
        for number in range(rate)
    ]
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:
        for start in range(0, rate, 1_000):
            (await http.post("/v1/jobs:batch", json={"jobs": jobs[start : start + 1_000]})).raise_for_status()


def _cpu(process: ServerProcess) -> float:
    return cpu_s(process.process.pid)


def _at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="sqlite,postgres")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--rates", default="1000")
    parser.add_argument("--seconds", type=int, default=15)
    arguments = parser.parse_args()
    os.environ["ONBEAT_MASTER_KEY"] = MASTER_KEY
    console = Console()
    console.print(describe_machine())
    for engine in arguments.engines.split(","):
        table = Table(title=f"{engine}: {CONCURRENCY} attempts for each worker; lag in ms from the planned instant")
        for column in ("workers", "planned/s", "arrived/s", "p50", "p99", "server CPU", "fleet CPU", "database CPU"):
            table.add_column(column, justify="right")
        for rate in map(int, arguments.rates.split(",")):
            for workers in map(int, arguments.workers.split(",")):
                row = measure(engine, workers=workers, rate=rate, seconds=arguments.seconds)
                table.add_row(
                    str(row.workers), str(row.rate), f"{row.arrived_per_s:,.0f}",
                    f"{_at(row.lags_ms, 0.5):,.0f}", f"{_at(row.lags_ms, 0.99):,.0f}",
                    f"{row.server_cpu:.2f}", f"{row.workers_cpu:.2f}", f"{row.database_cpu:.2f}",
                )  # fmt: skip
        console.print(table)


if __name__ == "__main__":
    main()
