"""kill -9 around every step of a resumption with replay: the same request afterwards does the rest."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import httpx
import pytest
from tests.crash.points import dying, lasting
from tests.support.ports import free_port
from tests.support.receiver import Call, receiving

JOB = {"name": "failing", "schedules": [{"every": 1}], "retry": {"max_attempts": 1}, "auto_pause": {"failures": 3}}
POINTS = [
    *(f"leases.finish:{when}:3" for when in ("before", "inside", "after")),
    "leases.revive:before:1",
    "leases.revive:after:2",
    "jobs.change:before:1",
    "jobs.change:inside:1",
    "jobs.change:after:1",
]


async def resume(url: str, job_id: str) -> None:
    """As somebody asks for it; the server may die over it."""
    with contextlib.suppress(httpx.TransportError):
        async with httpx.AsyncClient(base_url=url, timeout=10) as http:
            answer = await http.post(f"/v1/jobs/{job_id}/resume", json={"replay": "failed"})
            assert answer.status_code == 200, answer.text


async def wait_until_paused(url: str, job_id: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=10) as http:
        while (await http.get(f"/v1/jobs/{job_id}")).json()["state"] != "paused":
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_a_scheduler_killed_over_a_replay_finishes_it_with_the_same_request(point: str, tmp_path: Path) -> None:
    data, port = tmp_path / "onbeat.sqlite3", free_port()
    is_well = False

    async def answer(_call: Call) -> int:
        return 200 if is_well else 500

    async with receiving(answer) as receiver:
        async with dying(point, data, log=tmp_path / "1.log", port=port) as first:
            assert await first.wait_ready()
            async with httpx.AsyncClient(base_url=first.url, timeout=10) as http:
                job = (await http.post("/v1/jobs", json=JOB | {"target": {"url": receiver.url}})).json()
            if not point.startswith("leases.finish"):
                await wait_until_paused(first.url, job["id"])
                await resume(first.url, job["id"])
            assert await first.wait_exit() == -signal.SIGKILL
        # Resumed before the death, it fires as soon as the next process is up: from here on its calls succeed.
        is_resumed = is_well = point.startswith("jobs.change:after")
        lost = {call.run_id for call in receiver.calls}
        async with lasting(data, log=tmp_path / "2.log", port=port) as second:
            assert await second.wait_ready()
            if not is_resumed:
                await wait_until_paused(second.url, job["id"])
                lost = {call.run_id for call in receiver.calls}
                is_well = True
            await resume(second.url, job["id"])
            await receiver.wait_for(lambda calls: lost <= {call.run_id for call in calls if call.attempt > 1})
            await receiver.wait_for(lambda calls: {call.run_id for call in calls} > lost)
            async with httpx.AsyncClient(base_url=second.url, timeout=10) as http:
                states = [(await http.get(f"/v1/runs/{run_id}")).json()["state"] for run_id in lost]
                assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "active"
            assert await second.stop() == 0
    assert set(states) <= {"running", "succeeded"}
