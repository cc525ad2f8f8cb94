"""Handlers report with nothing but their token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.api.bodies import Json, claimed, created, outcome, refused, triggered, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.app.services import Services, open_services
from onbeat.client.wire import decode_token, encode_token
from onbeat.config import Settings
from onbeat.domain.callback import callback_token


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator[Services]:
    settings = Settings.model_validate({"data": str(tmp_path / "api.db"), "public_url": "https://onbeat.example/base/"})
    async with open_services(settings) as opened:
        yield opened


async def begun(http: httpx.AsyncClient) -> tuple[Json, Json]:
    """An attempt of a run that completes by callback, and what its handler sends as its token."""
    await triggered(http, await created(http, completion="callback"))
    (run,) = await claimed(http)
    return run, {"token": encode_token(callback_token(decode_token(run["token"])))}


async def accepted(http: httpx.AsyncClient) -> tuple[str, Json]:
    run, token = await begun(http)
    answer = await http.post("/v1/runs/finish", json={"runs": [outcome(run, "accepted", status=202)]})
    assert answer.json()["runs"][0]["result"] == "accepted"
    return f"/v1/runs/{run['run_id']}", token


async def test_the_worker_is_told_where_the_handler_reports(http: httpx.AsyncClient) -> None:
    run, _ = await begun(http)
    assert run["callback_url"] == f"https://onbeat.example/base/v1/runs/{run['run_id']}"


async def test_progress_is_shown_and_the_end_recorded(http: httpx.AsyncClient) -> None:
    path, token = await accepted(http)
    alive = await http.post(f"{path}/progress", json=token | {"percent": 40, "message": "reading"})
    assert (alive.status_code, alive.json()["status"]) == (200, "live")
    assert (await http.post(f"{path}/heartbeat", json=token)).json()["status"] == "live"
    run = (await http.get(path)).json()
    assert (run["state"], run["progress"]["percent"], run["progress"]["message"]) == ("running", 40, "reading")
    assert run["accepted_at"] is not None
    assert run["lease_until"] == run["deadline_at"]
    for result in ("ended", "repeated"):
        done = await http.post(f"{path}/complete", json=token | {"outcome": "succeeded", "result": {"rows": 3}})
        assert (done.status_code, done.json()["result"], done.json()["state"]) == (200, result, "succeeded")
    attempts = (await http.get(f"{path}/attempts")).json()["items"]
    assert [attempt["response"]["body"] for attempt in attempts] == ["eyJyb3dzIjozfQ=="]
    refused(await http.post(f"{path}/progress", json=token), 409, "run_terminal")


async def test_a_failure_is_retried(http: httpx.AsyncClient) -> None:
    path, token = await accepted(http)
    failed = await http.post(f"{path}/complete", json=token | {"outcome": "failed", "error": "no rows"})
    assert (failed.status_code, failed.json()["result"], failed.json()["state"]) == (200, "will_retry", "pending")


@pytest.mark.parametrize("call", ["complete", "progress", "heartbeat"])
async def test_no_key_is_needed_and_no_key_is_enough(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, call: str
) -> None:
    admin = await bearer("admin")
    keyed_http.headers.update(admin)
    path, token = await accepted(keyed_http)
    del keyed_http.headers["authorization"]
    fields = {"outcome": "succeeded"} if call == "complete" else {}
    wrong = {"token": encode_token(b"w" * 16)} | fields
    refused(await keyed_http.post(f"{path}/{call}", json=wrong), 409, "lease_lost")
    refused(await keyed_http.post(f"{path}/{call}", json=wrong, headers=admin), 409, "lease_lost")
    bad_key = {"authorization": "Bearer onb_x"}
    refused(await keyed_http.post(f"{path}/{call}", json=token | fields, headers=bad_key), 401, "not_authenticated")
    assert (await keyed_http.post(f"{path}/{call}", json=token | fields)).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "field_missing"),
        ({"outcome": "done"}, 422, "field_invalid"),
        ({"outcome": "succeeded", "error": "but"}, 422, "field_invalid"),
        ({"outcome": "succeeded", "result": "x" * 16_385}, 422, "field_invalid"),
        ({"outcome": "succeeded", "token": "short"}, 422, "field_invalid"),
    ],
)
async def test_a_report_that_makes_no_sense_changes_nothing(
    http: httpx.AsyncClient, body: Json, status: int, code: str
) -> None:
    path, token = await accepted(http)
    refused(await http.post(f"{path}/complete", json=token | body), status, code)
    assert (await http.get(path)).json()["state"] == "running"


@pytest.mark.parametrize(
    "fields",
    [{"completion": "response", "callback_heartbeat_s": 60}, {"completion": "callback", "target": {"queue": "q"}}],
)
async def test_a_job_that_cannot_be_completed_so_is_refused(http: httpx.AsyncClient, fields: Json) -> None:
    refused(await http.post("/v1/jobs", json=webhook_job(**fields)), 422, "completion_invalid")
