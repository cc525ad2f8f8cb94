"""One server on SQLite, three workers over HTTP, a receiver; all of them killed and frozen at random; then judged.

Promises P1, P2, P4 to P10: the history checker holds the rows, the receiver's log and every call about a lease against
plans that are counted here by hand. `CHAOS_JOBS` and `CHAOS_SECONDS` make it larger: 200 and 100 are 20,000 fires.
`CHAOS_SEED` draws other faults.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, timed, wait_until_at_rest
from tests.chaos.faults import Disturbances, Start, torment, victims
from tests.support.fleet import make_key, working
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.receiver import Call, receiving
from tests.support.starting import start_fork

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.history import Seen

JOBS = int(os.environ.get("CHAOS_JOBS", "80"))
SECONDS = int(os.environ.get("CHAOS_SECONDS", "45"))
WORKERS = 3
LONGEST_FREEZE_S = 2.5
"""Longer than two leases."""

# One dispatcher on one file never meets an insert of another.
REQUIRED = Seen(
    reclaims=20, refused_finishes=20, insert_conflicts=0, duplicate_deliveries=20, fires=JOBS * (SECONDS - 5)
)
REST_S = 90 + 8 * SECONDS
"""Longer than the slowest machine takes for what is left when the last fault is over."""


@pytest.mark.slow
@pytest.mark.timeout(150 + 2 * SECONDS + REST_S)
@pytest.mark.parametrize("seed", [int(os.environ.get("CHAOS_SEED", "1"))])
async def test_a_fleet_that_is_killed_and_frozen_accounts_for_every_instant(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    data, calls, port = tmp_path / "onbeat.sqlite3", tmp_path / "calls.jsonl", free_port()
    url, key = f"http://127.0.0.1:{port}", await make_key(data, "admin")

    async def answer(_call: Call) -> int:
        await asyncio.sleep(dice.uniform(0.05, 0.4))
        return 503 if dice.random() < 0.02 else 200

    def serve() -> AbstractAsyncContextManager[ServerProcess]:
        return serving_recorded(data, port=port, calls=calls, start=start_fork)

    def work() -> AbstractAsyncContextManager[ServerProcess]:
        return working(url, key, data, concurrency=30)

    wanted: list[tuple[str, Start, bool]] = [("server", serve, True)]
    wanted += [(f"worker {number}", work, False) for number in range(WORKERS)]
    disturbances = Disturbances()
    async with receiving(answer) as receiver:
        async with (
            disturbances.watching(),
            victims(*wanted, disturbances=disturbances) as started,
            httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30) as http,
        ):
            first = host_time_us() // SECOND_US + 4 + JOBS // 20
            planned = timed(await create_jobs(http, receiver.url, jobs=JOBS, first=first, seconds=SECONDS), grace_s=30)
            last_at = planned[0].must[-1]
            await torment(started, until=lambda: host_time_us() > last_at, longest_freeze_s=LONGEST_FREEZE_S, dice=dice)
            await wait_until_at_rest(http, timeout_s=REST_S)
            for victim in reversed(started):
                assert await victim.running.stop() == 0
        deliveries = receiver.deliveries()
    verdict = await judge_rows(
        data,
        calls=[calls],
        planned=planned,
        deliveries=deliveries,
        required=REQUIRED,
        disturbed=disturbances.spans,
    )
    print(verdict.explain(), {victim.name: victim.suffered for victim in started}, sep="\n")
    assert verdict.holds, verdict.explain()
