"""The wake after an outage: how long until everything is recorded, and how late fresh fires are meanwhile.

    python -m bench.wake [--engine sqlite|postgres] [--jobs 1000000] [--outage 600] [--fresh 100]

A database is made with N jobs (`skip`) whose clocks came due during an outage that has just ended, evenly spread over
it, plus some that fire every second. `onbeat dev` (durable commits, signed deliveries) wakes over it, a trivial
receiver notes how late the fresh fires arrive. The limit printed beside it is measured in the same run: the rows alone,
one per job, written in batches of the same size with the same durability, and nothing decided or read.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import httpx
from tests.support.database import looking_into
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY

from bench.databases import ENGINES, fresh_place
from bench.figures import Figure, Limit, Result, at_most, latencies
from bench.many_jobs import JobShape, create_jobs
from bench.processes import onbeat_dev, wait_until_up
from bench.scenario import parser_of, run_alone
from bench.sink import receiving
from onbeat.clock import host_time_us
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.open import open_store
from onbeat.store.values import NewJob

GRACE_S = 30
DAY_S = 86_400
ASKED_WITH = 1_000_000
"""Jobs for which design §8 asks for its figure."""


async def add_fresh_jobs(data: str, count: int, *, due_at: int, url: str) -> None:
    """Jobs of every second, whose ids are above those that create_jobs gives."""
    schedule = EverySchedule(every_s=1, anchor_at=0)
    definition = encode_definition(Definition(schedules=(schedule,), target=WebhookTarget(url=url), grace_s=GRACE_S))
    store = await open_store(data)
    await store.jobs.create(
        [
            NewJob(
                job_id=2**JOB_ID_BITS - 1 - number,
                namespace="default",
                key=None,
                name=f"Fresh {number}",
                tags=(),
                definition=definition,
                max_running=1,
                state=JobState.ACTIVE,
                next_fire_at=due_at,
            )
            for number in range(count)
        ],
        now=due_at,
    )
    await store.close()


def make_data(data: str, options: argparse.Namespace, *, url: str) -> int:
    """The file as the outage left it: daily jobs that came due in it and are past grace, and jobs of every second.

    Answer: how many of the daily ones.
    """
    woken_at = host_time_us() // SECOND_US * SECOND_US
    span_s: int = options.outage - GRACE_S - 5
    per_second: int = max(options.jobs // span_s, 1)
    jobs = per_second * span_s
    shape = JobShape(jobs, per_second, url, grace_s=GRACE_S, every_s=DAY_S)
    create_jobs(data, shape, first_at=woken_at - options.outage * SECOND_US)
    asyncio.run(add_fresh_jobs(data, options.fresh, due_at=woken_at, url=url))
    return jobs


async def dispatch_lag_s(http: httpx.AsyncClient) -> float:
    """How old the oldest fire is that is not recorded."""
    for line in (await http.get("/metrics")).text.splitlines():
        if line.startswith("onbeat_dispatch_lag_seconds "):
            return float(line.split()[1])
    raise AssertionError("the metric is gone")


def count_missed(data: str) -> int:
    """Rows of history."""
    with looking_into(data) as look:
        ((count,),) = look("SELECT count(*) FROM ended_runs WHERE state = 'missed'")
    return int(count)


async def wake(data: str) -> float:
    """Start the server and wait until nothing is behind any more. Answer: seconds from its first answer."""
    port = free_port()
    with onbeat_dev(data, port=port, workers="500", master_key=MASTER_KEY):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            await wait_until_up(f"http://127.0.0.1:{port}/healthz")
            started = time.perf_counter()
            await asyncio.sleep(1)
            while await dispatch_lag_s(http) > 2:
                await asyncio.sleep(0.25)
    return time.perf_counter() - started


def measure(options: argparse.Namespace) -> Result:
    """One outage."""
    with (
        tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder,
        fresh_place(options.engine) as place,
        receiving(Path(folder)) as sink,
    ):
        jobs = make_data(place.data, options, url=sink.url)
        recorded_s = asyncio.run(wake(place.data))
        time.sleep(1)  # the receiver writes what it saw
        # In order of arrival; the first fire of each was due before the server woke.
        lags_ms = [arrival.lag_ms for arrival in sink.arrivals()[options.fresh :]]
        missed = count_missed(place.data)
        bare = place.write_bare(jobs, jobs)
    asked = at_most(60) if jobs >= 0.99 * ASKED_WITH else None
    figures = [
        Figure("until all is recorded", recorded_s, "s", asked, Limit(bare.name, bare.wall_s)),
        Figure("recorded as missed", missed, "rows"),
        *latencies("lag of fresh fires", lags_ms),
    ]
    return Result(f"{options.engine}, {jobs:,} jobs with policy skip, outage of {options.outage} s", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="rounded down to as many for each second")
    parser.add_argument("--outage", type=int, default=600, help="seconds")
    parser.add_argument("--fresh", type=int, default=100, help="jobs that fire every second meanwhile")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
