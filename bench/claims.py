"""Claims beside a backlog that cannot start: how long one takes, and how many rows the database reads for it.

    python -m bench.claims [--engine sqlite|postgres] [--blocked 1000000] [--claimers 16]

A million runs wait for a lane of a job that is at its limit, a hundred thousand runs of other jobs are ready next
year, and 1,000 runs of yet other jobs are ready now. Claimers take those, 10 at a time and --pause-ms after the last
ones, until none is left; then all are given back, and they begin again. On PostgreSQL they are split over two nodes'
connections. The tables are as they were filled: nobody has analysed or vacuumed them. The limit, measured in the same
run: the same claims with no backlog at all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
from tests.support.database import Data, looking_into

from bench.databases import ENGINES, Place, fresh_place
from bench.figures import Figure, Limit, Result, at_most, latencies, percentile
from bench.scenario import parser_of, run_alone
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.priority import STANDINGS
from onbeat.domain.states import JobState
from onbeat.services.handoff import new_tokens
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.database import BEGIN_WRITE
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import Lease, LeasedRun, NewJob

DUE = 1_000
CREATED_AT_ONCE = 5_000
AT_ONCE = 10
SHARES = (0.5, 0.95, 0.99, 1.0)
BLOCKED_JOB = 7_000_000
LATER_JOBS = 8_000_000
DAY_US = 86_400 * SECOND_US

FILL = """
WITH RECURSIVE numbers (number) AS (
    SELECT CAST(? AS bigint) UNION ALL SELECT number - 1 FROM numbers WHERE number > 1
)
INSERT INTO live_runs (
    slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at, late_after, max_run_us, created_at
)
SELECT
    (job_id + number * step) % 256, job_id + number * step, scheduled_at + number, 'pending', 'backfill', 1, 0, lane,
    ready_at, scheduled_at, 3600000000, scheduled_at
FROM numbers CROSS JOIN (
    SELECT
        CAST(? AS bigint) AS job_id, CAST(? AS bigint) AS step, CAST(? AS bigint) AS lane,
        CAST(? AS bigint) AS ready_at, CAST(? AS bigint) AS scheduled_at
) AS runs
WHERE number > 0
"""


def fill(data: Data, options: argparse.Namespace, *, blocked: int, later: int, now: int) -> None:
    """Runs that wait for a lane, and those that are ready next year: the lane's holder is one of them."""
    next_year = now + 365 * DAY_US
    with looking_into(data) as look:
        if blocked:
            look(FILL, 1, BLOCKED_JOB, 0, 0, next_year, now - DAY_US)
            look(FILL, blocked, BLOCKED_JOB, 0, None, now - DAY_US, now - DAY_US // 2)
        if later:
            look(FILL, later, LATER_JOBS, 1, 0, next_year, now)


async def fill_ready(data: Data, count: int, *, now: int) -> None:
    """Runs that are ready, and their jobs: of the others no definition is looked at."""
    store = await open_store(str(data))
    for start in range(0, count, CREATED_AT_ONCE):
        await store.jobs.create(_ready_jobs(range(start + 1, min(start + CREATED_AT_ONCE, count) + 1), now), now=now)
    await store.close()
    with looking_into(data) as look:
        look(FILL, count, 0, 1, 0, now - SECOND_US, now)


def _ready_jobs(numbers: range, now: int) -> list[NewJob]:
    definition = Definition(
        schedules=(EverySchedule(every_s=86_400, anchor_at=0),), target=WebhookTarget(url="https://example.com/hook")
    )
    return [
        NewJob(
            job_id=number,
            namespace="default",
            key=None,
            name=f"Job {number}",
            tags=(),
            definition=encode_definition(definition),
            max_running=1,
            state=JobState.ACTIVE,
            next_fire_at=now + DAY_US,
        )
        for number in numbers
    ]


async def claim_all(store: Store, latencies_ms: list[float], *, pause_s: float, now: int) -> list[LeasedRun]:
    """One claimer, until nothing is left."""
    claimed: list[LeasedRun] = []
    while True:
        leases = [Lease(token, "bench", now + 3_600 * SECOND_US) for token in new_tokens(AT_ONCE)]
        started = time.perf_counter()
        ready_at = await store.leases.next_ready_at(queue=None, now=now)
        runs = await store.leases.claim(leases, now=now, queue=None) if ready_at is not None and ready_at <= now else []
        latencies_ms.append((time.perf_counter() - started) * 1e3)
        claimed += runs
        if not runs:
            return claimed
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))


async def measure_claims(stores: Sequence[Store], options: argparse.Namespace, *, now: int) -> list[float]:
    """Milliseconds of each claim."""
    latencies_ms: list[float] = []
    for _ in range(options.rounds):
        claimers = [
            claim_all(stores[number % len(stores)], latencies_ms, pause_s=options.pause_ms / 1e3, now=now)
            for number in range(options.claimers)
        ]
        claimed = [run for runs in await asyncio.gather(*claimers) for run in runs]
        assert len(claimed) == len({run.key for run in claimed}) == DUE, len(claimed)
        await stores[0].leases.release([(run.key, run.token) for run in claimed], now=now)
    return latencies_ms


async def count_rows_read(url: str, *, now: int) -> int:
    """Of one claim of 10, by EXPLAIN ANALYZE: what all scans returned, and what they read and threw away."""
    connection = await asyncpg.connect(url)
    statement = load_queries("leases")["lease_runs"]
    try:
        await connection.execute(BEGIN_WRITE)
        plan = await connection.fetchval(
            "EXPLAIN (ANALYZE, FORMAT JSON) " + statement,
            STANDINGS, [0] * len(STANDINGS), "", now, AT_ONCE, 0,
            new_tokens(AT_ONCE), ["bench"] * AT_ONCE, [now] * AT_ONCE,
        )  # fmt: skip
        await connection.execute("ROLLBACK")
    finally:
        await connection.close()
    return round(_rows_of(json.loads(plan)[0]["Plan"]))


def _rows_of(node: dict[str, Any]) -> float:
    read = sum(_rows_of(child) for child in node.get("Plans", ()))
    if node["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan"):
        wasted = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        read += (node["Actual Rows"] + wasted) * node["Actual Loops"]
    return read


async def measure_backlog(
    data: Data, options: argparse.Namespace, *, blocked: int, later: int
) -> tuple[list[float], int]:
    """One backlog, in a new database. Answer: milliseconds of each claim, and the rows that one reads (PostgreSQL)."""
    now = host_time_us()
    await fill_ready(data, DUE, now=now)
    fill(data, options, blocked=blocked, later=later, now=now)
    is_postgres = options.engine == "postgres"
    stores = [await open_store(str(data)) for _ in range(2 if is_postgres else 1)]
    try:
        rows_read = await count_rows_read(str(data), now=now) if is_postgres else 0
        return await measure_claims(stores, options, now=now), rows_read
    finally:
        for store in stores:
            await store.close()


def measure(options: argparse.Namespace) -> Result:
    """First without a backlog, then beside one."""
    with fresh_place(options.engine) as place:
        alone_ms, alone_rows = asyncio.run(measure_backlog(_data(place), options, blocked=0, later=0))
    with fresh_place(options.engine) as place:
        beside_ms, beside_rows = asyncio.run(
            measure_backlog(_data(place), options, blocked=options.blocked, later=options.later)
        )
    alone_ms.sort()
    figures = latencies(
        "claim",
        beside_ms,
        shares=SHARES,
        targets={0.95: at_most(20)},
        limits={share: Limit("no backlog", percentile(alone_ms, share)) for share in SHARES},
    )
    if options.engine == "postgres":
        figures.append(Figure("rows read for a claim", beside_rows, "rows", limit=Limit("no backlog", alone_rows)))
    setting = f"{options.engine}: {options.claimers} claimers of {AT_ONCE} runs beside {options.blocked:,} blocked ones"
    return Result(setting, figures)


def _data(place: Place) -> Data:
    return place.data if place.engine == "postgres" else Path(place.data)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="postgres")
    parser.add_argument("--blocked", type=int, default=1_000_000)
    parser.add_argument("--later", type=int, default=100_000)
    parser.add_argument("--claimers", type=int, default=16)
    parser.add_argument("--pause-ms", type=int, default=50, help="on average; 0 keeps the database saturated")
    parser.add_argument("--rounds", type=int, default=10)
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
