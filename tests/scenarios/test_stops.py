"""Stops and starts: SIGTERM drains, a second signal leaves, leases are given back, two processes never share a file."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from pathlib import Path

import httpx
import pytest
from tests.scenarios.conftest import StartServer, developing
from tests.support.process import ServerProcess
from tests.support.receiver import Call, Receiver, receiving
from tests.support.starting import start_interpreter

from onbeat.app.process import EXIT_GAVE_BACK


@pytest.fixture
def start_anew(tmp_path: Path, data: Path) -> StartServer:
    """By the interpreter: what a signal does begins there."""
    return functools.partial(developing, data, log=tmp_path / "server.log", start=start_interpreter)


async def _trigger(server: ServerProcess, receiver: Receiver) -> str:
    async with httpx.AsyncClient(base_url=server.url) as http:
        body = {"key": "slow", "name": "slow", "schedules": [{"every": 3_600}], "target": {"url": receiver.url}}
        job = (await http.put("/v1/jobs/by-key/slow", json=body)).json()
        run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
        await receiver.wait_for(lambda calls: any(call.run_id == run["id"] for call in calls))
        return str(run["id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_an_idle_process_leaves_with_code_0(start_anew: StartServer, number: signal.Signals) -> None:
    async with start_anew() as server:
        assert await server.wait_ready()
        server.process.send_signal(number)
        assert await server.wait_exit() == 0


async def test_a_run_in_flight_ends_before_the_process_does(start_anew: StartServer, data: Path) -> None:
    may_answer = asyncio.Event()

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with receiving(answer) as receiver:
        async with start_anew() as server:
            assert await server.wait_ready()
            run_id = await _trigger(server, receiver)
            server.process.send_signal(signal.SIGTERM)
            async with httpx.AsyncClient(base_url=server.url) as http:
                while (await http.get("/readyz")).status_code != 503:  # it knows that it stops, and says so
                    await asyncio.sleep(0.01)
                claim = await http.post("/v1/runs/claim", json={"worker": "w", "limit": 1, "wait_s": 5})
                assert claim.json()["runs"] == []
            may_answer.set()
            assert await server.wait_exit() == 0
        async with start_anew() as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                run = (await http.get(f"/v1/runs/{run_id}")).json()
        assert (run["state"], run["attempt"]) == ("succeeded", 1)
        assert len(receiver.calls) == 1


async def test_when_the_drain_ends_leases_are_given_back_and_do_not_count(start_server: StartServer) -> None:
    async def answer(call: Call) -> int:
        if len(receiver.calls) == 1:
            await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver:
        async with start_server(drain_s="0.2", lease_s="60", heartbeat_s="10") as server:
            assert await server.wait_ready()
            run_id = await _trigger(server, receiver)
            assert await server.stop() == EXIT_GAVE_BACK
        async with start_server(lease_s="60", heartbeat_s="10") as server:
            assert await server.wait_ready()
            # Given back, so it does not wait for the end of a lease of a minute.
            await receiver.wait_for(lambda calls: len(calls) == 2, timeout_s=20)
            assert receiver.calls[1].run_id == run_id
            assert await server.stop() == 0


async def test_a_second_signal_leaves_at_once(start_anew: StartServer) -> None:
    async def answer(_call: Call) -> int:
        await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver, start_anew(drain_s="600") as server:
        assert await server.wait_ready()
        await _trigger(server, receiver)
        server.process.send_signal(signal.SIGTERM)
        async with httpx.AsyncClient(base_url=server.url) as http:
            while (await http.get("/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        assert await server.wait_exit() == 130


async def test_a_second_process_on_the_same_file_is_refused_with_the_pid_of_the_first(
    start_server: StartServer, data: Path
) -> None:
    async with start_server() as first:
        assert await first.wait_ready()
        async with start_server() as second:
            assert await second.wait_exit() not in (0, -signal.SIGKILL)
        log = (data.parent / "server.log").read_text()
        assert f"{first.process.pid}" in log
        assert "data_file_in_use" in log
        assert first.is_running


async def test_of_many_that_start_at_once_exactly_one_runs(start_server: StartServer, data: Path) -> None:
    servers = [start_server() for _ in range(4)]
    async with servers[0] as a, servers[1] as b, servers[2] as c, servers[3] as d:
        ready = await asyncio.gather(*(server.wait_ready() for server in (a, b, c, d)))
        assert sorted(ready) == [False, False, False, True]


async def test_a_lock_file_left_behind_never_blocks_a_start(start_server: StartServer, data: Path) -> None:
    async with start_server() as server:
        assert await server.wait_ready()
        await server.kill()
    left_behind = [name for name in os.listdir(data.parent) if "lock" in name]
    assert left_behind
    async with start_server() as server:
        assert await server.wait_ready()
        assert await server.stop() == 0
