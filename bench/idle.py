"""Idle cost: memory and CPU of a whole `onbeat dev` process that watches a million jobs of which none is due.

    python -m bench.idle [--jobs 1000000] [--seconds 30] [--json FILE]

The limit printed beside it, measured in the same run: the same process over an empty data file.
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

import httpx
from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine
from bench.processes import cpu_s, free_port, onbeat_dev, rss_mb, wait_until_up
from onbeat.clock import host_time_us
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.open import open_store
from onbeat.store.values import NewJob

BATCH = 5_000
FAR_S = 86_400


async def create_jobs(data: Path, count: int) -> None:
    """Hourly jobs whose first fire lies a day ahead, straight through the store."""
    store = await open_store(str(data))
    numbers = random.Random(1)
    now = host_time_us()
    try:
        for start in range(0, count, BATCH):
            await store.jobs.create(
                [_job(numbers.getrandbits(JOB_ID_BITS), n, now) for n in range(start, min(start + BATCH, count))],
                now=now,
            )
    finally:
        await store.close()


def _job(job_id: int, number: int, now: int) -> NewJob:
    first = (now // SECOND_US + FAR_S + number % 3_600) * SECOND_US
    definition = Definition(
        schedules=(EverySchedule(every_s=3_600, anchor_at=first),),
        target=WebhookTarget(url=f"https://example.com/hooks/{number}"),
    )
    return NewJob(
        job_id=job_id,
        namespace="default",
        key=f"job-{number}",
        name=f"job {number}",
        tags=(),
        definition=encode_definition(definition),
        max_running=1,
        state=JobState.ACTIVE,
        next_fire_at=first,
    )


async def measure(data: Path, seconds: int) -> dict[str, Any]:
    """A fresh process over `data`, watched for `seconds` after it has settled."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = time.perf_counter()
    with onbeat_dev(data, port=port) as server:
        await wait_until_up(f"{url}/readyz")
        ready_s = time.perf_counter() - started
        await asyncio.sleep(3)
        before = cpu_s(server.pid)
        await asyncio.sleep(seconds)
        used = cpu_s(server.pid) - before
        listed = time.perf_counter()
        async with httpx.AsyncClient(base_url=url) as http:
            (await http.get("/v1/jobs", params={"limit": 100})).raise_for_status()
        return {
            "ready_s": ready_s,
            "rss_mb": rss_mb(server.pid),
            "cpu_percent": 100 * used / seconds,
            "list_100_ms": (time.perf_counter() - listed) * 1e3,
        }


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty = asyncio.run(measure(Path(folder) / "empty.sqlite3", arguments.seconds))
        data = Path(folder) / "full.sqlite3"
        asyncio.run(create_jobs(data, arguments.jobs))
        full = asyncio.run(measure(data, arguments.seconds))
        size_mb = data.stat().st_size / 1e6
    console = Console()
    console.print(describe_machine())
    table = Table(title="Idle cost of one process (SQLite)")
    for column in ("jobs", "ready after s", "RSS MB", "CPU % of a core", "GET 100 jobs ms"):
        table.add_column(column, justify="right")
    for jobs, row in ((0, empty), (arguments.jobs, full)):
        table.add_row(
            f"{jobs:,}",
            f"{row['ready_s']:.2f}",
            f"{row['rss_mb']:.0f}",
            f"{row['cpu_percent']:.2f}",
            f"{row['list_100_ms']:.1f}",
        )
    console.print(table)
    console.print(f"data file: {size_mb:,.0f} MB, {size_mb * 1e6 / max(arguments.jobs, 1):.0f} bytes per job")
    if arguments.json:
        results = {"machine": describe_machine(), "empty": empty, "full": full, "file_mb": size_mb}
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
