"""A handler that accepts, works on its own and reports: through a whole scheduler, with the receiver's helper."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.receiver import Call, receiving

from onbeat.receiver import Callback, WorkLost


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


def serve(start_server: StartServer) -> AbstractAsyncContextManager[ServerProcess]:
    port = free_port()
    return start_server(port=port, public_url=f"http://127.0.0.1:{port}")


async def begin(http: httpx.AsyncClient, url: str, **fields: object) -> str:
    """The path of a run that was triggered by hand."""
    body = {"name": "job", "schedules": [{"every": "1h"}], "target": {"url": url}, "completion": "callback"} | fields
    job = (await http.post("/v1/jobs", json=body)).json()
    run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
    return f"/v1/runs/{run['id']}"


async def reaches(http: httpx.AsyncClient, path: str, *states: str) -> dict[str, object]:
    async with asyncio.timeout(20):
        while (run := (await http.get(path)).json())["state"] not in states:
            await asyncio.sleep(0.02)
    return dict(run)


async def accept(_call: Call) -> int:
    return 202


async def test_accepted_work_is_reported_on_and_ends_when_its_handler_says_so(start_server: StartServer) -> None:
    async with receiving(accept) as receiver, serve(start_server) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            path = await begin(http, receiver.url, retry={"initial_s": 0.001})
            await receiver.wait_for(lambda calls: len(calls) == 1)
            callback = Callback.of(receiver.calls[0].body)
            assert callback == Callback.of_headers(receiver.calls[0].headers)
            await asyncio.to_thread(callback.progress, 50, "half of it")
            run = (await http.get(path)).json()
            assert (run["state"], run["progress"]["percent"]) == ("running", 50)
            await asyncio.to_thread(callback.fail, "the other half is missing")
            await receiver.wait_for(lambda calls: len(calls) == 2)
            second = Callback.of(receiver.calls[1].body)
            with pytest.raises(WorkLost):
                await asyncio.to_thread(callback.heartbeat)
            await asyncio.to_thread(second.succeed, {"halves": 2})
            await asyncio.to_thread(second.succeed, {"halves": 2})
            run = await reaches(http, path, "succeeded")
            assert (run["attempt"], run["status"]) == (2, None)
            kinds = [attempt["outcome"] for attempt in (await http.get(f"{path}/attempts")).json()["items"]]
            assert kinds == ["handler_error", "succeeded"]


async def test_a_handler_may_report_before_it_answers(start_server: StartServer) -> None:
    async def succeed_first(call: Call) -> int:
        await asyncio.to_thread(Callback.of(call.body).succeed)
        return 202

    async with receiving(succeed_first) as receiver, serve(start_server) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await reaches(http, await begin(http, receiver.url), "succeeded", "failed")
    assert (run["state"], len(receiver.calls)) == ("succeeded", 1)


async def test_a_callback_that_never_comes_ends_as_timed_out(start_server: StartServer) -> None:
    async with receiving(accept) as receiver, serve(start_server) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await reaches(http, await begin(http, receiver.url, max_run_time_s=1), "timed_out", "failed")
            with pytest.raises(WorkLost):
                await asyncio.to_thread(Callback.of(receiver.calls[0].body).succeed)
    assert (run["state"], run["attempt"], len(receiver.calls)) == ("timed_out", 1, 1)


async def test_a_refusal_is_no_acceptance(start_server: StartServer) -> None:
    async def refuse(_call: Call) -> int:
        return 400

    async with receiving(refuse) as receiver, serve(start_server) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await reaches(http, await begin(http, receiver.url), "failed", "succeeded")
    assert (run["state"], run["status"]) == ("failed", 400)


async def test_a_handler_outlives_a_restart_of_the_scheduler(start_server: StartServer) -> None:
    port = free_port()
    settings = {"port": port, "public_url": f"http://127.0.0.1:{port}"}
    async with receiving(accept) as receiver:
        async with start_server(**settings) as first:
            assert await first.wait_ready()
            async with httpx.AsyncClient(base_url=first.url) as http:
                path = await begin(http, receiver.url)
                async with asyncio.timeout(20):
                    while (await http.get(path)).json()["accepted_at"] is None:
                        await asyncio.sleep(0.02)
            await first.kill()
        callback = Callback.of(receiver.calls[0].body)
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(callback.succeed)
        async with start_server(**settings) as second:
            assert await second.wait_ready()
            await asyncio.to_thread(callback.succeed)
            async with httpx.AsyncClient(base_url=second.url) as http:
                run = await reaches(http, path, "succeeded")
    assert (run["attempt"], len(receiver.calls)) == (1, 1)
