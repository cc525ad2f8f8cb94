"""Case C01: four dispatchers on one database, three of them killed and started again all the time."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, wait_until_at_rest
from tests.chaos.faults import Start, Victim, victims
from tests.support.fleet import make_key, working
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.process import ServerProcess
from tests.support.receiver import receiving

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.history import Seen

JOBS = 50
SECONDS = 25
NODES = 4
RESTARTS = 12
CRASH_LOOP = 6
"""So many of them follow each other without a pause, some before the process has begun."""

LENGTHS = {"ONBEAT_LEASE_S": "30", "ONBEAT_HEARTBEAT_S": "1"}
"""No worker of this test loses a lease, however busy the machine is."""


async def restart_in_turn(chosen: list[Victim]) -> None:
    for number in range(RESTARTS):
        await asyncio.sleep(0.2 if number < CRASH_LOOP else 2.0)
        await chosen[number % len(chosen)].kill()


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_dispatchers_that_are_restarted_all_the_time_fire_each_mark_once(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    url = await databases.create()
    key = await make_key(url, "admin")
    calls = [tmp_path / f"node-{number}.jsonl" for number in range(NODES)]

    def serve(number: int) -> AbstractAsyncContextManager[ServerProcess]:
        return serving_recorded(url, port=free_port(), calls=calls[number], settings=LENGTHS)

    wanted: list[tuple[str, Start, bool]] = [
        (f"node {number}", partial(serve, number), False) for number in range(NODES)
    ]
    async with receiving() as receiver:
        async with victims(*wanted) as (spared, *others):
            assert await spared.running.wait_ready(timeout_s=90)
            server = spared.running.url
            async with (
                working(server, key, tmp_path / "onbeat", concurrency=50, settings=LENGTHS),
                httpx.AsyncClient(base_url=server, headers={"authorization": f"Bearer {key}"}, timeout=30) as http,
            ):
                first = host_time_us() // SECOND_US + 4
                planned = await create_jobs(
                    http, receiver.url, jobs=JOBS, first=first, seconds=SECONDS, overlap="allow", max_running=100,
                    grace_s=3_600,
                )  # fmt: skip
                await restart_in_turn(others)
                await wait_until_at_rest(http)
        deliveries = receiver.deliveries()
    required = Seen(fires=JOBS * SECONDS // 2)
    verdict = await judge_rows(url, calls=calls, planned=planned, deliveries=deliveries, required=required)
    await databases.drop(url)
    assert verdict.holds, verdict.explain()
    assert len(receiver.calls) == len({call.run_id for call in receiver.calls}) >= verdict.seen.fires
    errors = [line for log in tmp_path.glob("*.log") for line in log.read_text().splitlines() if "[error" in line]
    assert [line for line in errors if "deadlock" in line or "unique" in line] == []
