"""`onbeat worker` over HTTP: the same protocol, the same fence, from another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.support.fleet import LOOPBACK, log_beside, make_key, serving, working
from tests.support.ports import free_port
from tests.support.process import QUICK, running
from tests.support.receiver import Call, receiving

from onbeat.app.process import EXIT_GAVE_BACK


def job_for(url: str, *, every_s: int) -> dict[str, object]:
    return {"name": "remote", "schedules": [{"every": every_s}], "target": {"url": url}, "retry": {"initial_s": 0.1}}


async def test_fires_reach_a_remote_worker_and_come_back_as_succeeded(data: Path) -> None:
    key = await make_key(data, "admin")
    async with receiving() as receiver, serving(data) as server:
        assert await server.wait_ready()
        async with working(server.url, key, data) as worker:
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                await http.post("/v1/jobs", json=job_for(receiver.url, every_s=1))
                await receiver.wait_for(lambda calls: len(calls) >= 3)
                run_id = receiver.calls[0].run_id
                run = (await http.get(f"/v1/runs/{run_id}")).json()
                assert (run["state"], run["attempt"]) == ("succeeded", 1)
            assert await worker.stop() == 0
        assert await server.stop() == 0
    assert len({call.run_id for call in receiver.calls}) == len(receiver.calls)


async def test_a_killed_worker_loses_its_lease_and_another_delivers_the_same_run(data: Path) -> None:
    key = await make_key(data, "admin")
    first_call = asyncio.Event()

    async def answer(_call: Call) -> int:
        if not first_call.is_set():
            first_call.set()
            await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver, serving(data) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            job = (await http.post("/v1/jobs", json=job_for(receiver.url, every_s=3_600))).json()
            async with working(server.url, key, data) as worker:
                run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
                await first_call.wait()
                await worker.kill()
            async with working(server.url, key, data):
                await receiver.wait_for(lambda calls: len(calls) == 2)
                assert [call.run_id for call in receiver.calls] == [run["id"], run["id"]]
                assert [call.attempt for call in receiver.calls] == [1, 2]
                attempts = (await http.get(f"/v1/runs/{run['id']}/attempts")).json()["items"]
                assert attempts[0]["outcome"] == "lease_lost"


async def test_a_run_longer_than_its_lease_is_delivered_once_while_its_worker_reports(data: Path) -> None:
    key = await make_key(data, "admin")
    may_answer = asyncio.Event()

    async def answer(_call: Call) -> int:
        await may_answer.wait()
        return 200

    async with receiving(answer) as receiver, serving(data) as server:
        assert await server.wait_ready()
        async with (
            working(server.url, key, data),
            httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http,
        ):
            job = (await http.post("/v1/jobs", json=job_for(receiver.url, every_s=3_600))).json()
            run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
            await receiver.wait_for(lambda calls: len(calls) == 1)
            leases: set[str] = set()
            while len(leases) < 6:  # a lease of 1 s, extended every 0.25 s: well past the length of one
                leases.add((await http.get(f"/v1/runs/{run['id']}")).json()["lease_until"])
                await asyncio.sleep(0.05)
            may_answer.set()
            while (found := (await http.get(f"/v1/runs/{run['id']}")).json())["state"] == "running":
                await asyncio.sleep(0.02)
            assert (found["state"], found["attempt"]) == ("succeeded", 1)
    assert len(receiver.calls) == 1


@pytest.mark.slow
async def test_a_worker_whose_drain_ends_gives_its_run_back_and_takes_no_attempt_from_it(data: Path) -> None:
    key = await make_key(data, "admin")
    long_lease = {"ONBEAT_LEASE_S": "60", "ONBEAT_HEARTBEAT_S": "10"}

    async def answer(_call: Call) -> int:
        if len(receiver.calls) == 1:
            await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver, serving(data, settings=long_lease) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            only_one = job_for(receiver.url, every_s=3_600) | {"retry": {"max_attempts": 1}}
            job = (await http.post("/v1/jobs", json=only_one)).json()
            async with working(server.url, key, data, settings=long_lease | {"ONBEAT_DRAIN_S": "0.2"}) as leaving:
                run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
                await receiver.wait_for(lambda calls: len(calls) == 1)
                assert await leaving.stop() == EXIT_GAVE_BACK
            async with working(server.url, key, data, settings=long_lease):
                # It does not wait for the end of a lease of a minute.
                await receiver.wait_for(lambda calls: len(calls) == 2, timeout_s=20)
                async with asyncio.timeout(20):
                    while (shown := (await http.get(f"/v1/runs/{run['id']}")).json())["state"] == "running":
                        await asyncio.sleep(0.02)
    assert [call.run_id for call in receiver.calls] == [run["id"], run["id"]]
    assert shown["state"] == "succeeded"


async def test_a_worker_outlives_its_server_and_goes_on_when_it_is_back(data: Path) -> None:
    key = await make_key(data, "admin")
    async with receiving() as receiver, serving(data) as server:
        assert await server.wait_ready()
        port = int(server.url.rpartition(":")[2])
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            await http.post("/v1/jobs", json=job_for(receiver.url, every_s=1))
        async with working(server.url, key, data) as worker:
            await receiver.wait_for(lambda calls: len(calls) >= 1)
            await server.kill()
            seen = len(receiver.calls)
            again = running(
                lambda port: ["-m", "onbeat", "serve", "--data", str(data), "--port", str(port)],
                log=log_beside(data, "server.log"),
                port=port,
                env=QUICK | LOOPBACK | {"ONBEAT_WORKERS": "0"},
            )
            async with again as server_again:
                assert await server_again.wait_ready()
                await receiver.wait_for(lambda calls: len({call.run_id for call in calls[seen:]}) >= 3)
                assert await worker.stop() == 0


async def test_a_worker_that_starts_before_its_server_waits_for_it(data: Path) -> None:
    key, port = await make_key(data, "admin"), free_port()
    async with receiving() as receiver, working(f"http://127.0.0.1:{port}", key, data) as worker:
        log = data.parent / "worker.log"
        async with asyncio.timeout(30):
            while "server_unreachable" not in log.read_text():
                await asyncio.sleep(0.02)
        async with serving(data, port=port) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                await http.post("/v1/jobs", json=job_for(receiver.url, every_s=1))
            await receiver.wait_for(lambda calls: len(calls) >= 1)
            assert await worker.stop() == 0


async def test_a_worker_that_waits_for_its_server_can_be_stopped(data: Path) -> None:
    async with working(f"http://127.0.0.1:{free_port()}", "any", data) as worker:
        log = data.parent / "worker.log"
        async with asyncio.timeout(30):
            while "server_unreachable" not in log.read_text():
                await asyncio.sleep(0.02)
        assert await worker.stop() == 0


@pytest.mark.parametrize("scopes", [("jobs:read",), ("runs:read", "runs:write")])
async def test_a_key_without_the_scope_claims_nothing(data: Path, scopes: tuple[str, ...]) -> None:
    key = await make_key(data, *scopes)
    async with serving(data) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            answer = await http.post("/v1/runs/claim", json={"worker": "w"})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
