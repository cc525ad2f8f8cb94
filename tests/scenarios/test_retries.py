"""Answers that are no success, through a whole scheduler: what is sent again, and what is not."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.receiver import Call, Reply, receiving

from onbeat.receiver import verify

AT_ONCE = {"initial_s": 0.001}


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


async def run_once(http: httpx.AsyncClient, url: str, retry: dict[str, object]) -> dict[str, object]:
    """The ended run of a job that was triggered by hand."""
    body = {"name": "job", "schedules": [{"every": "1h"}], "target": {"url": url}, "retry": AT_ONCE | retry}
    job = (await http.post("/v1/jobs", json=body)).json()
    run: dict[str, object] = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
    async with asyncio.timeout(20):
        while run["state"] in ("pending", "running"):
            await asyncio.sleep(0.02)
            run = (await http.get(f"/v1/runs/{run['id']}")).json()
    return run


async def test_a_busy_receiver_that_says_when_is_asked_again_then_though_no_attempt_is_left(
    start_server: StartServer,
) -> None:
    async def answer(call: Call) -> int | Reply:
        return Reply(429, {"retry-after": "1"}) if call.attempt == 1 else 200

    async with receiving(answer) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await run_once(http, receiver.url, {"max_attempts": 1})
    assert (run["state"], run["attempt"]) == ("succeeded", 2)
    first, second = receiver.calls
    assert int(second.headers["webhook-timestamp"]) >= int(first.headers["webhook-timestamp"]) + 1


async def test_every_attempt_is_signed_anew_under_the_same_id_and_with_the_same_payload(
    start_server: StartServer,
) -> None:
    async def answer(call: Call) -> int:
        return 503 if call.attempt < 3 else 200

    async with receiving(answer) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            secret = (await http.post("/v1/secrets/default:rotate")).json()["secret"]
            run = await run_once(http, receiver.url, {})
    assert (run["state"], run["attempt"]) == ("succeeded", 3)
    for call in receiver.calls:
        verified = verify(call.headers, call.body, secret)
        assert verified.run_id == run["id"]
        assert json.loads(call.body)["attempt"] == call.attempt


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_failure_that_names_where_it_led(start_server: StartServer, status: int) -> None:
    async def answer(call: Call) -> int | Reply:
        return Reply(status, {"location": "/login"}) if call.path == "/hook" else 200

    async with receiving(answer) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await run_once(http, receiver.url, {})
    assert (run["state"], run["attempt"], run["status"]) == ("failed", 1, status)
    assert "Location /login" in str(run["error"])
    assert len(receiver.calls) == 1


async def test_gone_pauses_the_job_and_a_person_can_resume_it(start_server: StartServer) -> None:
    async def answer(_call: Call) -> int:
        return 410

    async with receiving(answer) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            run = await run_once(http, receiver.url, {})
            job = (await http.get(f"/v1/jobs/{run['job_id']}")).json()
            assert (job["state"], job["reason"]) == ("paused", "the receiver answered 410 Gone")
            resumed = (await http.post(f"/v1/jobs/{run['job_id']}/resume")).json()
            assert (resumed["state"], resumed["reason"]) == ("active", None)
