"""Idle cost: memory and CPU of a whole `onbeat dev` process that watches a million jobs of which none is due.

    python -m bench.idle [--jobs 1000000] [--seconds 30]

The limit printed beside it, measured in the same run: the same process over an empty data file.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from tests.support.ports import free_port

from bench.figures import Figure, Limit, Result, at_most
from bench.many_jobs import JobShape, create_jobs
from bench.processes import cpu_s, onbeat_dev, rss_mb, wait_until_up
from bench.scenario import parser_of, run_alone
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US

FAR_US = 86_400 * SECOND_US
SETTLES_S = 3
ASKED_WITH = 1_000_000
"""Jobs with which design §8 asks for its figures."""

HOUR_S = 3_600


async def watch(data: Path, seconds: int) -> tuple[float, float, float]:
    """A fresh process over `data`: seconds until it is ready, then MB and % of a core, once it has settled."""
    port = free_port()
    started = time.perf_counter()
    with onbeat_dev(data, port=port) as server:
        await wait_until_up(f"http://127.0.0.1:{port}/readyz")
        ready_s = time.perf_counter() - started
        await asyncio.sleep(SETTLES_S)
        before = cpu_s(server.pid)
        await asyncio.sleep(seconds)
        return ready_s, rss_mb(server.pid), 100 * (cpu_s(server.pid) - before) / seconds


def idle_jobs(most: int) -> JobShape:
    """Hourly jobs spread over the hour: `most` of them, or the few fewer that make every second alike."""
    per_second = max(most // HOUR_S, 1)
    return JobShape(most // per_second * per_second, per_second, "http://127.0.0.1:9/", every_s=HOUR_S)


def measure(options: argparse.Namespace) -> Result:
    """First over an empty file, then over the full one."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:
        empty = asyncio.run(watch(Path(folder) / "empty.sqlite3", options.seconds))
        data = Path(folder) / "full.sqlite3"
        shape = idle_jobs(options.jobs)
        create_jobs(str(data), shape, first_at=host_time_us() // SECOND_US * SECOND_US + FAR_US)
        full = asyncio.run(watch(data, options.seconds))
        bytes_per_job = data.stat().st_size / shape.count
    asked = (None, at_most(200), at_most(2)) if options.jobs >= ASKED_WITH else (None, None, None)
    names = (("until ready", "s"), ("resident memory", "MB"), ("CPU", "% of a core"))
    figures = [
        Figure(name, value, unit, target, Limit("no job", least))
        for (name, unit), value, target, least in zip(names, full, asked, empty, strict=True)
    ]
    figures.append(Figure("data file", bytes_per_job, "bytes/job"))
    return Result(f"sqlite, {shape.count:,} jobs of which none is due, {options.seconds} s", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=30)
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
