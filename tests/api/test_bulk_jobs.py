"""One action on every job that a filter finds."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.api.bodies import BASE_URL, ContextMaker, Json, created, refused, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.api.application import build_api

NOTHING_LEFT: Json = {"problems": [], "next_cursor": None}


async def bulk(http: httpx.AsyncClient, action: str, arguments: Json | None = None, **body: object) -> Json:
    request = {"action": action, "arguments": arguments or {}} | body
    answer = await http.post("/v1/jobs:bulk", json=request)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def many(http: httpx.AsyncClient, count: int, **fields: object) -> list[str]:
    """Ids of so many new jobs, oldest first."""
    jobs = [webhook_job(name=f"Job {number}", **fields) for number in range(count)]
    answer = (await http.post("/v1/jobs:batch", json={"jobs": jobs})).json()
    return [item["job"]["id"] for item in answer["items"]]


async def states(http: httpx.AsyncClient, **where: str) -> list[str]:
    page = (await http.get("/v1/jobs", params={"limit": 1_000, **where})).json()
    return [job["state"] for job in page["items"]]


async def test_a_dry_run_counts_and_changes_nothing(http: httpx.AsyncClient) -> None:
    tagged = await many(http, 15, tags=["a"])
    await many(http, 3, tags=["b"])
    answer = await bulk(http, "pause", filter={"tag": "a"}, dry_run=True, limit=1)
    assert (answer["count"], answer["more"]) == (15, False)
    assert len(answer["first"]) == 10
    assert set(answer["first"]) < set(tagged)
    assert await states(http) == ["active"] * 18


async def test_a_thousand_jobs_are_paused_in_one_call_and_a_second_call_changes_nothing(
    http: httpx.AsyncClient,
) -> None:
    await many(http, 1_000, tags=["a"])
    await many(http, 1, tags=["b"])
    first = await bulk(http, "pause", {"note": "moving"}, filter={"tag": "a"})
    assert (first["done"], first["unchanged"], first["refused"]) == (1_000, 0, 0)
    assert await states(http, tag="a") == ["paused"] * 1_000
    assert await states(http, tag="b") == ["active"]
    assert first["next_cursor"] is not None  # as many as were allowed: there might have been more
    rest = await bulk(http, "pause", {"note": "moving"}, filter={"tag": "a"}, cursor=first["next_cursor"])
    assert rest == {"done": 0, "unchanged": 0, "refused": 0} | NOTHING_LEFT
    again = await bulk(http, "pause", {"note": "moving"}, filter={"tag": "a"})
    assert (again["done"], again["unchanged"]) == (0, 1_000)


async def test_the_cursor_goes_on_where_limit_stopped_though_the_filter_finds_others_now(
    http: httpx.AsyncClient,
) -> None:
    await many(http, 25)
    cursor, calls = None, []
    while True:
        answer = await bulk(http, "pause", filter={"state": "active"}, limit=10, cursor=cursor)
        calls.append(answer["done"])
        await created(http)  # newer than the first call: left out
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert calls == [10, 10, 5]
    assert sorted(await states(http)) == ["active"] * 3 + ["paused"] * 25


async def test_those_that_cannot_are_told_and_do_not_stop_the_others(http: httpx.AsyncClient) -> None:
    await many(http, 3)
    held = (await many(http, 1, tags=["held"]))[0]
    await http.post("/v1/pause", json={"scope": {"tag": "held"}})
    await bulk(http, "pause", filter={"state": "active"})
    answer = await bulk(http, "resume", filter={"text": "job"})
    assert (answer["done"], answer["unchanged"], answer["refused"]) == (3, 0, 1)
    (problem,) = answer["problems"]
    assert (problem["id"], problem["error"]["code"], problem["error"]["status"]) == (held, "state_conflict", 409)


async def test_the_list_of_problems_is_bounded_and_the_count_is_not(http: httpx.AsyncClient) -> None:
    await many(http, 120)
    await bulk(http, "pause", all=True)
    answer = await bulk(http, "trigger", all=True)
    assert (answer["done"], answer["refused"], len(answer["problems"])) == (0, 120, 100)


async def test_jobs_are_deleted_with_what_waits(http: httpx.AsyncClient) -> None:
    await many(http, 120, tags=["old"])
    kept = await created(http)
    assert (await bulk(http, "trigger", filter={"tag": "old"}))["done"] == 120
    assert (await bulk(http, "delete", {"running": "cancel"}, filter={"tag": "old"}))["done"] == 120
    assert [job["id"] for job in (await http.get("/v1/jobs")).json()["items"]] == [kept["id"]]
    runs = (await http.get("/v1/runs", params={"limit": 1_000})).json()["items"]
    assert [run["state"] for run in runs] == ["cancelled"] * 120
    assert (await bulk(http, "delete", filter={"tag": "old"})) == {
        "done": 0,
        "unchanged": 0,
        "refused": 0,
    } | NOTHING_LEFT


async def test_each_job_gets_a_run_with_the_payload_of_the_call(http: httpx.AsyncClient) -> None:
    await many(http, 3, target={"queue": "mail", "payload": {"to": "all"}})
    assert (await bulk(http, "trigger", {"payload": {"to": "one"}}, all=True))["done"] == 3
    claim = {"worker": "w", "queue": "mail", "limit": 10}
    runs = (await http.post("/v1/runs/claim", json=claim)).json()["runs"]
    assert [run["payload"] for run in runs] == ['{"to":"one"}'] * 3


async def test_tags_are_added_and_removed_and_nothing_else_changes(http: httpx.AsyncClient) -> None:
    (old, _) = await many(http, 2, tags=["a"])
    await many(http, 1, tags=["a", "new"])
    before = (await http.get(f"/v1/jobs/{old}")).json()
    added = await bulk(http, "add_tag", {"tag": "new"}, filter={"tag": "a"})
    assert (added["done"], added["unchanged"]) == (2, 1)
    after = (await http.get(f"/v1/jobs/{old}")).json()
    assert after["tags"] == ["a", "new"]
    changing = {"tags", "version", "updated_at"}
    assert {name: before[name] for name in before.keys() - changing} == {
        name: after[name] for name in after.keys() - changing
    }
    removed = await bulk(http, "remove_tag", {"tag": "new"}, filter={"tag": "a"})
    assert (removed["done"], removed["unchanged"]) == (3, 0)
    assert (await bulk(http, "remove_tag", {"tag": "new"}, filter={"tag": "a"}))["unchanged"] == 3


async def test_a_job_that_has_all_the_tags_it_may_have_is_refused_alone(http: httpx.AsyncClient) -> None:
    limit = (await http.get("/openapi.json")).json()["components"]["schemas"]["JobBody"]["properties"]["tags"]
    await created(http, tags=[f"t{number}" for number in range(limit["maxItems"])])
    await created(http)
    answer = await bulk(http, "add_tag", {"tag": "one-more"}, all=True)
    assert (answer["done"], answer["refused"]) == (1, 1)
    assert (answer["problems"][0]["error"]["code"], answer["problems"][0]["error"]["field"]) == (
        "field_invalid",
        "tags",
    )


async def test_a_tag_that_is_paused_pauses_the_jobs_that_get_it(http: httpx.AsyncClient) -> None:
    await many(http, 2)
    await http.post("/v1/pause", json={"scope": {"tag": "frozen"}})
    assert (await bulk(http, "add_tag", {"tag": "frozen"}, all=True))["done"] == 2
    assert await states(http) == ["paused", "paused"]


async def test_two_calls_at_once_leave_every_job_as_both_asked(http: httpx.AsyncClient) -> None:
    await many(http, 300)
    tags = await asyncio.gather(*(bulk(http, "add_tag", {"tag": tag}, all=True) for tag in ("a", "b")))
    assert [answer["refused"] for answer in tags] == [0, 0]
    both = (await http.get("/v1/jobs", params={"limit": 1_000})).json()["items"]
    assert all(sorted(job["tags"]) == ["a", "b"] for job in both)
    deleted = await asyncio.gather(*(bulk(http, "delete", all=True) for _ in range(2)))
    assert [answer["refused"] for answer in deleted] == [0, 0]
    assert await states(http) == []


async def test_other_namespaces_are_neither_counted_nor_touched(
    make_context: ContextMaker, bearer: KeyMaker, http: httpx.AsyncClient
) -> None:
    await many(http, 3)
    transport = httpx.ASGITransport(build_api(make_context(keyed=True)))
    headers = await bearer("jobs:write", "jobs:read", namespace="other")
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=headers) as other:
        await many(other, 2)
        assert (await bulk(other, "delete", all=True, dry_run=True))["count"] == 2
        assert (await bulk(other, "delete", all=True))["done"] == 2
        assert await states(other) == []
    assert await states(http) == ["active"] * 3


@pytest.mark.parametrize("scopes", [("jobs:read",), ("runs:read", "runs:write")])
async def test_a_key_without_the_scope_is_refused(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, scopes: tuple[str, ...]
) -> None:
    body = {"action": "pause", "all": True, "dry_run": True}
    refused(await keyed_http.post("/v1/jobs:bulk", json=body, headers=await bearer(*scopes)), 403, "not_allowed")


async def test_a_call_is_repeated_under_its_key(http: httpx.AsyncClient) -> None:
    await many(http, 3)
    request = {"action": "trigger", "all": True}
    answers = [await http.post("/v1/jobs:bulk", json=request, headers={"idempotency-key": '"once"'}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert len((await http.get("/v1/runs")).json()["items"]) == 3


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"action": "pause"}, "field_invalid", "filter"),
        ({"action": "pause", "filter": {}}, "field_invalid", "filter"),
        ({"action": "pause", "filter": {"tag": None}}, "field_invalid", "filter"),
        ({"action": "pause", "filter": {}, "all": False}, "field_invalid", "filter"),
        ({"action": "pause", "filter": {"tag": "a"}, "all": True}, "field_invalid", "all"),
        ({"action": "pause", "all": 1}, "field_invalid", "all"),
        ({"action": "pause", "filter": None, "all": True}, "field_invalid", "filter"),
        ({"action": "pause", "filter": {"key": "a"}}, "unknown_field", "filter.key"),
        ({"action": "pause", "filter": {"state": "deleted"}}, "field_invalid", "filter.state"),
        ({"action": "pause", "filter": {"tag": "a\0"}}, "field_invalid", "filter.tag"),
        ({"action": "pause", "filter": {"tag": ""}}, "field_invalid", "filter.tag"),
        ({"action": "pause", "filter": {"text": ""}}, "field_invalid", "filter.text"),
        ({"action": "pause", "filter": {"text": "", "tag": "a"}}, "field_invalid", "filter.text"),
        ({"action": "explode", "all": True}, "field_invalid", "action"),
        ({"all": True}, "field_missing", "action"),
        ({"action": "pause", "all": True, "limit": 0}, "field_invalid", "limit"),
        ({"action": "pause", "all": True, "limit": 1_001}, "field_invalid", "limit"),
        ({"action": "pause", "all": True, "arguments": {"tag": "a"}}, "unknown_field", "arguments.tag"),
        ({"action": "pause", "all": True, "arguments": {"until": "soon"}}, "field_invalid", "arguments.until"),
        ({"action": "pause", "all": True, "arguments": {"until": "2001-01-01T00:00:00Z"}}, "field_invalid", "until"),
        ({"action": "resume", "all": True, "arguments": {"note": "x"}}, "unknown_field", "arguments.note"),
        ({"action": "delete", "all": True, "arguments": {"running": "kill"}}, "field_invalid", "arguments.running"),
        ({"action": "add_tag", "all": True}, "field_missing", "arguments.tag"),
        ({"action": "add_tag", "all": True, "arguments": {"tag": " "}}, "field_invalid", "arguments.tag"),
        ({"action": "remove_tag", "all": True, "arguments": []}, "field_invalid", "arguments"),
        ({"action": "pause", "all": True, "colour": "red"}, "unknown_field", "colour"),
    ],
)
async def test_what_is_not_well_said_is_refused_and_changes_nothing(
    http: httpx.AsyncClient, body: Json, code: str, field: str
) -> None:
    await created(http)
    assert refused(await http.post("/v1/jobs:bulk", json=body), 422, code)["field"] == field
    assert await states(http) == ["active"]


async def test_a_cursor_of_another_list_is_refused(http: httpx.AsyncClient) -> None:
    await many(http, 2)
    cursor = (await http.get("/v1/jobs", params={"limit": 1})).json()["next_cursor"]
    for wrong in (cursor, "x", "", "é"):
        answer = await http.post("/v1/jobs:bulk", json={"action": "pause", "all": True, "cursor": wrong})
        refused(answer, 400, "cursor_invalid")
