"""How fast the store alone is: due → recorded and leased → finished, in durable batches.

    python -m bench.store_life_cycle --jobs 1000000 --fires 200000 --engine postgres

Prints a table: jobs created per second, fires per second and µs per fire, of wall time, of this process's CPU and of
the CPU of PostgreSQL's processes; and as the limit measured in the same run what bare batched writes of rows of the
same size cost with the same durability. The data is made anew in `--directory` and removed afterwards; put it on the
disk that counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.support.postgres import Databases, running_postgres

from bench.bare_rows import write_to_postgres, write_to_sqlite
from bench.machine import describe_machine
from bench.measures import Measure, Stopwatch, cpu_s_of_server
from onbeat.app.process import spare_the_collector
from onbeat.domain.model import Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, Trigger
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.values import DueJob, EndRun, Finish, Finished, FirePlan, Lease, LeasedRun, LiveRun, NewJob, NewRun

SECOND = 1_000_000
START = 1_750_000_000 * SECOND
CREATED_AT_ONCE = 5_000


def new_jobs(count: int, *, interval_s: int, randomness: random.Random) -> Iterator[list[NewJob]]:
    """Jobs whose instants are spread over the interval, as NewJob batches."""
    definition = encode_definition(
        Definition(
            schedules=(EverySchedule(every_s=interval_s, anchor_at=0),),
            target=WebhookTarget(url="https://example.com/hooks/invoices", payload='{"report": "daily"}'),
        )
    )
    batch: list[NewJob] = []
    for number in range(count):
        batch.append(
            NewJob(
                job_id=randomness.getrandbits(63),
                namespace="default",
                key=f"job-{number}",
                name=f"Job {number}",
                tags=(),
                definition=definition,
                max_running=1,
                state=JobState.ACTIVE,
                next_fire_at=START + number * interval_s // count * SECOND,
            )
        )
        if len(batch) == CREATED_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


class FixedInterval:
    """The cheapest decision there is: one leased run per fire, the clock one interval on."""

    def __init__(self, *, interval_s: int, until: int) -> None:
        self._interval_us = interval_s * SECOND
        self.until = until

    def __call__(self, due: DueJob) -> FirePlan:
        lease = Lease(os.urandom(16), "bench", self.until)
        run = NewRun(due.due_at, Trigger.SCHEDULE, due.due_at, due.due_at + 30 * SECOND, 0, lease=lease)
        return FirePlan(next_fire_at=due.due_at + self._interval_us, runs=(run,))


def never_asked(_run: LiveRun, _definition: str, _item: Finish) -> EndRun:
    raise AssertionError("plain successes are not judged")


async def finish_all(store: Store, leased: tuple[LeasedRun, ...], *, now: int) -> list[Finished]:
    items = [
        Finish(run.key, run.token, Outcome(OutcomeKind.SUCCEEDED, started_at=now, duration_us=1_500, status=200))
        for run in leased
    ]
    return await store.leases.finish(items, now=now, decide=never_asked)


async def run_life_cycle(store: Store, *, fires: int, batch: int, interval_s: int) -> int:
    """One batch is recorded while the one before it is finished, as dispatcher and worker do. Answer: the fires."""
    decide = FixedInterval(interval_s=interval_s, until=0)
    finishing: asyncio.Task[list[Finished]] | None = None
    recorded = 0
    due_at = await store.fires.next_due_at()
    while recorded < fires and due_at is not None:
        now = due_at + SECOND
        decide.until = now + 30 * SECOND
        answer = await store.fires.record_due(now=now, limit=batch, decide=decide)
        due_at = answer.next_due_at
        recorded += len(answer.leased)
        if finishing is not None:
            await finishing
        finishing = asyncio.create_task(finish_all(store, answer.leased, now=now))
    if finishing is not None:
        await finishing
    return recorded


async def measure_sqlite(options: argparse.Namespace) -> list[Measure]:
    """On a data file made anew, which is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="onbeat-bench-", dir=options.directory))
    randomness = random.Random(7)
    try:
        measures = await measure_store(str(directory / "bench.db"), options, Stopwatch, randomness)
        bare = write_to_sqlite(
            directory / "bare.db", fires=options.fires, batch=options.batch, jobs=options.jobs, randomness=randomness
        )
    finally:
        shutil.rmtree(directory)
    return [*measures, bare]


async def measure_postgres(options: argparse.Namespace) -> list[Measure]:
    """On a server started for it, with the settings that the tests' server has."""
    tempfile.tempdir = None if options.directory is None else str(options.directory)
    randomness = random.Random(7)
    with running_postgres() as server:
        url = await Databases(server).create()
        watch = partial(Stopwatch, lambda: cpu_s_of_server(server.pid))
        measures = await measure_store(url, options, watch, randomness)
        bare = await write_to_postgres(
            url, server=server.pid, fires=options.fires, batch=options.batch, jobs=options.jobs, randomness=randomness
        )
    return [*measures, bare]


async def measure_store(
    url: str, options: argparse.Namespace, start_watch: Callable[[], Stopwatch], randomness: random.Random
) -> list[Measure]:
    store = await open_store(url)
    watch = start_watch()
    for jobs in new_jobs(options.jobs, interval_s=options.interval, randomness=randomness):
        await store.jobs.create(jobs, now=START)
    created = watch.stop("job created", options.jobs)
    watch = start_watch()
    recorded = await run_life_cycle(store, fires=options.fires, batch=options.batch, interval_s=options.interval)
    lived = watch.stop("life of a fire", recorded)
    await store.close()
    return [created, lived]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--fires", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--interval", type=int, default=60, help="seconds between two fires of a job")
    parser.add_argument("--directory", type=Path, help="where the data is kept; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    spare_the_collector()  # as every process of onbeat does
    measures = asyncio.run(measure_sqlite(options) if options.engine == "sqlite" else measure_postgres(options))
    facts = {
        "machine": describe_machine(),
        "setting": f"{options.engine}, {options.jobs:,} jobs, {options.fires:,} fires in batches of {options.batch}, "
        "durable commits",
        "peak RSS": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB",
    }
    for name, fact in facts.items():
        print(f"{name:10} {fact}")
    print(f"{'':18} {'count':>10} {'per second':>11} {'µs each':>9} {'µs CPU':>9} {'server':>9}")
    for line in measures:
        wall_us = 1e6 / line.per_second
        print(
            f"{line.name:18} {line.count:>10,} {line.per_second:>11,.0f} {wall_us:>9.1f} {line.cpu_us:>9.1f} "
            f"{line.server_cpu_us:>9.1f}"
        )
    if options.json is not None:
        rows = {
            line.name: {
                "count": line.count,
                "per_second": line.per_second,
                "cpu_us": line.cpu_us,
                "server_cpu_us": line.server_cpu_us,
            }
            for line in measures
        }
        options.json.write_text(json.dumps({"facts": facts, "measures": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
