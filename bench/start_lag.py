"""Start lag at fixed rates: from the planned instant to the first byte at the receiver, all in real processes.

    python -m bench.start_lag [--rates 1,100,1000] [--seconds 20] [--json FILE]

`onbeat dev` (SQLite, durable commits, signed deliveries) and a trivial receiver run as processes of their own on this
machine. At N fires/s there are N jobs that all fire at every full second, the hardest shape: planned instants are whole
seconds, so N fires are due in the same moment. The limit printed beside it is measured in the same run: the same N
requests, unsigned, written at once to the same receiver over kept-alive connections by a bare loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine
from bench.processes import free_port, onbeat_dev, wait_until_up
from bench.sink import read_report, sink

REQUEST = b"POST / HTTP/1.1\r\nhost: sink\r\ncontent-length: 2\r\n\r\n{}"
CONNECTIONS = 64


async def measure_limit(port: int, burst: int) -> list[float]:
    """The same burst from a bare loop: milliseconds from its start until each answer."""
    loop = asyncio.get_running_loop()
    done: list[float] = []

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.left = transport, 0

        def data_received(self, data: bytes) -> None:
            for _ in range(data.count(b"HTTP/1.1")):
                done.append((time.perf_counter() - started) * 1e3)
                self.left -= 1
                if self.left > 0:
                    self.transport.write(REQUEST)

    clients = [(await loop.create_connection(Bare, "127.0.0.1", port))[1] for _ in range(min(CONNECTIONS, burst))]
    started = time.perf_counter()
    for number, client in enumerate(clients):
        client.left = burst // len(clients) + (number < burst % len(clients))
        client.transport.write(REQUEST)
    async with asyncio.timeout(30):
        while len(done) < burst:
            await asyncio.sleep(0.005)
    for client in clients:
        client.transport.close()
    return sorted(done)


async def measure(rate: int, seconds: int) -> dict[str, Any]:
    """One rate, in fresh processes over a fresh data file."""
    with tempfile.TemporaryDirectory() as folder:
        data, report = Path(folder) / "bench.sqlite3", Path(folder) / "lags.json"
        sink_port, port = free_port(), free_port()
        with sink(sink_port, report), onbeat_dev(data, port=port, workers="500"):
            url = f"http://127.0.0.1:{port}"
            await wait_until_up(f"{url}/healthz")
            await wait_until_up(f"http://127.0.0.1:{sink_port}/")
            limit = await measure_limit(sink_port, rate)
            target = {"url": f"http://127.0.0.1:{sink_port}/"}
            schedules = [{"every": 1, "anchor": "epoch"}]
            jobs = [{"name": f"job {n}", "schedules": schedules, "target": target} for n in range(rate)]
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                for start in range(0, rate, 1000):
                    answer = await http.post("/v1/jobs:batch", json={"jobs": jobs[start : start + 1000]})
                    answer.raise_for_status()
            await asyncio.sleep(seconds)
        lags = read_report(report).lags_ms
    # The first two seconds hold the creation of the jobs and the opening of the connections.
    steady = sorted(lags[min(2 * rate, len(lags) // 3) :])
    return {
        "rate": rate,
        "fires": len(steady),
        "p50_ms": _at(steady, 0.5),
        "p99_ms": _at(steady, 0.99),
        "max_ms": steady[-1] if steady else None,
        "limit_p50_ms": _at(limit, 0.5),
        "limit_p99_ms": _at(limit, 0.99),
    }


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1,100,1000")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [asyncio.run(measure(int(rate), arguments.seconds)) for rate in arguments.rates.split(",")]
    console = Console()
    console.print(describe_machine())
    table = Table(title="Start lag, milliseconds after the planned instant (SQLite, one process, durable)")
    for column in ("fires/s", "fires", "p50", "p99", "max", "bare burst p50", "bare burst p99"):
        table.add_column(column, justify="right")
    for row in results:
        numbers = [row["p50_ms"], row["p99_ms"], row["max_ms"], row["limit_p50_ms"], row["limit_p99_ms"]]
        table.add_row(str(row["rate"]), str(row["fires"]), *(f"{number:.1f}" for number in numbers))
    console.print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": describe_machine(), "results": results}, indent=2))


if __name__ == "__main__":
    main()
