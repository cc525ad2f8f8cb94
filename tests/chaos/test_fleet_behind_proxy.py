"""Workers whose way to the server stalls without a word and is cut: they come back, and the checker finds no fault."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, wait_until_at_rest
from tests.support.fleet import make_key, working
from tests.support.ports import free_port
from tests.support.proxy import Proxy, proxying
from tests.support.receiver import Call, Receiver, receiving
from tests.support.starting import start_fork

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.history import Seen

JOBS = 20
SECONDS = 30
WORKERS = 3
STALL_S = 2.5
"""Longer than two leases: what was in flight when it began is taken back."""


async def comes_back(proxy: Proxy, receiver: Receiver, *, after: int) -> None:
    """Every worker has a way to the server again, and new runs arrive."""
    seen = {call.run_id for call in receiver.calls[:after]}
    await receiver.wait_for(lambda calls: len({call.run_id for call in calls} - seen) >= JOBS)
    async with asyncio.timeout(60):
        while proxy.open_count < WORKERS:
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_cut", [True, False], ids=["stalled and cut", "stalled only"])
async def test_workers_outlive_a_way_that_stalls_and_no_run_is_lost(is_cut: bool, tmp_path: Path) -> None:
    data, calls, port = tmp_path / "onbeat.sqlite3", tmp_path / "calls.jsonl", free_port()
    key = await make_key(data, "admin")

    async def answer(_call: Call) -> int:
        await asyncio.sleep(0.2)
        return 200

    async with (
        receiving(answer) as receiver,
        serving_recorded(data, port=port, calls=calls, start=start_fork) as server,
    ):
        assert await server.wait_ready()
        async with (
            httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=30) as http,
            proxying(port) as proxy,
            contextlib.AsyncExitStack() as stack,
        ):
            workers = [
                await stack.enter_async_context(working(proxy.url, key, data, concurrency=20)) for _ in range(WORKERS)
            ]
            first = host_time_us() // SECOND_US + 3
            planned = await create_jobs(http, receiver.url, jobs=JOBS, first=first, seconds=SECONDS)
            await receiver.wait_for(lambda calls: len(calls) >= JOBS)
            for way in (proxy.to_client, proxy.to_server, proxy.to_client):
                # One way at first, so that the server hears of ends that it cannot answer; then both.
                accepted = proxy.accepted_count  # a worker that gives its connection up makes a new one meanwhile
                way.stall()
                await asyncio.sleep(STALL_S / 2)
                proxy.stall()
                await asyncio.sleep(STALL_S / 2)
                if is_cut:
                    assert proxy.cut() >= WORKERS
                seen = len(receiver.calls)
                proxy.resume()
                await comes_back(proxy, receiver, after=seen)
                assert proxy.accepted_count > accepted or not is_cut
            await wait_until_at_rest(http)
            for worker in workers:
                assert await worker.stop() == 0
        assert await server.stop() == 0
        deliveries = receiver.deliveries()
    required = Seen(reclaims=20, refused_finishes=20, duplicate_deliveries=10, fires=JOBS * SECONDS // 2)
    verdict = await judge_rows(data, calls=[calls], planned=planned, deliveries=deliveries, required=required)
    print(verdict.explain())
    assert verdict.holds, verdict.explain()
