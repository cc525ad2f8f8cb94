"""Idempotency-Key: the same request under the same key happens once and is answered the same."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.api.bodies import created, refused, triggered, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.app.services import Services

KEY = {"idempotency-key": '"8e03978e-40d5"'}


async def test_the_same_request_creates_one_job_and_is_answered_the_same(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/jobs", json=webhook_job(), headers=KEY)
    again = await http.post("/v1/jobs", json=webhook_job(), headers=KEY)
    assert (again.status_code, again.content) == (first.status_code, first.content) == (201, first.content)
    for header in ("location", "etag", "content-type"):
        assert again.headers[header] == first.headers[header]
    assert again.headers["idempotent-replayed"] == "true"
    assert len((await http.get("/v1/jobs")).json()["items"]) == 1


async def test_the_same_key_for_another_body_is_refused(http: httpx.AsyncClient) -> None:
    await http.post("/v1/jobs", json=webhook_job(), headers=KEY)
    refused(await http.post("/v1/jobs", json=webhook_job(name="x"), headers=KEY), 422, "idempotency_key_reused")


async def test_a_key_belongs_to_a_path_and_a_namespace(keyed_http: httpx.AsyncClient, bearer: KeyMaker) -> None:
    ours, theirs = await bearer("jobs:write"), await bearer("jobs:write", namespace="theirs")
    first = await keyed_http.post("/v1/jobs", json=webhook_job(), headers=KEY | ours)
    foreign = await keyed_http.post("/v1/jobs", json=webhook_job(), headers=KEY | theirs)
    batch = await keyed_http.post("/v1/jobs:batch", json={"jobs": [webhook_job()]}, headers=KEY | ours)
    assert (first.status_code, foreign.status_code, batch.status_code) == (201, 201, 200)
    assert first.json()["id"] != foreign.json()["id"]


async def test_an_answer_is_not_repeated_to_a_key_without_the_scope(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker
) -> None:
    await keyed_http.post("/v1/jobs", json=webhook_job(), headers=KEY | await bearer("jobs:write"))
    reader = await bearer("jobs:read")
    refused(await keyed_http.post("/v1/jobs", json=webhook_job(), headers=KEY | reader), 403, "not_allowed")


async def test_of_requests_at_once_one_is_done(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(http.post("/v1/jobs", json=webhook_job(), headers=KEY) for _ in range(6)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    assert len((await http.get("/v1/jobs")).json()["items"]) == 1


async def test_a_request_that_is_still_worked_on_is_a_conflict(http: httpx.AsyncClient, services: Services) -> None:
    body = b'{"jobs": []}'
    await services.idempotency.begin("default POST /v1/jobs", "8e03978e-40d5", body)
    answer = await http.post("/v1/jobs", json=webhook_job(), headers=KEY)
    refused(answer, 422, "idempotency_key_reused")
    await services.idempotency.drop("default POST /v1/jobs", "8e03978e-40d5")
    content = httpx.Request("POST", "http://x", json=webhook_job()).content
    await services.idempotency.begin("default POST /v1/jobs", "8e03978e-40d5", content)
    refused(await http.post("/v1/jobs", json=webhook_job(), headers=KEY), 409, "idempotency_key_in_flight")


async def test_a_refused_request_may_come_mended_under_its_key(http: httpx.AsyncClient) -> None:
    refused(await http.post("/v1/jobs", json=webhook_job(target={"url": "x"}), headers=KEY), 422, "url_invalid")
    assert (await http.post("/v1/jobs", json=webhook_job(), headers=KEY)).status_code == 201


@pytest.mark.parametrize(
    "key", ["8e03978e", "", '""', '"', '"a', 'a"', '"a"b"', f'"{"k" * 256}"', '"\t"', '"é"', '"a";b=1', "'a'"]
)
async def test_a_key_is_a_quoted_string(http: httpx.AsyncClient, key: str) -> None:
    headers = {b"idempotency-key": key.encode()}
    answer = await http.post("/v1/jobs", json=webhook_job(), headers=headers)
    assert refused(answer, 400, "header_field_invalid")["field"] == "Idempotency-Key"


async def test_a_key_of_255_characters_is_accepted(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/jobs", json=webhook_job(), headers={"idempotency-key": f'"{"k" * 255}"'})
    assert answer.status_code == 201


async def test_a_trigger_runs_once(http: httpx.AsyncClient) -> None:
    job = await created(http, overlap="allow")
    path = f"/v1/jobs/{job['id']}/trigger"
    runs = {(await http.post(path, json={"payload": 1}, headers=KEY)).json()["id"] for _ in range(3)}
    assert len(runs) == 1
    assert (await triggered(http, job))["id"] not in runs


async def test_pause_resume_cancel_and_retry_are_repeated_too(http: httpx.AsyncClient) -> None:
    job = await created(http)
    run = await triggered(http, job)
    for path in (
        f"/v1/runs/{run['id']}/cancel",
        f"/v1/runs/{run['id']}/retry",
        f"/v1/jobs/{job['id']}/pause",
        f"/v1/jobs/{job['id']}/resume",
    ):
        first, again = [await http.post(path, json={}, headers=KEY) for _ in range(2)]
        assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
        assert again.headers["idempotent-replayed"] == "true"


async def test_answers_that_show_a_secret_are_not_kept(http: httpx.AsyncClient) -> None:
    refused(await http.post("/v1/secrets/mine:rotate", headers=KEY), 400, "header_field_invalid")
    assert (await http.get("/v1/secrets")).json()["items"] == []
