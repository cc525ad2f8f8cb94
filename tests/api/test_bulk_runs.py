"""One action on every run that a filter finds."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

import httpx
import pytest
from tests.api.bodies import BASE_URL, ContextMaker, Json, claimed, created, outcome, refused, triggered
from tests.api.conftest import KeyMaker

from onbeat.api.application import build_api

RESPONSE: Final = {
    "headers": [["content-type", "text/plain"]],
    "body": base64.b64encode(b"x" * 2_000).decode(),
    "truncated": False,
}


async def bulk(http: httpx.AsyncClient, **body: object) -> Json:
    answer = await http.post("/v1/runs:bulk", json={"action": "cancel"} | body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def states(http: httpx.AsyncClient, **where: str) -> list[str]:
    page = (await http.get("/v1/runs", params={"limit": 1_000, **where})).json()
    return sorted(run["state"] for run in page["items"])


async def test_runs_of_a_job_are_cancelled_and_those_of_others_stay(http: httpx.AsyncClient) -> None:
    job, other = await created(http, key="one"), await created(http, key="two")
    runs = [await triggered(http, job) for _ in range(12)]
    await triggered(http, other)
    counted = await bulk(http, filter={"job": "one", "state": ["pending"]}, dry_run=True)
    assert (counted["count"], counted["more"], len(counted["first"])) == (12, False, 10)
    assert set(counted["first"]) < {run["id"] for run in runs}
    answer = await bulk(http, filter={"job": job["id"], "state": ["pending"]})
    assert answer == {"done": 12, "unchanged": 0, "refused": 0, "problems": [], "next_cursor": None}
    assert await states(http, job="one") == ["cancelled"] * 12
    assert await states(http, job="two") == ["pending"]


async def test_a_run_that_runs_is_asked_to_stop_once(http: httpx.AsyncClient) -> None:
    await triggered(http, await created(http))
    (held,) = await claimed(http)
    assert (await bulk(http, all=True))["done"] == 1
    assert (await bulk(http, all=True))["unchanged"] == 1
    run = (await http.get(f"/v1/runs/{held['run_id']}")).json()
    assert (run["state"], run["cancel_requested"]) == ("running", True)


async def test_without_a_state_history_is_left_alone_and_with_one_it_is_refused(http: httpx.AsyncClient) -> None:
    await triggered(http, await created(http))
    await bulk(http, all=True)
    assert (await bulk(http, all=True, dry_run=True))["count"] == 0
    assert (await bulk(http, filter={"state": ["cancelled"]}))["unchanged"] == 1
    await triggered(http, await created(http))
    (held,) = await claimed(http)
    body = {"token": held["token"], "outcome": "succeeded", "started_at": held["granted_at"], "duration_us": 1}
    assert (await http.post(f"/v1/runs/{held['run_id']}/finish", json=body)).status_code == 200
    answer = await bulk(http, filter={"state": ["succeeded"]})
    assert (answer["refused"], answer["problems"][0]["id"]) == (1, held["run_id"])
    assert answer["problems"][0]["error"]["code"] == "run_terminal"


async def failed(http: httpx.AsyncClient, job: Json, count: int) -> list[str]:
    """Ids of runs that failed, oldest first."""
    ids = []
    for _ in range(count):
        await triggered(http, job)
        (held,) = await claimed(http, limit=1)
        report = {"runs": [outcome(held, "http_status", status=400, error="no", response=RESPONSE)]}
        assert (await http.post("/v1/runs/finish", json=report)).json()["runs"][0]["result"] == "ended"
        ids.append(held["run_id"])
    return ids


async def test_failed_runs_are_brought_back_oldest_first_and_only_those_that_the_filter_finds(
    http: httpx.AsyncClient,
) -> None:
    job, other = await created(http, key="one"), await created(http, key="two")
    ids = await failed(http, job, 15)
    await failed(http, other, 2)
    counted = await bulk(http, action="retry", filter={"job": "one", "state": ["failed"]}, dry_run=True)
    assert counted == {"count": 15, "more": False, "first": ids[:10]}
    assert await states(http, job="one") == ["failed"] * 15
    first = await bulk(http, action="retry", filter={"job": "one"}, limit=10)
    assert (first["done"], first["refused"]) == (10, 0)
    rest = await bulk(http, action="retry", filter={"job": "one"}, limit=10, cursor=first["next_cursor"])
    assert (rest["done"], rest["next_cursor"]) == (5, None)
    runs = [(await http.get(f"/v1/runs/{run_id}")).json() for run_id in ids]
    assert {run["state"] for run in runs} == {"pending"}
    assert sorted(run["ready_at"] for run in runs) == [run["ready_at"] for run in runs]
    assert len({run["ready_at"] for run in runs}) == 15
    assert await states(http, job="two") == ["failed"] * 2
    assert (await bulk(http, action="retry", filter={"job": "one"}))["done"] == 0


async def test_without_a_state_cancelled_runs_stay_and_named_they_come_back(http: httpx.AsyncClient) -> None:
    job = await created(http)
    await failed(http, job, 1)
    await triggered(http, job)
    await bulk(http, all=True)
    assert (await bulk(http, action="retry", all=True))["done"] == 1
    assert await states(http) == ["cancelled", "pending"]
    assert (await bulk(http, action="retry", filter={"state": ["cancelled"]}))["done"] == 1


async def test_runs_of_paused_and_deleted_jobs_are_refused_one_by_one(http: httpx.AsyncClient) -> None:
    paused, deleted, active = [await created(http) for _ in range(3)]
    ids = {job["id"]: (await failed(http, job, 1))[0] for job in (paused, deleted, active)}
    assert (await http.post(f"/v1/jobs/{paused['id']}/pause", json={})).status_code == 200
    assert (await http.delete(f"/v1/jobs/{deleted['id']}")).status_code in (200, 204)
    answer = await bulk(http, action="retry", all=True)
    assert (answer["done"], answer["refused"]) == (1, 2)
    told = {problem["id"]: problem["error"]["detail"] for problem in answer["problems"]}
    assert told == {ids[paused["id"]]: "the job is paused", ids[deleted["id"]]: "the run's job is gone"}


async def test_two_replays_at_once_bring_each_run_back_once(http: httpx.AsyncClient) -> None:
    job = await created(http)
    await failed(http, job, 30)
    answers = await asyncio.gather(*(bulk(http, action="retry", all=True) for _ in range(2)))
    assert [answer["refused"] for answer in answers] == [0, 0]
    assert await states(http) == ["pending"] * 30


async def test_the_list_shows_the_reason_and_on_request_the_last_response(http: httpx.AsyncClient) -> None:
    await failed(http, await created(http), 1)
    (plain,) = (await http.get("/v1/runs", params={"state": "failed"})).json()["items"]
    assert (plain["status"], plain["error"]) == (400, "no")
    assert "response" not in plain
    (shown,) = (await http.get("/v1/runs", params={"state": "failed", "response": "true"})).json()["items"]
    body = base64.b64decode(shown["response"]["body"])
    assert (body, shown["response"]["truncated"]) == (b"x" * 1_024, True)
    assert shown["response"]["headers"] == [["content-type", "text/plain"]]
    await triggered(http, await created(http))
    (waiting,) = (await http.get("/v1/runs", params={"state": "pending", "response": "true"})).json()["items"]
    assert waiting["response"] is None


async def test_the_cursor_goes_on_where_limit_stopped(http: httpx.AsyncClient) -> None:
    job = await created(http)
    for _ in range(25):
        await triggered(http, job)
    cursor, calls = None, []
    while True:
        answer = await bulk(http, filter={"job": job["id"]}, limit=10, cursor=cursor)
        calls.append(answer["done"])
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert calls == [10, 10, 5]


async def test_instants_bound_what_is_cancelled(http: httpx.AsyncClient) -> None:
    run = await triggered(http, await created(http))
    assert (await bulk(http, filter={"to": run["scheduled_at"]}))["done"] == 0
    assert (await bulk(http, filter={"from": run["scheduled_at"]}))["done"] == 1


async def test_two_calls_at_once_refuse_nothing(http: httpx.AsyncClient) -> None:
    jobs = [await created(http) for _ in range(3)]
    for job in jobs * 40:
        await triggered(http, job)
    answers = await asyncio.gather(*(bulk(http, all=True) for _ in range(2)))
    assert [answer["refused"] for answer in answers] == [0, 0]
    assert await states(http) == ["cancelled"] * 120


async def test_other_namespaces_are_neither_counted_nor_touched(
    make_context: ContextMaker, bearer: KeyMaker, http: httpx.AsyncClient
) -> None:
    mine = await created(http)
    await triggered(http, mine)
    transport = httpx.ASGITransport(build_api(make_context(keyed=True)))
    headers = await bearer("jobs:write", "runs:write", namespace="other")
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=headers) as other:
        await triggered(other, await created(other))
        assert (await bulk(other, all=True, dry_run=True))["count"] == 1
        assert (await bulk(other, all=True))["done"] == 1
        foreign = {"action": "cancel", "filter": {"job": mine["id"]}}
        refused(await other.post("/v1/runs:bulk", json=foreign), 404, "job_not_found")
    assert await states(http) == ["pending"]


@pytest.mark.parametrize("scopes", [("runs:read",), ("jobs:write",)])
async def test_a_key_without_the_scope_is_refused(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, scopes: tuple[str, ...]
) -> None:
    body = {"action": "cancel", "all": True}
    refused(await keyed_http.post("/v1/runs:bulk", json=body, headers=await bearer(*scopes)), 403, "not_allowed")


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"action": "cancel"}, 422, "field_invalid", "filter"),
        ({"action": "cancel", "filter": {"state": None}}, 422, "field_invalid", "filter"),
        ({"action": "cancel", "filter": {"late": False}, "all": True}, 422, "field_invalid", "all"),
        ({"action": "delete", "all": True}, 422, "field_invalid", "action"),
        ({"action": "retry", "filter": {"state": ["failed", "missed"]}}, 422, "field_invalid", "filter.state"),
        ({"action": "retry", "filter": {"state": ["pending"]}}, 422, "field_invalid", "filter.state"),
        ({"action": "cancel", "filter": {"state": "pending"}}, 422, "field_invalid", "filter.state"),
        ({"action": "cancel", "filter": {"state": []}}, 422, "field_invalid", "filter.state"),
        ({"action": "retry", "filter": {"state": [], "late": True}}, 422, "field_invalid", "filter.state"),
        ({"action": "cancel", "filter": {"state": ["done"]}}, 422, "field_invalid", "filter.state[0]"),
        ({"action": "cancel", "filter": {"from": "yesterday"}}, 422, "field_invalid", "filter.from"),
        ({"action": "cancel", "filter": {"job": "nobody"}}, 404, "job_not_found", None),
        ({"action": "cancel", "all": True, "arguments": {}}, 422, "unknown_field", "arguments"),
        ({"action": "cancel", "all": True, "cursor": "x"}, 400, "cursor_invalid", "cursor"),
    ],
)
async def test_what_is_not_well_said_is_refused(
    http: httpx.AsyncClient, body: Json, status: int, code: str, field: str | None
) -> None:
    assert refused(await http.post("/v1/runs:bulk", json=body), status, code).get("field") == field
