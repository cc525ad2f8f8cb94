"""Retention under load on PostgreSQL: do claims and finishes wait while days of history are dropped and rows deleted?

    python -m bench.retention [--days 3] [--rows 100000]

History holds some days that have a partition each, and as many rows as one of them in the default partition, all of
them past their retention. Four workers claim 10 runs, finish them and begin again, without a pause; what is measured is
how long a claim and a finish take, first with nothing beside them (the limit), then while everything old is pruned.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime, timedelta

from tests.support.database import looking_into

from bench.claims import AT_ONCE, DAY_US, fill_ready
from bench.databases import fresh_place
from bench.figures import Figure, Limit, Result, at_most, latencies, percentile
from bench.scenario import parser_of, run_alone
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.services.handoff import new_tokens
from onbeat.services.retain import BATCH
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.partitions import RUNS, Partition
from onbeat.store.values import EndRun, Finish, Lease, LiveRun

WORKERS = 4
QUIET_S = 5.0
READY = 100_000
SHARES = (0.5, 0.99, 1.0)

FILL_HISTORY = """
INSERT INTO ended_runs (
    slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at, status, worker
)
SELECT number % 256, number, $1 + number, 'succeeded', false, 'schedule', 1, 1, $1, $1, 200, 'bench'
FROM generate_series(1, $2::bigint) AS number
"""


def fill_history(url: str, options: argparse.Namespace, *, now: int) -> None:
    """Partitions of days long ago, and rows of the year before in the default one."""
    today = datetime.fromtimestamp(now // SECOND_US, UTC).date()
    with looking_into(url) as look:
        for ago in range(60, 60 + options.days):
            partition = Partition(today - timedelta(days=ago), RUNS)
            look(partition.write("create_partition"))
            look(FILL_HISTORY, partition.from_at, options.rows)
        look(FILL_HISTORY, now - 365 * DAY_US, options.rows)


def never_asked(_run: LiveRun, _definition: str, _item: Finish) -> EndRun:
    raise AssertionError("plain successes are not judged")


async def work(store: Store, latencies_ms: list[float], over: asyncio.Event) -> None:
    """Claim and finish until it is over."""
    while not over.is_set():
        now = host_time_us()
        started = time.perf_counter()
        leases = [Lease(token, "bench", now + 30 * SECOND_US) for token in new_tokens(AT_ONCE)]
        runs = await store.leases.claim(leases, now=now, queue=None)
        claimed = time.perf_counter()
        outcome = Outcome(OutcomeKind.SUCCEEDED, now, 1_000, status=200)
        await store.leases.finish([Finish(run.key, run.token, outcome) for run in runs], now=now, decide=never_asked)
        latencies_ms += [(claimed - started) * 1e3, (time.perf_counter() - claimed) * 1e3]


async def prune_all(store: Store) -> int:
    """As the retention loop does. Answer: the rows that went."""
    gone = 0
    while pruned := await store.runs.prune(ended_before=host_time_us() - 30 * DAY_US, limit=BATCH):
        gone += pruned
    return gone


async def measure_pruning(url: str) -> tuple[list[float], list[float], float, int]:
    """Milliseconds of each call with nothing beside and while pruning; seconds of pruning; rows deleted."""
    store, cleaner = await open_store(url), await open_store(url)
    quiet_ms: list[float] = []
    pruning_ms: list[float] = []
    try:
        over = asyncio.Event()
        workers = [asyncio.create_task(work(store, quiet_ms, over)) for _ in range(WORKERS)]
        await asyncio.sleep(QUIET_S)
        over.set()
        await asyncio.gather(*workers)
        over = asyncio.Event()
        workers = [asyncio.create_task(work(store, pruning_ms, over)) for _ in range(WORKERS)]
        started = time.perf_counter()
        gone = await prune_all(cleaner)
        took_s = time.perf_counter() - started
        over.set()
        await asyncio.gather(*workers)
    finally:
        await store.close()
        await cleaner.close()
    return quiet_ms, pruning_ms, took_s, gone


def measure(options: argparse.Namespace) -> Result:
    """On a new database."""
    with fresh_place("postgres") as place:
        now = host_time_us()
        fill_history(place.data, options, now=now)
        asyncio.run(fill_ready(place.data, READY, now=now))
        quiet_ms, pruning_ms, took_s, gone = asyncio.run(measure_pruning(place.data))
    quiet_ms.sort()
    figures = latencies(
        "claim or finish",
        pruning_ms,
        shares=SHARES,
        targets={1.0: at_most(200)},
        limits={share: Limit("nothing beside", percentile(quiet_ms, share)) for share in SHARES},
    )
    figures.append(Figure("until everything old is gone", took_s, "s"))
    figures.append(Figure("deleted by row", gone, "rows"))
    return Result(f"postgres, {options.days} days of {options.rows:,} runs, and as many by row", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000, help="of each day, and of the default partition")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
