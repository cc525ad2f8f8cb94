"""kill -9 around every step of a completion by callback: the run ends once, and as its handler said."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import httpx
import pytest
from tests.crash.points import dying, lasting
from tests.support.database import look
from tests.support.ports import free_port
from tests.support.receiver import Call, receiving

from onbeat.receiver import Callback

JOB = {"name": "slow", "schedules": [{"every": "1h"}], "completion": "callback"}
POINTS = [
    "leases.finish:before:1",
    "leases.finish:inside:1",
    "leases.finish:after:1",
    *(f"leases.{call}:{when}:1" for call in ("report", "complete") for when in ("before", "inside", "after")),
]


@pytest.fixture
def data(either_database: str) -> str:
    """Every point on both engines."""
    return either_database


async def say(callback: Callback) -> bool:
    """What a handler does at the end of its work. False: the scheduler did not answer."""
    with contextlib.suppress(OSError):
        await asyncio.to_thread(callback.progress, 90)
        await asyncio.to_thread(callback.fail, "a part is missing")
        return True
    return False


async def accept(_call: Call) -> int:
    return 202


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
async def test_a_scheduler_killed_around_a_report_hears_it_again(point: str, data: str, tmp_path: Path) -> None:
    port = free_port()

    async with receiving(accept) as receiver:
        body = JOB | {"target": {"url": receiver.url}, "retry": {"max_attempts": 2, "initial_s": 0.001}}
        async with dying(point, data, log=tmp_path / "1.log", port=port) as first:
            assert await first.wait_ready()
            async with httpx.AsyncClient(base_url=first.url, timeout=10) as http:
                job = (await http.post("/v1/jobs", json=body)).json()
                run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
            await receiver.wait_for(lambda calls: len(calls) == 1)
            if not point.startswith("leases.finish"):
                assert not await say(Callback.of(receiver.calls[0].body))
            assert await first.wait_exit() == -signal.SIGKILL
        async with lasting(data, log=tmp_path / "2.log", port=port) as second:
            assert await second.wait_ready()
            with contextlib.suppress(Exception):  # a failure that is known already, or a lost lease
                await asyncio.to_thread(Callback.of(receiver.calls[0].body).fail, "a part is missing")
            await receiver.wait_for(lambda calls: len(calls) == 2)
            await asyncio.to_thread(Callback.of(receiver.calls[1].body).succeed)
            async with httpx.AsyncClient(base_url=second.url) as http:
                found = (await http.get(f"/v1/runs/{run['id']}")).json()
                attempts = (await http.get(f"/v1/runs/{run['id']}/attempts")).json()["items"]
            assert await second.stop() == 0
    assert (found["state"], found["attempt"]) == ("succeeded", 2)
    assert [attempt["attempt"] for attempt in attempts] == [1, 2]
    assert [call.attempt for call in receiver.calls] == [1, 2]
    assert look(data, "select count(*) from runs where trigger = 'manual'") == [(1,)]
