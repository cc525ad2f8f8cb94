"""Bad inputs and the right answers: reliability §3.4 D, E, F; cases F01, D07, E16. Each stands for its kind."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, created, queue_job, refused, webhook_job, with_schedule, with_target

# ---------------------------------------------------------------- F: the JSON itself

GOOD = json.dumps(webhook_job())


@pytest.mark.parametrize(
    "body",
    [
        GOOD.replace('"name"', '"name": "x", "name"'),
        GOOD.replace('"url"', '"url": "https://example.org/", "url"'),
        GOOD[:-1] + ', "timeout_s": NaN}',
        GOOD[:-1] + ', "timeout_s": Infinity}',
        GOOD[:-1] + ', "timeout_s": -Infinity}',
        GOOD[:-1] + ', "timeout_s": 1e400}',
        GOOD.replace("Nightly", "\\ud800"),
        GOOD.replace("Nightly", "\\uDFFF\\ud800"),
        GOOD[:-1] + ', "target": {"queue": "q", "payload": {"x": "\\ud800"}}}',
        GOOD[:-1] + ', "tags": ' + "[" * 100 + "]" * 100 + "}",
        GOOD[:-1] + ', "tags": ' + "[" * 50_000 + "]" * 50_000 + "}",
        GOOD[:-1] + ', "grace_s": ' + "9" * 5_000 + "}",
        GOOD[:-1],
        GOOD + "x",
        "{'name': 'x'}",
        '{"name": "x",}',
        "\ufeff" + GOOD,
        "",
        " ",
    ],
)
async def test_what_is_no_strict_json_is_refused(http: httpx.AsyncClient, body: str) -> None:
    answer = await http.post("/v1/jobs", content=body.encode(), headers={"content-type": "application/json"})
    if body == "":
        refused(answer, 422, "field_missing")
    else:
        refused(answer, 400, "json_invalid")


@pytest.mark.parametrize("body", [b"\xff\xfe{}", b'{"name": "\xff"}', b'{"name": "\xed\xa0\x80"}', b"\x00"])
async def test_what_is_no_utf_8_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    refused(answer, 400, "json_invalid")


@pytest.mark.parametrize("body", ["null", "[]", '"x"', "5", "true"])
async def test_a_body_is_an_object(http: httpx.AsyncClient, body: str) -> None:
    answer = await http.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == "body"


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", ""]
)
async def test_other_media_types_are_refused(http: httpx.AsyncClient, media_type: str) -> None:
    answer = await http.post("/v1/jobs", content=GOOD, headers={"content-type": media_type} if media_type else {})
    refused(answer, 415, "media_type_unsupported")


async def test_a_charset_parameter_is_welcome(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/jobs", content=GOOD, headers={"content-type": "Application/JSON; charset=utf-8"})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity", "x"])
async def test_compressed_bodies_are_refused_unread(http: httpx.AsyncClient, encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    refused(await http.post("/v1/jobs", content=GOOD, headers=headers), 415, "media_type_unsupported")


async def test_a_body_beyond_a_mebibyte_is_refused(http: httpx.AsyncClient) -> None:
    body = json.dumps(webhook_job(name="x" * 1_048_576)).encode()
    headers = {"content-type": "application/json"}
    refused(await http.post("/v1/jobs", content=body, headers=headers), 413, "body_too_large")

    async def pieces() -> Any:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    refused(await http.post("/v1/jobs", content=pieces(), headers=headers), 413, "body_too_large")


# ---------------------------------------------------------------- F: fields


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"id": "job_1"}, "unknown_field", "id"),
        ({"tenant_id": "x"}, "unknown_field", "tenant_id"),
        ({"next_fire_at": None}, "unknown_field", "next_fire_at"),
        ({"state": "active"}, "unknown_field", "state"),
        ({"target": {"url": "https://example.com/", "verify": False}}, "unknown_field", "target.verify"),
        ({"schedules": [{"cron": "* * * * *", "tz": "UTC"}]}, "unknown_field", "schedules[0].tz"),
        ({"retry": {"attempts": 3}}, "unknown_field", "retry.attempts"),
        ({"name": 5}, "field_invalid", "name"),
        ({"name": None}, "field_invalid", "name"),
        ({"name": ""}, "field_invalid", "name"),
        ({"name": "   "}, "field_invalid", "name"),
        ({"name": "\u00a0\u2003"}, "field_invalid", "name"),
        ({"name": "x" * 201}, "field_invalid", "name"),
        ({"name": "x" * 10_000}, "field_invalid", "name"),
        ({"name": "a\0b"}, "field_invalid", "name"),
        ({"name": "a\nb"}, "field_invalid", "name"),
        ({"name": "\x1b]0;owned\x07"}, "field_invalid", "name"),
        ({"name": "a\x85b"}, "field_invalid", "name"),
        ({"tags": ["a\0"]}, "field_invalid", "tags[0]"),
        ({"tags": ["ok", ""]}, "field_invalid", "tags[1]"),
        ({"tags": "a"}, "field_invalid", "tags"),
        ({"tags": ["x"] * 33}, "field_invalid", "tags"),
        ({"key": "Upper"}, "field_invalid", "key"),
        ({"key": "a/b"}, "field_invalid", "key"),
        ({"key": "a\n"}, "field_invalid", "key"),
        ({"key": "."}, "field_invalid", "key"),
        ({"key": ""}, "field_invalid", "key"),
        ({"key": "k" * 129}, "field_invalid", "key"),
        ({"grace_s": 0}, "field_invalid", "grace_s"),
        ({"grace_s": -1}, "field_invalid", "grace_s"),
        ({"grace_s": 1.5}, "field_invalid", "grace_s"),
        ({"grace_s": "30"}, "field_invalid", "grace_s"),
        ({"grace_s": True}, "field_invalid", "grace_s"),
        ({"grace_s": 10**30}, "field_invalid", "grace_s"),
        ({"timeout_s": 0}, "field_invalid", "timeout_s"),
        ({"timeout_s": 1e300}, "field_invalid", "timeout_s"),
        ({"max_run_time_s": 0}, "field_invalid", "max_run_time_s"),
        ({"max_running": 0}, "field_invalid", "max_running"),
        ({"max_running": 101}, "field_invalid", "max_running"),
        ({"overlap": "panic"}, "field_invalid", "overlap"),
        ({"delivery": "exactly_once"}, "field_invalid", "delivery"),
        ({"misfire": {"policy": "catch_up", "max": 10**9}}, "field_invalid", "misfire.max"),
        ({"misfire": None}, "field_invalid", "misfire"),
        ({"retry": {"max_attempts": 0}}, "field_invalid", "retry.max_attempts"),
        ({"retry": {"factor": 0.5}}, "field_invalid", "retry.factor"),
        ({"past": "guess"}, "field_invalid", "past"),
        ({"target": {}}, "target_invalid", "target"),
        ({"target": {"url": "https://example.com/", "queue": "q"}}, "target_invalid", "target"),
        ({"target": {"queue": "q", "headers": {"X-A": "b"}}}, "target_invalid", "target"),
        ({"target": {"queue": "Q"}}, "field_invalid", "target.queue"),
        ({"target": "https://example.com/"}, "field_invalid", "target"),
    ],
)
async def test_a_bad_field_is_named(http: httpx.AsyncClient, fields: Json, code: str, field: str) -> None:
    problem = refused(await http.post("/v1/jobs", json=webhook_job(**fields)), 422, code)
    assert problem["field"] == field


@pytest.mark.parametrize("missing", ["name", "schedules", "target"])
async def test_what_is_missing_is_named(http: httpx.AsyncClient, missing: str) -> None:
    body = webhook_job()
    del body[missing]
    assert refused(await http.post("/v1/jobs", json=body), 422, "field_missing")["field"] == missing


async def test_every_bad_field_is_told_at_once(http: httpx.AsyncClient) -> None:
    problem = refused(
        await http.post("/v1/jobs", json=webhook_job(name="", grace_s=-1, colour="red")), 422, "field_invalid"
    )
    assert {(error["code"], error["field"]) for error in problem["errors"]} == {
        ("field_invalid", "name"),
        ("field_invalid", "grace_s"),
        ("unknown_field", "colour"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "a/b", "..", "a%2Fb", "a b", "a+b", "a?b#c", "😱", "<img src=x onerror=alert(1)>", "');--", "new", "a\\b",
        "=HYPERLINK(1)", "x" * 200, "\u202eabc", "a\u200bb", "e\u0301", "\u00e9", " padded ",
    ],
)  # fmt: skip
async def test_any_visible_name_is_kept_unchanged_and_the_job_can_be_used(http: httpx.AsyncClient, name: str) -> None:
    # Case F03: paths hold ids, never names.
    job = await created(http, name=name)
    assert job["name"] == name
    path = f"/v1/jobs/{job['id']}"
    assert (await http.get(path)).json()["name"] == name
    assert (await http.patch(path, json={"grace_s": 1})).json()["name"] == name
    for action in ("pause", "resume", "trigger"):
        assert (await http.post(f"{path}/{action}", json={})).is_success
    assert (await http.delete(path)).status_code == 204


async def test_names_that_are_equal_after_normalisation_are_two_names(http: httpx.AsyncClient) -> None:
    names = [(await created(http, name=name))["name"] for name in ("é", "e\u0301")]
    assert names == ["\u00e9", "e\u0301"]


@pytest.mark.parametrize(
    "payload", ["\0", {"x": "\0"}, {"\0": 1}, [], {}, 0, False, "", 1.0, 1e-300, 2**64, -(10**40), "😱", [[[1]]]]
)
async def test_a_payload_is_stored_and_answered_unchanged(http: httpx.AsyncClient, payload: Any) -> None:
    job = (await http.post("/v1/jobs", json=queue_job(target={"queue": "mail", "payload": payload}))).json()
    assert job["target"]["payload"] == payload
    assert type(job["target"]["payload"]) is type(payload)


# ---------------------------------------------------------------- E, D07: schedules


@pytest.mark.parametrize(
    ("schedule", "code"),
    [
        ({"cron": "60 * * * *"}, "cron_invalid"),
        ({"cron": "*/0 * * * *"}, "cron_invalid"),
        ({"cron": "* * * *"}, "cron_invalid"),
        ({"cron": "* * * * * * *"}, "cron_invalid"),
        ({"cron": ""}, "cron_invalid"),
        ({"cron": "61 * * * *"}, "cron_invalid"),
        ({"cron": "@reboot"}, "cron_invalid"),
        ({"cron": "0 0 * * 8"}, "cron_invalid"),
        ({"cron": "* " * 5_000}, "field_invalid"),
        ({"cron": "0 0 30 2 *"}, "never_fires"),
        ({"cron": "0 0 31 4,6,9,11 *"}, "never_fires"),
        ({"cron": "0 0 * * *", "timezone": "America/New_Yrok"}, "timezone_unknown"),
        ({"cron": "0 0 * * *", "timezone": "../../etc/passwd"}, "timezone_unknown"),
        ({"cron": "0 0 * * *", "timezone": ""}, "timezone_unknown"),
        ({"cron": "0 0 * * *", "timezone": "EST5EDT4"}, "timezone_unknown"),
        ({"cron": "0 0 * * *", "timezone": "utc+2"}, "timezone_unknown"),
        ({"cron": "0 0 * * *", "anchor": "epoch"}, "schedule_invalid"),
        ({"every": 0}, "field_invalid"),
        ({"every": -5}, "field_invalid"),
        ({"every": "0s"}, "field_invalid"),
        ({"every": 1.5}, "field_invalid"),
        ({"every": True}, "field_invalid"),
        ({"every": "1 month"}, "field_invalid"),
        ({"every": 10**12}, "field_invalid"),
        ({"every": 60, "timezone": "UTC"}, "schedule_invalid"),
        ({"every": 60, "anchor": "noon"}, "field_invalid"),
        ({"every": 60, "anchor": "2026-01-01T00:00:00.5Z"}, "instant_not_whole"),
        ({"at": "2020-01-01T00:00:00Z"}, "at_in_past"),
        ({"at": "2099-01-01T00:00:00"}, "field_invalid"),
        ({"at": "2099-02-30T00:00:00Z"}, "field_invalid"),
        ({"at": "2099-01-01T00:00:00Z", "timezone": "Europe/Kyiv"}, "field_invalid"),
        ({"at": "2099-01-01T00:00:00", "timezone": "Mars/Olympus"}, "timezone_unknown"),
        ({"at": "10000-01-01T00:00:00Z"}, "field_invalid"),
        ({"at": 5}, "field_invalid"),
        ({}, "schedule_invalid"),
        ({"cron": "* * * * *", "every": 5}, "schedule_invalid"),
    ],
)
async def test_a_schedule_that_cannot_be_honoured_is_refused(
    http: httpx.AsyncClient, schedule: Json, code: str
) -> None:
    problem = refused(await http.post("/v1/jobs", json=with_schedule(**schedule)), 422, code)
    assert problem["field"].startswith("schedules[0]")


@pytest.mark.parametrize("count", [0, 17, 1_001])
async def test_a_job_has_one_to_sixteen_schedules(http: httpx.AsyncClient, count: int) -> None:
    schedules = [{"every": 60 + number} for number in range(count)]
    answer = await http.post("/v1/jobs", json=webhook_job(schedules=schedules))
    assert (answer.status_code, answer.json()["field"]) == (422, "schedules")


async def test_a_past_one_shot_runs_now_where_that_is_said(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"at": "2020-01-01T00:00:00Z"}], past="run_now")
    assert job["next_fire_at"] > "2026"


# ---------------------------------------------------------------- D, E16: the request to be sent


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"headers": {"X-A": "a\r\nX-Injected: 1"}}, "header_invalid"),
        ({"headers": {"X-A": "a\nb"}}, "header_invalid"),
        ({"headers": {"X-A\r\nB": "c"}}, "header_invalid"),
        ({"headers": {"X A": "b"}}, "header_invalid"),
        ({"headers": {"X:Y": "b"}}, "header_invalid"),
        ({"headers": {"": "x"}}, "header_invalid"),
        ({"headers": {"X-A": "café"}}, "header_invalid"),
        ({"headers": {"X-A": "東京"}}, "header_invalid"),
        ({"headers": {"X-A": 1}}, "field_invalid"),
        ({"headers": {"X-A": None}}, "field_invalid"),
        ({"headers": ["X-A: b"]}, "field_invalid"),
        ({"headers": {"Host": "evil"}}, "header_reserved"),
        ({"headers": {"Content-Length": "5"}}, "header_reserved"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "header_reserved"),
        ({"headers": {"webhook-signature": "v1,x"}}, "header_reserved"),
        ({"headers": {"Connection": "close"}}, "header_reserved"),
        ({"headers": {"Idempotency-Key": "x"}}, "header_reserved"),
        ({"headers": {f"X-{number}": "a" for number in range(500)}}, "header_invalid"),
        ({"headers": {"X-A": "a" * 900_000}}, "header_invalid"),
        ({"headers": {"x-a": "1", "X-A": "2"}}, "header_invalid"),
        ({"method": "GET\r\n"}, "method_invalid"),
        ({"method": "TRACE"}, "method_invalid"),
        ({"method": "GET", "body": "x"}, "method_invalid"),
        ({"body": "x" * 262_145}, "body_too_large"),
        ({"body": "x", "payload": 1}, "target_invalid"),
        ({"body": 5}, "field_invalid"),
        ({"url": "https://example.com/a b"}, "url_invalid"),
        ({"url": "http://127.1/"}, "url_blocked_address"),
        ({"url": "http://localhost/"}, "url_blocked_host"),
        ({"url": "http://example.com/"}, "https_required"),
        ({"url": "file:///etc/passwd"}, "scheme_not_allowed"),
        ({"url": "https://user:pw@example.com/"}, "url_invalid"),
        ({"url": "https://example.com:22/"}, "port_not_allowed"),
        ({"url": "https://example.com/" + "a" * 3_000}, "url_too_long"),
        ({"secret": "nobody-made-it"}, "secret_unknown"),
    ],
)
async def test_a_request_that_could_not_be_sent_is_refused(http: httpx.AsyncClient, target: Json, code: str) -> None:
    problem = refused(await http.post("/v1/jobs", json=with_target(**target)), 422, code)
    assert problem["field"].startswith("target")


async def test_a_body_of_any_text_is_kept(http: httpx.AsyncClient) -> None:
    job = (await http.post("/v1/jobs", json=with_target(body="😱 东京\n"))).json()
    assert job["target"]["body"] == "😱 东京\n"


# ---------------------------------------------------------------- F122: queries


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1", "limit=0", "limit=1001", "limit=1e9", "limit=x", "limit=", "cursor=x", "cursor=%00", "cursor=AAAA",
        "sort=name;drop", "state=deleted", "state=", "colour=red", "limit=5&limit=6", "text=%00", "offset=10",
    ],
)  # fmt: skip
async def test_a_bad_query_of_jobs_is_refused(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"/v1/jobs?{query}")
    refused(answer, 400, "cursor_invalid" if query.startswith("cursor") else "query_invalid")


@pytest.mark.parametrize(
    "query", ["from=yesterday", "to=2026-01-01", "late=maybe", "state=ended", "from=2026-01-01T00:00:00", "job=x&job=y"]
)
async def test_a_bad_query_of_runs_is_refused(http: httpx.AsyncClient, query: str) -> None:
    refused(await http.get(f"/v1/runs?{query}"), 400, "query_invalid")


async def test_a_cursor_of_another_list_or_an_edited_one_is_refused(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        await created(http)
    cursor = (await http.get("/v1/jobs", params={"limit": 1})).json()["next_cursor"]
    refused(await http.get("/v1/runs", params={"cursor": cursor}), 400, "cursor_invalid")
    for place in range(len(cursor) - 1):
        edited = cursor[:place] + ("B" if cursor[place] != "B" else "C") + cursor[place + 1 :]
        refused(await http.get("/v1/jobs", params={"cursor": edited}), 400, "cursor_invalid")


# ---------------------------------------------------------------- paths and methods


@pytest.mark.parametrize(
    "path",
    ["/v1/jobs/x", "/v1/jobs/job_1", "/v1/jobs/job_zzzzzzzzzzzzz", "/v1/jobs/job_0000000000000%0A", "/v1/runs/run_1"],
)
async def test_what_is_no_id_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    refused(await http.get(path), 404, "id_invalid")


async def test_unknown_ids_and_paths_are_not_found(http: httpx.AsyncClient) -> None:
    refused(await http.get("/v1/jobs/job_0000000000001"), 404, "job_not_found")
    refused(await http.get("/v1/runs/run_00000000000000000000000001"), 404, "run_not_found")
    for path in ("/", "/v1", "/v1/", "/v1/jobs/", "/v2/jobs", "/v1/jobs//next", "/docs", "/%2e%2e/x"):
        refused(await http.get(path), 404, "path_not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/jobs", "GET, POST"),
        ("POST", "/v1/jobs/job_0000000000001", "DELETE, GET, PATCH"),
        ("GET", "/v1/jobs:batch", "POST"),
        ("PUT", "/healthz", "GET"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(
    http: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await http.request(method, path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == allowed
