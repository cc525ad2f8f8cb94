"""As process 1 of a container there is no shell and no default action of a signal: onbeat's own handlers must do it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tests.scenarios.test_remote_worker import job_for
from tests.support.fleet import LOOPBACK, make_key, serving
from tests.support.ports import free_port
from tests.support.process import QUICK
from tests.support.receiver import Call, receiving

IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_be_process_one() -> bool:
    """Whether this machine lets us make a namespace of processes."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*IN_A_NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
    )


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_be_process_one(), reason="no namespaces of processes here"),
]


@dataclass
class ProcessOne:
    """`onbeat` as process 1 of its namespace, seen from outside."""

    outer: asyncio.subprocess.Process
    log: Path

    def send(self, number: signal.Signals) -> None:
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        (inner,) = map(int, children)
        assert Path(f"/proc/{inner}/status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1] == "1"
        os.kill(inner, number)

    async def says(self, event: str) -> None:
        async with asyncio.timeout(30):
            while event not in self.log.read_text():
                await asyncio.sleep(0.02)

    async def wait_exit(self) -> int:
        async with asyncio.timeout(30):
            return await self.outer.wait()


@contextlib.asynccontextmanager
async def process_one(*arguments: str, log: Path, **settings: str) -> AsyncIterator[ProcessOne]:
    chosen = QUICK | LOOPBACK | {"ONBEAT_LOG_LEVEL": "info"} | settings
    with log.open("wb") as output:
        outer = await asyncio.create_subprocess_exec(
            *IN_A_NAMESPACE, sys.executable, "-m", "onbeat", *arguments,
            stdout=output, stderr=output, env=os.environ | chosen,
        )  # fmt: skip
    try:
        yield ProcessOne(outer, log)
    finally:
        if outer.returncode is None:
            outer.kill()  # and with it what it started
        await outer.wait()


async def until_ready(url: str) -> None:
    async with asyncio.timeout(30), httpx.AsyncClient() as http:
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get(f"{url}/healthz")).status_code == 200:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in flight"])
async def test_a_server_that_is_process_one_stops_in_order(data: Path, number: signal.Signals, in_flight: bool) -> None:
    key, port, may_answer = await make_key(data, "admin"), free_port(), asyncio.Event()
    url = f"http://127.0.0.1:{port}"

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with (
        receiving(answer) as receiver,
        process_one(
            "serve", "--data", str(data), "--port", str(port), log=data.parent / "server.log", ONBEAT_DRAIN_S="20"
        ) as server,
        httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}) as http,
    ):
        await until_ready(url)
        if in_flight:
            job = (await http.post("/v1/jobs", json=job_for(receiver.url, every_s=3_600))).json()
            await http.post(f"/v1/jobs/{job['id']}/trigger", json={})
            await receiver.wait_for(lambda calls: len(calls) == 1)
        server.send(number)
        may_answer.set()
        assert await server.wait_exit() == 0
    if in_flight:
        async with serving(data) as again:
            assert await again.wait_ready()
            async with httpx.AsyncClient(base_url=again.url, headers={"authorization": f"Bearer {key}"}) as http:
                (run,) = (await http.get("/v1/runs")).json()["items"]
        assert (run["state"], run["attempt"]) == ("succeeded", 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "in flight"])
async def test_a_worker_that_is_process_one_stops_in_order(data: Path, number: signal.Signals, in_flight: bool) -> None:
    key, may_answer = await make_key(data, "admin"), asyncio.Event()

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with receiving(answer) as receiver, serving(data) as server:
        assert await server.wait_ready()
        async with (
            process_one(
                "worker", "--server", server.url, log=data.parent / "worker.log",
                ONBEAT_DRAIN_S="20", ONBEAT_API_KEY=key,
            ) as worker,
            httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http,
        ):  # fmt: skip
            await worker.says("worker_started")
            if in_flight:
                job = (await http.post("/v1/jobs", json=job_for(receiver.url, every_s=3_600))).json()
                run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
                await receiver.wait_for(lambda calls: len(calls) == 1)
            worker.send(number)
            may_answer.set()
            assert await worker.wait_exit() == 0
            if in_flight:
                shown = (await http.get(f"/v1/runs/{run['id']}")).json()
                assert (shown["state"], shown["attempt"]) == ("succeeded", 1)
