"""A host that takes every request and never answers holds up nobody but itself (reliability P22)."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
from tests.scenarios.conftest import StartServer
from tests.support.receiver import Call, receiving

WORKERS = 4


async def test_jobs_of_other_hosts_run_on_time_while_a_host_hangs(start_server: StartServer) -> None:
    may_answer = asyncio.Event()

    async def hang(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with receiving() as hung, receiving() as healthy:
        hung.answer = hang
        async with start_server(workers=str(WORKERS)) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                jobs = [
                    {"name": "hung", "schedules": [{"every": 1}], "target": {"url": hung.url}}
                    for _ in range(5 * WORKERS)
                ] + [{"name": "healthy", "schedules": [{"every": 1}], "target": {"url": healthy.url}}]
                assert (await http.post("/v1/jobs:batch", json={"jobs": jobs})).status_code == 200
            await hung.wait_for(lambda calls: len(calls) == WORKERS)
            seen = len(healthy.calls)
            await healthy.wait_for(lambda calls: len(calls) >= seen + 5)
            assert len(hung.calls) == WORKERS  # and the host that hangs never gets more than the capacity
            may_answer.set()
            # Those that were put off are delivered then, as the first attempt that they are.
            await hung.wait_for(lambda calls: len({call.headers["onbeat-job"] for call in calls}) == 5 * WORKERS)
            assert set(Counter(call.attempt for call in hung.calls)) == {1}
            assert await server.stop() == 0
