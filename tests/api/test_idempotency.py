"""Idempotency-Key: the same request under the same key happens once and is answered the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
import pytest
from tests.api.bodies import created, refused, triggered, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.app.services import Services
from onbeat.domain.instants import format_instant
from onbeat.store.contract import RESERVED_FOR_US
from onbeat.store.values import NewJob, StoredJob

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


# ---------------------------------------------------------------- a crash between the work and the answer


@pytest.fixture
def forgetful(services: Services, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The server dies when it has done the work and has not kept the answer; undo brings up the next one."""

    async def die(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr(services.store.access, "save_answer", die)
    monkeypatch.setattr(services.store.access, "drop_answer", die)
    return monkeypatch


class Died(Exception):
    """The process is gone."""


async def a_minute_later(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    now = services.clock.now() + RESERVED_FOR_US + 1
    monkeypatch.setattr(services.clock, "now", lambda: now)


async def test_a_job_that_was_saved_before_a_crash_is_found_and_not_made_again(
    http: httpx.AsyncClient, services: Services, forgetful: pytest.MonkeyPatch
) -> None:
    # The instant is inside grace the first time and past the second time: what was accepted once is not refused now.
    at = format_instant(services.clock.now() // 1_000_000 * 1_000_000 + 2_000_000)
    body = webhook_job(key="k", grace_s=1, schedules=[{"at": at}])
    refused(await http.post("/v1/jobs", json=body, headers=KEY), 500, "internal")
    (saved,) = (await http.get("/v1/jobs")).json()["items"]
    refused(await http.post("/v1/jobs", json=body, headers=KEY), 409, "idempotency_key_in_flight")
    await a_minute_later(services, forgetful)
    again = await http.post("/v1/jobs", json=body, headers=KEY)
    assert (again.status_code, again.json()) == (201, saved)
    replayed = await http.post("/v1/jobs", json=body, headers=KEY)
    assert (replayed.content, replayed.headers["idempotent-replayed"]) == (again.content, "true")


async def test_a_batch_that_was_cut_off_is_completed(
    http: httpx.AsyncClient, services: Services, forgetful: pytest.MonkeyPatch
) -> None:
    jobs = [webhook_job(key=f"k{number}" if number % 2 else None) for number in range(450)]
    jobs[7] = webhook_job(name="")
    create, calls = services.store.jobs.create, 0

    async def dies_in_the_third_part(new: Sequence[NewJob], *, now: int) -> list[StoredJob | None]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Died
        return await create(new, now=now)

    forgetful.setattr(services.store.jobs, "create", dies_in_the_third_part)
    refused(await http.post("/v1/jobs:batch", json={"jobs": jobs}, headers=KEY), 500, "internal")
    await a_minute_later(services, forgetful)
    answer = (await http.post("/v1/jobs:batch", json={"jobs": jobs}, headers=KEY)).json()
    assert (answer["created"], answer["refused"]) == (449, 1)
    assert answer["items"][7]["error"]["code"] == "field_invalid"
    assert [item["job"]["key"] for item in answer["items"] if "job" in item] == [
        job["key"] for place, job in enumerate(jobs) if place != 7
    ]
    assert len((await http.get("/v1/jobs", params={"limit": 1_000})).json()["items"]) == 449


async def test_a_job_that_was_deleted_after_the_crash_is_made_anew(
    http: httpx.AsyncClient, services: Services, forgetful: pytest.MonkeyPatch
) -> None:
    refused(await http.post("/v1/jobs", json=webhook_job(), headers=KEY), 500, "internal")
    (saved,) = (await http.get("/v1/jobs")).json()["items"]
    assert (await http.delete(f"/v1/jobs/{saved['id']}")).status_code == 204
    await a_minute_later(services, forgetful)
    again = await http.post("/v1/jobs", json=webhook_job(), headers=KEY)
    assert again.status_code == 201
    assert again.json()["id"] != saved["id"]


async def test_the_key_of_somebody_elses_job_is_taken_under_every_idempotency_key(http: httpx.AsyncClient) -> None:
    await created(http, key="k")
    refused(await http.post("/v1/jobs", json=webhook_job(key="k"), headers=KEY), 409, "key_taken")
