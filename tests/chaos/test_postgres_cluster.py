"""Three nodes on one PostgreSQL, four workers over HTTP, a receiver; nodes and workers are killed and frozen at random,
and clocks of jobs set back; then judged.

Promises P1, P2, P4 to P10. It takes rounds, at least two, until enough was seen, since a busy machine sees less.
`CHAOS_JOBS` and `CHAOS_SECONDS`, of each round, make it larger: 200 and 50 are 20,000 fires. `CHAOS_SEED` draws others.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, timed, wait_until_at_rest
from tests.chaos.faults import Disturbances, Start, Victim, set_clocks_back, torment, victims
from tests.support.fleet import make_key, working
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.process import ServerProcess
from tests.support.receiver import Call, receiving

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.events import History, Planned
from onbeat.testing.history import Seen, judge
from onbeat.testing.recording import read_calls

JOBS = int(os.environ.get("CHAOS_JOBS", "60"))
SECONDS = int(os.environ.get("CHAOS_SECONDS", "20"))
NODES = 3
WORKERS = 4
LEAST_ROUNDS, MOST_ROUNDS = 2, 6
SOUGHT = ("reclaims", "refused_finishes", "insert_conflicts", "fires")
LENGTHS = {"ONBEAT_LEASE_S": "2", "ONBEAT_HEARTBEAT_S": "0.5"}
REST_S = 90 + 8 * SECONDS
"""Longer than the slowest machine takes for what is left when the last fault is over."""

LONGEST_NODE_FREEZE_S = 6.0
"""Longer than other nodes wait before they serve the slots of one that is silent."""

LONGEST_WORKER_FREEZE_S = 5.0
"""Longer than two leases."""

UNHEARD = -signal.SIGTERM
"""How a process ends that was told to before it had begun."""

IS_LARGE = JOBS * SECONDS * LEAST_ROUNDS >= 20_000
FLOOR = 100 if IS_LARGE else 20
"""reliability.md §2.2: what a nightly run must have seen. A small one sees less."""

REQUIRED = Seen(
    reclaims=FLOOR,
    refused_finishes=FLOOR,
    insert_conflicts=FLOOR,
    missed_marks=50 if IS_LARGE else 0,
    fires=LEAST_ROUNDS * JOBS * SECONDS,
)


def is_enough(calls: Sequence[Path], planned: Sequence[Planned]) -> bool:
    """Do the logs show all that is required?"""
    last_at = max((plan.must[-1] for plan in planned if plan.must), default=0)
    seen = judge(History(cut_off=last_at, planned=planned, runs=(), calls=read_calls(calls))).seen
    return all(getattr(seen, name) >= getattr(REQUIRED, name) for name in SOUGHT)


async def torment_all(
    started: Sequence[Victim], url: str, job_ids: Sequence[int], *, first_at: int, dice: random.Random
) -> None:
    """For as long as the jobs of one round fire. Clocks of the jobs that are named are set back."""

    def is_over() -> bool:
        return host_time_us() > first_at + SECONDS * SECOND_US

    await asyncio.gather(
        torment(started[:NODES], until=is_over, longest_freeze_s=LONGEST_NODE_FREEZE_S, dice=dice),
        torment(started[NODES:], until=is_over, longest_freeze_s=LONGEST_WORKER_FREEZE_S, dice=dice),
        set_clocks_back(url, job_ids, not_before=first_at, until=is_over),
    )


@pytest.mark.slow
@pytest.mark.timeout(900 + (MOST_ROUNDS + 1) * (SECONDS + JOBS // 20) + REST_S)
@pytest.mark.parametrize("seed", [int(os.environ.get("CHAOS_SEED", "1"))])
async def test_a_cluster_that_is_killed_and_frozen_accounts_for_every_instant(
    seed: int, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    dice = random.Random(seed)
    url = await databases.create()
    key = await make_key(url, "admin")
    ports = [free_port() for _ in range(NODES)]
    calls = [tmp_path / f"node-{number}.jsonl" for number in range(NODES)]

    async def answer(_call: Call) -> int:
        await asyncio.sleep(dice.uniform(0.05, 0.4))
        return 503 if dice.random() < 0.02 else 200

    def serve(number: int) -> AbstractAsyncContextManager[ServerProcess]:
        return serving_recorded(url, port=ports[number], calls=calls[number], settings=LENGTHS)

    def work(number: int) -> AbstractAsyncContextManager[ServerProcess]:
        server = f"http://127.0.0.1:{ports[number % NODES]}"
        return working(server, key, tmp_path / "onbeat", concurrency=50, settings=LENGTHS)

    wanted: list[tuple[str, Start, bool]] = [
        (f"node {number}", partial(serve, number), True) for number in range(NODES)
    ]
    wanted += [(f"worker {number}", partial(work, number), False) for number in range(WORKERS)]
    disturbances = Disturbances()
    async with receiving(answer) as receiver:
        async with (
            disturbances.watching(),
            victims(*wanted, disturbances=disturbances) as started,
            httpx.AsyncClient(
                base_url=started[0].running.url, headers={"authorization": f"Bearer {key}"}, timeout=30
            ) as http,
        ):
            planned: list[Planned] = []
            for number in range(MOST_ROUNDS):
                if number >= LEAST_ROUNDS and is_enough(calls, planned):
                    break
                first = host_time_us() // SECOND_US + 2 + JOBS // 20
                create = partial(create_jobs, http, receiver.url, first=first, seconds=SECONDS)
                # Every instant of the first runs. Those of the others are skipped or missed, one or many to a mark.
                third = JOBS // 3
                all_run = await create(jobs=third, overlap="allow", max_running=100, grace_s=3_600)
                of_round = timed(all_run, grace_s=3_600, late_after_s=30)
                of_round += timed(await create(jobs=third), grace_s=30)
                of_round += timed(await create(jobs=JOBS - 2 * third, overlap="skip", grace_s=1), grace_s=1)
                planned += of_round
                job_ids = [plan.job_id for plan in of_round]
                await torment_all(started, url, job_ids, first_at=first * SECOND_US, dice=dice)
            await wait_until_at_rest(http, timeout_s=REST_S)
            for victim in reversed(started):
                assert await victim.running.stop() in (0, UNHEARD)
        deliveries = receiver.deliveries()
    verdict = await judge_rows(
        url, calls=calls, planned=planned, deliveries=deliveries, required=REQUIRED, disturbed=disturbances.spans
    )
    print(verdict.explain(), {victim.name: victim.suffered for victim in started}, sep="\n")
    await databases.drop(url)
    assert verdict.holds, verdict.explain()
