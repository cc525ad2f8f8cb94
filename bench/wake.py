"""The wake after an outage: how long until everything is recorded, and how late fresh fires are meanwhile.

    python -m bench.wake [--jobs 1000000] [--outage 600] [--fresh 100] [--json FILE]

A data file is made with N jobs (`skip`) whose clocks came due during an outage that has just ended, evenly spread over
it, plus some that fire every second. `onbeat dev` (durable commits, signed deliveries) wakes over it, a trivial
receiver notes how late the fresh fires arrive. The limit printed beside it is measured in the same run: the rows alone,
one per job, written in batches of the same size with the same durability, and nothing decided or read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
import httpx
from rich.console import Console
from rich.table import Table

from bench.bare_rows import write_to_sqlite
from bench.machine import describe_machine
from bench.processes import free_port, onbeat_dev, wait_until_up
from bench.sink import read_report, sink
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.open import open_store
from onbeat.store.values import NewJob

CREATED_AT_ONCE = 5_000
GRACE_S = 30
DAY_S = 86_400
PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


def new_job(number: int, schedule: EverySchedule, *, due_at: int, url: str) -> NewJob:
    """A job with policy `skip` whose clock shows `due_at`."""
    definition = Definition(schedules=(schedule,), target=WebhookTarget(url=url), grace_s=GRACE_S)
    return NewJob(
        job_id=number * 7_919 + 1,
        namespace="default",
        key=None,
        name=f"Job {number}",
        tags=(),
        definition=encode_definition(definition),
        max_running=1,
        state=JobState.ACTIVE,
        next_fire_at=due_at,
    )


async def make_data(data: Path, options: argparse.Namespace, *, url: str) -> None:
    """The file as the outage left it: daily jobs that came due in it and are past grace, and jobs of every second."""
    woken_at = host_time_us() // SECOND_US * SECOND_US
    began_at = woken_at - options.outage * SECOND_US
    store = await open_store(str(data))
    every_second = EverySchedule(every_s=1, anchor_at=0)
    await store.jobs.create(
        [new_job(number, every_second, due_at=woken_at, url=url) for number in range(options.fresh)], now=began_at
    )
    span_s = options.outage - GRACE_S - 5
    for start in range(0, options.jobs, CREATED_AT_ONCE):
        jobs: list[NewJob] = []
        for number in range(start, min(start + CREATED_AT_ONCE, options.jobs)):
            due_at = began_at + number * span_s // options.jobs * SECOND_US
            daily = EverySchedule(every_s=DAY_S, anchor_at=due_at)
            jobs.append(new_job(options.fresh + number, daily, due_at=due_at, url=url))
        await store.jobs.create(jobs, now=began_at)
    await store.close()


async def dispatch_lag_s(http: httpx.AsyncClient) -> float:
    """How old the oldest fire is that is not recorded."""
    for line in (await http.get("/metrics")).text.splitlines():
        if line.startswith("onbeat_dispatch_lag_seconds "):
            return float(line.split()[1])
    raise AssertionError("the metric is gone")


def count_rows(data: Path) -> dict[str, int]:
    """What became of the fires, rows by state."""
    database = apsw.Connection(str(data), flags=apsw.SQLITE_OPEN_READONLY)
    return dict(database.execute("select state, count(*) from runs group by state"))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One outage, from the start of the server until nothing is behind any more."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-", dir=options.directory) as folder:
        data, report = Path(folder) / "bench.sqlite3", Path(folder) / "lags.json"
        port, sink_port = free_port(), free_port()
        await make_data(data, options, url=f"http://127.0.0.1:{sink_port}/")
        with sink(sink_port, report):
            await wait_until_up(f"http://127.0.0.1:{sink_port}/")
            started = time.perf_counter()
            with onbeat_dev(data, port=port, workers="500"):
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                    await wait_until_up(f"http://127.0.0.1:{port}/healthz")
                    up_s = time.perf_counter() - started
                    await asyncio.sleep(1)
                    while await dispatch_lag_s(http) > 2:
                        await asyncio.sleep(0.25)
                recorded_s = time.perf_counter() - started - up_s
        # In order of arrival; the first fire of each was due before the server woke.
        lags = sorted(read_report(report).lags_ms[options.fresh :])
        bare = write_to_sqlite(
            Path(folder) / "bare.sqlite3",
            fires=options.jobs,
            batch=500,
            jobs=options.jobs,
            randomness=random.Random(7),
        )
        return {
            "recorded_s": recorded_s,
            "limit_s": bare.wall_s,
            "rows": count_rows(data),
            "fresh_fires": len(lags),
            "lag_ms": {name: lags[min(int(len(lags) * part), len(lags) - 1)] for name, part in PARTS.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--outage", type=int, default=600, help="seconds")
    parser.add_argument("--fresh", type=int, default=100, help="jobs that fire every second meanwhile")
    parser.add_argument("--directory", type=Path, help="where the data file is made; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    table = Table(title=f"{options.jobs:,} jobs, outage of {options.outage} s, skip", title_justify="left")
    for name in ("all recorded", "limit: bare rows", "rows", "fresh fires", "lag p50", "lag p99", "lag max"):
        table.add_column(name, justify="right")
    lag = result["lag_ms"]
    table.add_row(
        f"{result['recorded_s']:.1f} s",
        f"{result['limit_s']:.1f} s",
        ", ".join(f"{count:,} {state}" for state, count in sorted(result["rows"].items())),
        f"{result['fresh_fires']:,}",
        *(f"{lag[name]:.0f} ms" for name in ("p50", "p99", "max")),
    )
    console = Console()
    console.print(describe_machine())
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": describe_machine(), **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
