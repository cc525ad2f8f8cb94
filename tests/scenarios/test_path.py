"""The whole path in real processes: create by the API → fires on time → signed request → succeeded, and told so."""

from __future__ import annotations

import json
import os

import httpx
import pytest
import standardwebhooks
from tests.scenarios.conftest import StartServer
from tests.support.receiver import Call, receiving

from onbeat.app.services import open_services
from onbeat.config import Settings


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


async def _secret(data: str) -> str:
    async with open_services(Settings(data=data, master_key=os.environ.get("ONBEAT_MASTER_KEY"))) as services:
        secret = await services.secrets.reveal("default", "default")
        assert secret is not None
        return secret


async def test_a_job_created_by_the_api_fires_signed_and_is_recorded(start_server: StartServer, data: str) -> None:
    async with receiving() as receiver:
        async with start_server() as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                body = {
                    "name": "first",
                    "schedules": [{"cron": "* * * * * *"}],
                    "target": {"url": receiver.url, "payload": {"café": 1.0}},
                }
                job = (await http.post("/v1/jobs", json=body)).json()
                await receiver.wait_for(lambda calls: len(calls) >= 2)
                call = receiver.calls[0]
                run = (await http.get(f"/v1/runs/{call.run_id}")).json()
                page = (await http.get("/v1/runs", params={"job": job["id"]})).json()
            assert await server.stop() == 0
        assert call.scheduled_at == job["next_fire_at"] == run["scheduled_at"]
        assert (run["state"], run["status"], run["outcome"], run["attempt"]) == ("succeeded", 200, "succeeded", 1)
        assert run["lag_ms"] >= 0
        assert run["duration_ms"] > 0
        assert run["late"] is False
        assert call.run_id in [item["id"] for item in page["items"]]
        envelope = json.loads(call.body)
        assert envelope["run_id"] == call.run_id
        assert envelope["payload"] == {"café": 1.0}
        # An implementation that is not ours agrees with the signature over the bytes that arrived.
        standardwebhooks.Webhook(await _secret(data)).verify(call.body, call.headers)


async def test_a_failing_receiver_is_retried_under_the_same_id_with_a_fresh_signature(
    start_server: StartServer, data: str
) -> None:
    async def answer(call: Call) -> int:
        return 503 if call.attempt < 3 else 200

    async with receiving(answer) as receiver:
        async with start_server() as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                body = {
                    "name": "stubborn",
                    "schedules": [{"every": 3_600}],
                    "target": {"url": receiver.url, "body": '{"name":"café","n":1.0}'},
                    "retry": {"initial_s": 0.1, "factor": 1},
                }
                job = (await http.post("/v1/jobs", json=body)).json()
                run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
                await receiver.wait_for(lambda calls: len(calls) == 3)
                attempts = (await http.get(f"/v1/runs/{run['id']}/attempts")).json()["items"]
            assert await server.stop() == 0
        assert {call.run_id for call in receiver.calls} == {run["id"]}
        assert {call.body for call in receiver.calls} == {'{"name":"café","n":1.0}'.encode()}
        assert [call.attempt for call in receiver.calls] == [1, 2, 3]
        assert [attempt["status"] for attempt in attempts[:2]] == [503, 503]
        webhook = standardwebhooks.Webhook(await _secret(data))
        for call in receiver.calls:
            webhook.verify(call.body, call.headers)


async def test_a_definition_edited_between_two_attempts_does_not_change_the_run_under_way(
    start_server: StartServer,
) -> None:
    async def answer(call: Call) -> int:
        return 503 if call.attempt == 1 else 200

    async with receiving(answer) as receiver, start_server() as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            body = {
                "name": "edited",
                "schedules": [{"every": 3_600}],
                "target": {"url": receiver.url, "body": "old"},
                "retry": {"initial_s": 2, "factor": 1},
            }
            job = (await http.post("/v1/jobs", json=body)).json()
            await http.post(f"/v1/jobs/{job['id']}/trigger", json={})
            await receiver.wait_for(lambda calls: len(calls) == 1)
            await http.post(f"/v1/jobs/{job['id']}/pause", json={})
            await http.post(f"/v1/jobs/{job['id']}/resume", json={})
            edited = await http.patch(f"/v1/jobs/{job['id']}", json={"target": {"body": "new"}})
            assert edited.status_code == 200
            await receiver.wait_for(lambda calls: len(calls) == 2)
            await http.post(f"/v1/jobs/{job['id']}/trigger", json={})
            await receiver.wait_for(lambda calls: len(calls) >= 3)
        assert [call.body for call in receiver.calls[:3]] == [b"old", b"old", b"new"]
