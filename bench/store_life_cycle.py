"""How fast the store alone is: due → recorded and leased → finished, in durable batches.

    python -m bench.store_life_cycle [--engine sqlite|postgres] [--jobs 1000000] [--fires 200000]

Jobs created and fires lived through per second, and the CPU of each, of this process and of PostgreSQL's. The limit,
measured in the same run: bare batched writes of rows of the same size with the same durability. The data is made anew
in `--directory` and removed afterwards; put it on the disk that counts.

On PostgreSQL three batches are recorded at once (`--at-once`), as by three nodes, on SQLite, which has one writer, one;
and each is finished while the next one is recorded. Instants are today's, for which history has a
partition as in production.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
from collections.abc import Iterator

from bench.databases import ENGINES, Place, fresh_place
from bench.figures import Figure, Limit, Result, at_least, at_most
from bench.measures import Measure, Stopwatch
from bench.scenario import parser_of, run_alone
from onbeat.app.process import spare_the_collector
from onbeat.clock import host_time_us
from onbeat.domain.model import Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, Trigger
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.values import DueJob, EndRun, Finish, Finished, FirePlan, Lease, LeasedRun, LiveRun, NewJob, NewRun

SECOND = 1_000_000
DAY = 86_400 * SECOND
START = host_time_us() // DAY * DAY
AT_ONCE = {"sqlite": 1, "postgres": 3}
CREATED_AT_ONCE = 5_000
ASKED_WITH = 1_000_000
"""Jobs beside which design §8 asks for its figures."""


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


class LifeCycle:
    """Fires that are recorded and finished until there were so many."""

    def __init__(self, store: Store, *, fires: int, batch: int, interval_s: int) -> None:
        self.recorded = 0
        self._store = store
        self._fires = fires
        self._batch = batch
        self._decide = FixedInterval(interval_s=interval_s, until=0)
        self._now = START

    async def run(self, *, at_once: int) -> int:
        """Answer: the fires."""
        await asyncio.gather(*(self._record_and_finish() for _ in range(at_once)))
        return self.recorded

    async def _record_and_finish(self) -> None:
        """One batch is recorded while the one before it is finished, as dispatcher and worker do."""
        finishing: asyncio.Task[list[Finished]] | None = None
        while self.recorded < self._fires:
            answer = await self._store.fires.record_due(now=self._now, limit=self._batch, decide=self._decide)
            self.recorded += len(answer.leased)
            if answer.next_due_at is not None:
                self._now = max(self._now, answer.next_due_at + SECOND)
                self._decide.until = self._now + 30 * SECOND
            if finishing is not None:
                await finishing
            finishing = asyncio.create_task(finish_all(self._store, answer.leased, now=self._now))
        if finishing is not None:
            await finishing


async def measure_store(place: Place, options: argparse.Namespace) -> list[Measure]:
    """Creation, and life."""
    store = await open_store(place.data)
    watch = Stopwatch(place.server_cpu_s)
    for jobs in new_jobs(options.jobs, interval_s=options.interval, randomness=random.Random(7)):
        await store.jobs.create(jobs, now=START)
    created = watch.stop("jobs created", options.jobs)
    watch = Stopwatch(place.server_cpu_s)
    life = LifeCycle(store, fires=options.fires, batch=options.batch, interval_s=options.interval)
    recorded = await life.run(at_once=options.at_once or AT_ONCE[options.engine])
    lived = watch.stop("lives of a fire", recorded)
    await store.close()
    return [created, lived]


def measure(options: argparse.Namespace) -> Result:
    """On data made anew, which is removed afterwards."""
    spare_the_collector()  # as every process of onbeat does
    with fresh_place(options.engine) as place:
        created, lived = asyncio.run(measure_store(place, options))
        bare = place.write_bare(options.fires, options.jobs)
    asked = {"lives of a fire": at_least(20_000)} if options.jobs >= ASKED_WITH else {}
    server_asked = {"lives of a fire": at_most(70)} if options.jobs >= ASKED_WITH else {}
    figures: list[Figure] = []
    for part in (lived, created):
        limit = Limit(bare.name, bare.per_second) if part is lived else None
        figures += [
            Figure(part.name, part.per_second, "per second", asked.get(part.name), limit),
            Figure(f"CPU, {part.name}", part.cpu_us, "µs each"),
        ]
        if place.engine == "postgres":
            cost = Limit(bare.name, bare.server_cpu_us) if part is lived else None
            name = f"CPU of PostgreSQL, {part.name}"
            figures.append(Figure(name, part.server_cpu_us, "µs each", server_asked.get(part.name), cost))
    figures.append(Figure("resident memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB"))
    setting = (
        f"{options.engine}, {options.jobs:,} jobs, {options.fires:,} fires in batches of {options.batch}, "
        f"{options.at_once or AT_ONCE[options.engine]} at once"
    )
    return Result(setting, figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--fires", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument(
        "--at-once", type=int, help="batches that are recorded at once; default: 3 on PostgreSQL, 1 on SQLite"
    )
    parser.add_argument("--interval", type=int, default=60, help="seconds between two fires of a job")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
