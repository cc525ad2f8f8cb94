"""The sweep that takes back the runs of dead workers dies half way; the next one takes back all of them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest
from tests.crash.points import dying, lasting
from tests.support.ports import free_port
from tests.support.receiver import Call, receiving

RUNS = 3


@pytest.fixture
def data(either_database: str) -> str:
    """Every point on both engines."""
    return either_database


@pytest.mark.slow
@pytest.mark.parametrize("point", ["leases.expire:inside:2", "leases.expire:inside:3", "nodes.prune:after:1"])
async def test_three_runs_of_a_dead_process_are_delivered_again_though_the_sweep_dies_too(
    point: str, data: str, tmp_path: Path
) -> None:
    port, may_answer = free_port(), asyncio.Event()

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with receiving(answer) as receiver:
        async with lasting(data, log=tmp_path / "1.log", port=port) as first:
            assert await first.wait_ready()
            async with httpx.AsyncClient(base_url=first.url) as http:
                for number in range(RUNS):
                    body = {
                        "name": f"job {number}",
                        "schedules": [{"every": 3_600}],
                        "target": {"url": receiver.url},
                        "retry": {"initial_s": 0.1},
                    }
                    job = (await http.post("/v1/jobs", json=body)).json()
                    await http.post(f"/v1/jobs/{job['id']}/trigger", json={})
            await receiver.wait_for(lambda calls: len(calls) == RUNS)
            await first.kill()
        lost = {call.run_id for call in receiver.calls}
        assert len(lost) == RUNS
        async with dying(point, data, log=tmp_path / "2.log", port=port) as second:
            assert await second.wait_exit() == -signal.SIGKILL
        may_answer.set()
        async with lasting(data, log=tmp_path / "3.log", port=port) as third:
            assert await third.wait_ready()
            # The second process may have taken a run back, and died before its attempt was on the wire.
            await receiver.wait_for(lambda calls: {call.run_id for call in calls if call.attempt > 1} == lost)
            assert await third.stop() == 0
