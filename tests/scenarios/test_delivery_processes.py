"""A node with delivery processes: the same promises, kept by several processes that die together or one by one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path

import httpx
import pytest
from tests.support.fleet import LOOPBACK, log_beside, make_key, serving
from tests.support.process import QUICK, ServerProcess, running
from tests.support.receiver import Call, Receiver, receiving

from onbeat.app.delivery_child import EXIT_NODE_GONE, EXIT_OTHER_VERSION
from onbeat.app.process import EXIT_GAVE_BACK

pytestmark = pytest.mark.slow

TWO = {"ONBEAT_WORKERS": "8", "ONBEAT_DELIVERY_PROCESSES": "2"}


def children_of(pid: int) -> list[int]:
    """Its delivery processes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"delivery_child" in Path(f"/proc/{child}/cmdline").read_bytes()]


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(20):
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            await asyncio.sleep(0.02)


async def until_ready(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while (await http.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.02)


@asynccontextmanager
async def node(data: Path, **settings: str) -> AsyncIterator[tuple[ServerProcess, httpx.AsyncClient]]:
    key = await make_key(data, "admin")
    async with serving(data, settings=TWO | settings) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            await until_ready(http)
            yield server, http


async def create(http: httpx.AsyncClient, receiver: Receiver, **fields: object) -> str:
    body = {"name": "job", "schedules": [{"every": 3_600}], "target": {"url": receiver.url}} | fields
    answer = await http.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def trigger(http: httpx.AsyncClient, job_id: str) -> str:
    return str((await http.post(f"/v1/jobs/{job_id}/trigger", json={})).json()["id"])


async def state_of(http: httpx.AsyncClient, run_id: str, *states: str) -> dict[str, object]:
    """The run, as soon as it is in one of these states."""
    async with asyncio.timeout(30):
        while True:
            run: dict[str, object] = (await http.get(f"/v1/runs/{run_id}")).json()
            if run["state"] in states:
                return run
            await asyncio.sleep(0.02)


def counted(metrics: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def test_runs_that_are_due_together_are_shared_delivered_once_and_counted(data: Path) -> None:
    everybody_is_here = asyncio.Event()

    async def answer(_call: Call) -> int:
        if len(receiver.calls) == 8:
            everybody_is_here.set()
        await everybody_is_here.wait()
        return 200

    async with receiving(answer) as receiver, node(data) as (server, http):
        jobs = [await create(http, receiver) for _ in range(8)]
        runs = [await trigger(http, job) for job in jobs]
        ended = [await state_of(http, run, "succeeded") for run in runs]
        assert sorted(call.run_id for call in receiver.calls) == sorted(runs)
        # Eight at once take both processes, each with its share of `workers`.
        workers = [str(run["worker"]) for run in ended]
        assert sorted(name.rpartition("/")[2] for name in workers) == ["1"] * 4 + ["2"] * 4
        metrics = (await http.get("/metrics")).text
        assert counted(metrics, 'onbeat_attempts_total{outcome="succeeded"}') == 8
        assert counted(metrics, "onbeat_start_lag_seconds_count") == 8
        assert counted(metrics, "onbeat_running_attempts") == 0
        children = children_of(server.process.pid)
        assert await server.stop() == 0
    await until_gone(children)


async def test_a_killed_delivery_process_is_told_of_and_replaced_and_its_run_comes_back(data: Path) -> None:
    first = asyncio.Event()

    async def answer(_call: Call) -> int:
        if len(receiver.calls) == 1:
            first.set()
            await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver, node(data, ONBEAT_WORKERS="2") as (server, http):
        run_id = await trigger(http, await create(http, receiver, retry={"initial_s": 0.1}))
        await first.wait()
        before = children_of(server.process.pid)
        for child in before:
            os.kill(child, signal.SIGKILL)
        async with asyncio.timeout(10):
            while "delivery-process" not in (await http.get("/readyz")).text:
                await asyncio.sleep(0.005)
        run = await state_of(http, run_id, "succeeded")
        assert (run["attempt"], [call.attempt for call in receiver.calls]) == (2, [1, 2])
        await until_ready(http)
        assert len(children_of(server.process.pid)) == 2
        assert not set(before) & set(children_of(server.process.pid))
        assert server.log.read_text().count("delivery_process_died") == 2
        assert counted((await http.get("/metrics")).text, "onbeat_running_attempts") == 0
        assert await server.stop() == 0


async def test_delivery_processes_leave_with_a_node_that_is_killed(data: Path) -> None:
    async with receiving() as receiver, node(data) as (server, http):
        await state_of(http, await trigger(http, await create(http, receiver)), "succeeded")
        children = children_of(server.process.pid)
        assert len(children) == 2
        await server.kill()
        await until_gone(children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_whole_group_lets_what_runs_end(data: Path, number: signal.Signals) -> None:
    may_answer, called = asyncio.Event(), asyncio.Event()

    async def answer(_call: Call) -> int:
        called.set()
        await may_answer.wait()
        return 200

    async with receiving(answer) as receiver:
        async with node(data) as (server, http):
            run_id = await trigger(http, await create(http, receiver))
            await called.wait()
            children = children_of(server.process.pid)
            for pid in [server.process.pid, *children]:  # as a terminal and a service manager do it
                os.kill(pid, number)
            while (await http.get("/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
            may_answer.set()
            assert await server.wait_exit() == 0
            await until_gone(children)
        async with node(data) as (server, http):
            run = await state_of(http, run_id, "succeeded")
            assert (run["attempt"], len(receiver.calls)) == (1, 1)


async def test_what_outlasts_the_drain_is_given_back(data: Path) -> None:
    called = asyncio.Event()

    async def answer(_call: Call) -> int:
        if not called.is_set():
            called.set()
            await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver:
        async with node(data, ONBEAT_DRAIN_S="0.2", ONBEAT_LEASE_S="60", ONBEAT_HEARTBEAT_S="10") as (server, http):
            run_id = await trigger(http, await create(http, receiver, retry={"max_attempts": 1}))
            await called.wait()
            assert await server.stop() == EXIT_GAVE_BACK
        async with node(data) as (server, http):  # well before the end of a lease of a minute
            run = await state_of(http, run_id, "succeeded")
            assert run["attempt"] == 1  # the one given back did not count


async def test_a_cancel_reaches_the_process_that_delivers(data: Path) -> None:
    called = asyncio.Event()

    async def answer(_call: Call) -> int:
        called.set()
        await asyncio.Event().wait()
        return 200

    # A heartbeat would bring the news too: here there is none in time.
    async with (
        receiving(answer) as receiver,
        node(data, ONBEAT_LEASE_S="600", ONBEAT_HEARTBEAT_S="300") as (_server, http),
    ):
        run_id = await trigger(http, await create(http, receiver))
        await called.wait()
        await http.post(f"/v1/runs/{run_id}/cancel")
        run = await state_of(http, run_id, "cancelled")
        assert (run["attempt"], len(receiver.calls)) == (1, 1)


async def test_a_frozen_delivery_process_loses_its_run_and_is_refused_when_it_thaws(data: Path) -> None:
    called, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(_call: Call) -> int:
        if not called.is_set():
            called.set()
            await may_answer.wait()
        return 200

    async with receiving(answer) as receiver, node(data, ONBEAT_WORKERS="2") as (server, http):
        run_id = await trigger(http, await create(http, receiver, retry={"initial_s": 0.1}))
        await called.wait()
        holder = int(str((await state_of(http, run_id, "running"))["worker"]).rpartition("/")[2])
        frozen = children_of(server.process.pid)[holder - 1]
        os.kill(frozen, signal.SIGSTOP)
        try:
            run = await state_of(http, run_id, "succeeded")  # by the other one
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert run["attempt"] == 2
        may_answer.set()
        async with asyncio.timeout(20):
            while counted((await http.get("/metrics")).text, "onbeat_fence_rejections_total") < 1:
                await asyncio.sleep(0.02)
        assert (await state_of(http, run_id, "succeeded"))["attempt"] == 2


async def test_more_processes_than_attempts_are_refused(data: Path, tmp_path: Path) -> None:
    command = ["-m", "onbeat", "serve", "--data", str(data)]
    settings = QUICK | LOOPBACK | {"ONBEAT_WORKERS": "1", "ONBEAT_DELIVERY_PROCESSES": "2"}
    async with running(lambda _port: command, log=log_beside(data, "server.log"), env=settings) as server:
        assert await server.wait_exit() == 2
        assert "delivery_processes" in server.log.read_text()


async def test_a_process_starts_from_the_node_s_modules_and_without_its_secrets(data: Path, tmp_path: Path) -> None:
    # A directory where somebody keeps onbeat.toml beside the handlers of the webhooks.
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    command = ["-P", "-m", "onbeat", "serve", "--data", str(data)]
    settings = QUICK | LOOPBACK | TWO | {"ONBEAT_PORT": "0", "PGPASSWORD": "hidden", "ONBEAT_LOG_LEVEL": "info"}
    log = log_beside(data, "server.log")
    async with running(lambda _port: command, log=log, env=settings, cwd=tmp_path) as server:
        async with asyncio.timeout(30):
            while (found := re.search(r"http://127.0.0.1:\d+", log.read_text())) is None:
                await asyncio.sleep(0.02)
        async with httpx.AsyncClient(base_url=found[0]) as http:
            await until_ready(http)
        for child in children_of(server.process.pid):
            environment = Path(f"/proc/{child}/environ").read_bytes()
            assert b"PATH=" in environment
            assert not re.search(rb"(^|\0)(ONBEAT_|PG)", environment)
        assert "delivery_process_died" not in log.read_text()
        assert await server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_while_the_processes_start_is_quiet_and_gives_nothing_back(
    data: Path, number: signal.Signals
) -> None:
    async with serving(data, settings=TWO) as server:
        async with asyncio.timeout(60):
            while len(children := children_of(server.process.pid)) < 2:
                await asyncio.sleep(0.005)
        assert all(os.getsid(child) == child for child in children)  # no terminal interrupts it
        if number == signal.SIGTERM:  # as a service manager does it
            for child in children:
                os.kill(child, number)
        os.kill(server.process.pid, number)
        assert await server.wait_exit() == 0
        await until_gone(children)
        assert "Traceback" not in server.log.read_text()


async def child_told(words: bytes, *, version: str) -> int:
    """The exit code of a delivery process that was told this."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = [sys.executable, "-m", "onbeat.app.delivery_child", str(theirs.fileno()), version]
            process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        ours.sendall(words)
        async with asyncio.timeout(30):
            return await process.wait()


async def test_a_process_does_not_work_for_a_node_of_another_version() -> None:
    assert await child_told(b"", version="0.0.1") == EXIT_OTHER_VERSION


async def test_a_process_that_does_not_understand_its_node_leaves() -> None:
    assert await child_told(b"\0\0\0\x01\xc1", version=metadata.version("onbeat")) == EXIT_NODE_GONE
