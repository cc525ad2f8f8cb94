"""One server on SQLite, three workers over HTTP, a receiver; all of them killed and frozen at random; then judged.

Promises P1, P2, P4 to P10: the history checker holds the rows, the receiver's log and every call about a lease against
plans that are counted here by hand.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from tests.chaos.faults import Start, torment, victims
from tests.support.fleet import LOOPBACK, make_key, working
from tests.support.process import QUICK, ServerProcess, free_port, running
from tests.support.receiver import Call, receiving

from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_job_id
from onbeat.domain.instants import format_instant
from onbeat.domain.model import SECOND_US
from onbeat.store.open import open_store
from onbeat.testing.events import Planned
from onbeat.testing.history import Seen, judge
from onbeat.testing.recording import read_calls
from onbeat.testing.rows import read_history

SERVER = Path(__file__).with_name("recording_server.py")
JOBS = 80
SECONDS = 45
WORKERS = 3
LEASE_S = 1.0
# One dispatcher on one file never meets an insert of another.
REQUIRED = Seen(reclaims=20, refused_finishes=20, insert_conflicts=0, duplicate_deliveries=20, fires=3_000)


async def create_jobs(http: httpx.AsyncClient, url: str, *, first: int) -> list[int]:
    """Jobs that fire each second from `first` (a whole second) on, `SECONDS` times and never again."""
    schedule = {
        "every": 1,
        "start_at": format_instant(first * SECOND_US),
        "end_at": format_instant((first + SECONDS - 1) * SECOND_US),
    }
    bodies = [
        {
            "name": f"job {number}",
            "schedules": [schedule],
            "target": {"url": url},
            "max_running": 3,
            "retry": {"initial_s": 0.1},
        }
        for number in range(JOBS)
    ]
    answers = [(await http.post("/v1/jobs", json=body)).raise_for_status().json() for body in bodies]
    return [parse_job_id(answer["id"]) for answer in answers]


async def wait_until_at_rest(http: httpx.AsyncClient) -> None:
    """Until every job is completed and no run is live."""
    async with asyncio.timeout(90):
        while True:
            jobs = (await http.get("/v1/jobs", params={"state": "active"})).raise_for_status().json()["items"]
            live = (await http.get("/v1/runs", params={"state": ["pending", "running"]})).raise_for_status().json()
            if not jobs and not live["items"]:
                return
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1])
async def test_a_fleet_that_is_killed_and_frozen_accounts_for_every_instant(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    data, calls, port = tmp_path / "onbeat.sqlite3", tmp_path / "calls.jsonl", free_port()
    key = await make_key(data, "admin")

    async def answer(_call: Call) -> int:
        await asyncio.sleep(dice.uniform(0.05, 0.4))
        return 503 if dice.random() < 0.02 else 200

    def serve() -> AbstractAsyncContextManager[ServerProcess]:
        return running(
            lambda port: [str(SERVER), str(data), str(port), str(calls)],
            log=tmp_path / "server.log",
            port=port,
            env=QUICK | LOOPBACK | {"ONBEAT_WORKERS": "0"},
        )

    url = f"http://127.0.0.1:{port}"

    def work() -> AbstractAsyncContextManager[ServerProcess]:
        return working(url, key, data, concurrency=30)

    wanted: list[tuple[str, Start, bool]] = [("server", serve, True)]
    wanted += [(f"worker {number}", work, False) for number in range(WORKERS)]
    async with receiving(answer) as receiver:
        async with (
            victims(*wanted) as started,
            httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=30) as http,
        ):
            first = host_time_us() // SECOND_US + 4
            job_ids = await create_jobs(http, receiver.url, first=first)
            last_at = (first + SECONDS) * SECOND_US
            await torment(started, until=lambda: host_time_us() > last_at, lease_s=LEASE_S, dice=dice)
            await wait_until_at_rest(http)
            for victim in reversed(started):
                assert await victim.running.stop() == 0
        deliveries = receiver.deliveries()
    instants = tuple(second * SECOND_US for second in range(first, first + SECONDS))
    planned = [Planned(job_id, instants) for job_id in job_ids]
    store = await open_store(str(data), create=False)
    try:
        history = await read_history(store, planned=planned, deliveries=deliveries, calls=read_calls([calls]))
    finally:
        await store.close()
    verdict = judge(history, required=REQUIRED)
    print(verdict.explain(), {victim.name: victim.suffered for victim in started}, sep="\n")
    assert verdict.holds, verdict.explain()
