"""Every number and every text of every body, at its extremes. The places come from the OpenAPI document, so that a new
field is tried too.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from tests.api.bodies import PROBLEM, Json, claimed, created, outcome, queue_job, triggered, webhook_job

NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.1, -0.0, 1e308, -1e308, 5e-324, 1e-9, True,
    "1", None, [], {},
)  # fmt: skip
NUL = ("\0", "a\0b")
TEXTS: tuple[Any, ...] = (
    *NUL, "", " ", "\r\nX-Injected: 1", "\x7f", "\ud800", "😱", "\u202eabc", "e\u0301", "../../etc/passwd", "%00",
    "x" * 70_000, 5, None, [], {},
)  # fmt: skip
INSTANTS = (
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z",
    "2099-01-01T00:00:00.000001Z", "2099-06-30T23:59:60Z", "9999-12-31T23:59", "0001-01-01T00:00",
)  # fmt: skip

Place = tuple[str | int, ...]


def places(schema: Json, schemas: Json, kinds: tuple[str, ...], place: Place = ()) -> Iterator[Place]:
    """Where a value of one of these JSON types may stand. Lists are entered by their first item."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    for choice in schema.get("anyOf", ()):
        yield from places(choice, schemas, kinds, place)
    if schema.get("type") in kinds:
        yield place
    for name, part in schema.get("properties", {}).items():
        yield from places(part, schemas, kinds, (*place, name))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from places(schema["additionalProperties"], schemas, kinds, (*place, "X-A"))
    if isinstance(schema.get("items"), dict):
        yield from places(schema["items"], schemas, kinds, (*place, 0))


def put(body: Any, place: Place, value: Any) -> Any:
    """The body with `value` there; what leads to it is made where it is missing."""
    if not place:
        return value
    first, *rest = place
    if isinstance(first, int):
        return [put(body[0] if isinstance(body, list) and body else {}, tuple(rest), value)]
    fields = dict(body) if isinstance(body, dict) else {}
    if first in ("every", "at"):  # one kind of schedule in place of the other
        fields = {}
    fields[first] = put(fields.get(first), tuple(rest), value)
    return fields


class Target:
    """One call: where it goes and a body that it accepts."""

    def __init__(self, method: str, path: str, template: str, body: Json) -> None:
        self.method, self.path, self.template, self.body = method, path, template, body

    def schema(self, document: Json) -> Json:
        content: Json = document["paths"][self.template][self.method.lower()]["requestBody"]["content"]
        return dict(content["application/json"]["schema"])

    async def ask(self, http: httpx.AsyncClient, body: Any) -> httpx.Response:
        headers = {"content-type": "application/json"}
        return await http.request(self.method, self.path, content=json.dumps(body), headers=headers)


@pytest.fixture
async def targets(http: httpx.AsyncClient) -> list[Target]:
    """Every kind of body that the API takes."""
    job = await created(http, name="the patched one", key="patched")
    await triggered(http, await created(http))
    (run,) = await claimed(http, worker="w")
    held = {"run_id": run["run_id"], "token": run["token"]}
    forged = outcome(run, "http_status", token="A" * 22, status=500, response={"headers": [["a", "b"]], "body": ""})
    one = {name: value for name, value in forged.items() if name != "run_id"}
    return [
        Target("POST", "/v1/jobs", "/v1/jobs", webhook_job()),
        Target("POST", "/v1/jobs", "/v1/jobs", queue_job()),
        Target("PATCH", f"/v1/jobs/{job['id']}", "/v1/jobs/{job_id}", {}),
        Target("PUT", "/v1/jobs/by-key/put", "/v1/jobs/by-key/{key}", webhook_job()),
        Target("POST", f"/v1/jobs/{job['id']}/pause", "/v1/jobs/{job_id}/pause", {}),
        Target("POST", "/v1/schedules:preview", "/v1/schedules:preview", {"schedules": [{"cron": "0 3 * * *"}]}),
        Target("POST", "/v1/runs/claim", "/v1/runs/claim", {"worker": "w"}),
        Target("POST", "/v1/runs/heartbeat", "/v1/runs/heartbeat", {"runs": [held]}),
        Target("POST", "/v1/runs/finish", "/v1/runs/finish", {"runs": [forged]}),
        Target("POST", f"/v1/runs/{run['run_id']}/finish", "/v1/runs/{run_id}/finish", one),
        Target("POST", "/v1/secrets/mine:rotate", "/v1/secrets/{name}:rotate", {}),
    ]


async def wrong_answers(
    http: httpx.AsyncClient, app: FastAPI, targets: list[Target], kinds: tuple[str, ...], values: tuple[Any, ...]
) -> tuple[list[str], int]:
    """Every value at every place that may hold one of `kinds`: what was answered as it must not, and how many tries."""
    document = app.openapi()
    wrong, tries = [], 0
    for target in targets:
        for place in dict.fromkeys(places(target.schema(document), document["components"]["schemas"], kinds)):
            for value in values:
                if place == ("wait_s",) and isinstance(value, int | float) and 0.5 < value <= 30:
                    continue  # it would be waited for
                body = put(copy.deepcopy(target.body), place, value)
                answer = await target.ask(http, body)
                tries += 1
                if not is_right(answer, value, place):
                    wrong.append(f"{target.method} {target.path} {place} {str(value)[:20]!r}: {answer.text[:300]}")
    return wrong, tries


def is_right(answer: httpx.Response, value: Any, place: Place) -> bool:
    """Refused with the reason, or accepted; a NUL is accepted nowhere but in a payload, which is kept as it came."""
    if answer.status_code in (200, 201):
        return not (value in NUL and "payload" not in place) and value != "\ud800"
    expected = (400, 409, 422) if value == "\ud800" else (404, 409, 422)
    return answer.status_code in expected and answer.headers["content-type"] == PROBLEM and bool(answer.json()["code"])


async def every_stored_job_can_be_used(http: httpx.AsyncClient) -> None:
    cursor: dict[str, str] = {}
    while True:
        page = (await http.get("/v1/jobs", params={"limit": "500", **cursor})).json()
        for job in page["items"]:
            for path in (f"/v1/jobs/{job['id']}", f"/v1/jobs/{job['id']}/next"):
                answer = await http.get(path)
                assert answer.status_code == 200, (path, answer.text)
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert (await http.get("/v1/runs")).status_code == 200


@pytest.mark.slow
async def test_numbers_at_their_extremes(http: httpx.AsyncClient, app: FastAPI, targets: list[Target]) -> None:
    wrong, tries = await wrong_answers(http, app, targets, ("integer", "number"), NUMBERS)
    assert not wrong, "\n".join(wrong)
    assert tries > 1_000
    await every_stored_job_can_be_used(http)


@pytest.mark.slow
async def test_texts_at_their_extremes(http: httpx.AsyncClient, app: FastAPI, targets: list[Target]) -> None:
    wrong, tries = await wrong_answers(http, app, targets, ("string",), TEXTS)
    assert not wrong, "\n".join(wrong)
    assert tries > 1_000
    await every_stored_job_can_be_used(http)


@pytest.mark.slow
async def test_instants_at_the_ends_of_time(http: httpx.AsyncClient, app: FastAPI, targets: list[Target]) -> None:
    wrong, _ = await wrong_answers(http, app, targets, ("string",), INSTANTS)
    assert not wrong, "\n".join(wrong)
    await every_stored_job_can_be_used(http)


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("2099-01-01T00:00:00.000001Z", "instant_not_whole"),
        ("0001-01-01T00:00:00Z", "field_invalid"),
        ("9999-12-31T23:59:59-23:59", "field_invalid"),
        ("1970-01-01T00:00:00Z", "at_in_past"),
    ],
)
async def test_an_instant_that_cannot_be_planned_is_refused(http: httpx.AsyncClient, at: str, code: str) -> None:
    answer = await http.post("/v1/jobs", json=webhook_job(schedules=[{"at": at}]))
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (422, code, "schedules[0].at")


async def test_the_last_second_of_9999_can_be_planned(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"at": "9999-12-31T23:59:59Z"}])
    assert job["next_fire_at"] == "9999-12-31T23:59:59Z"
    assert (await http.get(f"/v1/jobs/{job['id']}/next")).json()["fires"] == ["9999-12-31T23:59:59Z"]


@pytest.mark.parametrize("parameter", ["limit", "count"])
@pytest.mark.parametrize("value", ["9223372036854775807", "9223372036854775808", "9" * 5_000, "-1", "1e3", "nan", "٣"])
async def test_numbers_in_queries_at_their_extremes(http: httpx.AsyncClient, parameter: str, value: str) -> None:
    path = "/v1/jobs" if parameter == "limit" else f"/v1/jobs/{(await created(http))['id']}/next"
    answer = await http.get(path, params={parameter: value})
    assert (answer.status_code, answer.json()["code"]) == (400, "query_invalid")
