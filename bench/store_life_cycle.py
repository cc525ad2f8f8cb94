"""How fast the store alone is: due → recorded and leased → finished, in durable batches.

    python -m bench.store_life_cycle --jobs 1000000 --fires 200000

Prints a table: jobs created per second, fires per second and µs per fire, and as the limit measured in the same run
what bare batched writes of rows of the same size cost with the same durability. The data file is made anew in
`--directory` and removed afterwards; put it on the disk that counts.
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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from bench.machine import describe_machine
from onbeat.app.process import spare_the_collector
from onbeat.domain.model import Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, Trigger
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.sqlite.connection import open_writing_connection
from onbeat.store.values import DueJob, EndRun, Finish, Finished, FirePlan, Lease, LeasedRun, LiveRun, NewJob, NewRun

SECOND = 1_000_000
START = 1_750_000_000 * SECOND
CREATED_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table."""

    name: str
    count: int
    wall_s: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.count / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s * 1e6 / self.count


class Stopwatch:
    """Wall and CPU seconds since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = _cpu_s()

    def stop(self, name: str, count: int) -> Measure:
        return Measure(name, count, time.perf_counter() - self._wall, _cpu_s() - self._cpu)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


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


async def run_life_cycle(store: Store, *, fires: int, batch: int, interval_s: int) -> Measure:
    """One batch is recorded while the one before it is finished, as dispatcher and worker do."""
    decide = FixedInterval(interval_s=interval_s, until=0)
    finishing: asyncio.Task[list[Finished]] | None = None
    recorded = 0
    due_at = await store.fires.next_due_at()
    watch = Stopwatch()
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
    return watch.stop("life of a fire", recorded)


def write_bare_rows(path: Path, *, fires: int, batch: int, jobs: int, randomness: random.Random) -> Measure:
    """The limit: the rows of a fire (clock, history) written in the same batches, and nothing decided or read."""
    connection = open_writing_connection(str(path))
    connection.pragma("wal_autocheckpoint", 8_192)
    connection.execute("CREATE TABLE clock (job INTEGER PRIMARY KEY, at INTEGER) STRICT")
    connection.execute("CREATE TABLE history (id INTEGER PRIMARY KEY, job INTEGER, at INTEGER, body BLOB) STRICT")
    connection.execute("CREATE UNIQUE INDEX history_key ON history (job, at)")
    with connection:
        connection.executemany("INSERT INTO clock VALUES (?, 0)", ((job,) for job in range(jobs)))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    body = bytes(110)
    watch = Stopwatch()
    for start in range(0, fires, batch):
        chosen = [randomness.randrange(jobs) for _ in range(batch)]
        with connection:
            connection.executemany("UPDATE clock SET at = ? WHERE job = ?", [(start, job) for job in chosen])
            connection.executemany(
                "INSERT INTO history (job, at, body) VALUES (?, ?, ?)",
                [(job, start + number, body) for number, job in enumerate(chosen)],
            )
    measure = watch.stop("limit: bare rows", fires)
    connection.close()
    return measure


async def measure_all(options: argparse.Namespace, directory: Path) -> list[Measure]:
    randomness = random.Random(7)
    store = await open_store(str(directory / "bench.db"))
    watch = Stopwatch()
    for jobs in new_jobs(options.jobs, interval_s=options.interval, randomness=randomness):
        await store.jobs.create(jobs, now=START)
    created = watch.stop("job created", options.jobs)
    lived = await run_life_cycle(store, fires=options.fires, batch=options.batch, interval_s=options.interval)
    await store.close()
    bare = write_bare_rows(
        directory / "bare.db", fires=options.fires, batch=options.batch, jobs=options.jobs, randomness=randomness
    )
    return [created, lived, bare]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--fires", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--interval", type=int, default=60, help="seconds between two fires of a job")
    parser.add_argument("--directory", type=Path, help="where the data file is made; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    spare_the_collector()  # as every process of onbeat does
    directory = Path(tempfile.mkdtemp(prefix="onbeat-bench-", dir=options.directory))
    try:
        measures = asyncio.run(measure_all(options, directory))
    finally:
        shutil.rmtree(directory)
    facts = {
        "machine": describe_machine(),
        "setting": f"{options.jobs:,} jobs, {options.fires:,} fires in batches of {options.batch}, synchronous=FULL",
        "peak RSS": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB",
    }
    for name, fact in facts.items():
        print(f"{name:10} {fact}")
    print(f"{'':18} {'count':>10} {'per second':>11} {'µs each':>9} {'µs CPU':>9}")
    for line in measures:
        wall_us = 1e6 / line.per_second
        print(f"{line.name:18} {line.count:>10,} {line.per_second:>11,.0f} {wall_us:>9.1f} {line.cpu_us:>9.1f}")
    if options.json is not None:
        rows = {
            line.name: {"count": line.count, "per_second": line.per_second, "cpu_us": line.cpu_us} for line in measures
        }
        options.json.write_text(json.dumps({"facts": facts, "measures": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
