"""A host that takes every request and never answers holds up nobody but itself (reliability P22)."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
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


@pytest.mark.parametrize("overlap", ["queue", "skip"])
async def test_a_receiver_that_never_answers_costs_its_job_no_more_than_the_limit(
    start_server: StartServer, overlap: str
) -> None:
    async def hang(_call: Call) -> int:
        await asyncio.Event().wait()
        return 200

    async with receiving(hang) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            body = {
                "name": "hung",
                "schedules": [{"every": 1}],
                "target": {"url": receiver.url},
                "timeout_s": 1.2,  # longer than a period: the overlap rule is asked each time
                "overlap": overlap,
                "retry": {"max_attempts": 1},
            }
            job = (await http.post("/v1/jobs", json=body)).json()
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls}) == 2)
            runs = (await http.get("/v1/runs", params={"job": job["id"], "limit": 100})).json()["items"]
    by_id = {run["id"]: run for run in runs}
    first, second = (by_id[call.run_id] for call in receiver.calls[:2])
    assert (first["outcome"], first["attempt"]) == ("no_answer", 1)
    assert first["scheduled_at"] < second["scheduled_at"]
    skipped = [run for run in runs if run["state"] == "skipped"]
    assert {run["reason"] for run in skipped} <= {"overlap"}
    if overlap == "skip":
        assert {run["blocked_by"] for run in skipped if run["scheduled_at"] < second["scheduled_at"]} == {first["id"]}
