"""Request bodies in one line, and what several test files ask of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from onbeat.api.context import ApiContext

BASE_URL = "http://127.0.0.1:8623"
PROBLEM = "application/problem+json"

Json = dict[str, Any]
ContextMaker = Callable[..., ApiContext]


def webhook_job(**fields: Any) -> Json:
    """A job that calls a webhook every night; `fields` replace or add."""
    return {
        "name": "Nightly report",
        "schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Kyiv"}],
        "target": {"url": "https://example.com/hook"},
    } | fields


def queue_job(**fields: Any) -> Json:
    """A job whose runs are claimed from the queue `mail`."""
    return webhook_job(target={"queue": "mail"}) | fields


def with_target(**target: Any) -> Json:
    """A job with this in its webhook."""
    return webhook_job(target={"url": "https://example.com/hook"} | target)


def with_schedule(**schedule: Any) -> Json:
    """A job with this one schedule."""
    return webhook_job(schedules=[schedule])


async def created(http: httpx.AsyncClient, **fields: Any) -> Json:
    """A saved webhook job."""
    answer = await http.post("/v1/jobs", json=webhook_job(**fields))
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def triggered(http: httpx.AsyncClient, job: Json, **body: Any) -> Json:
    """A run made by hand."""
    answer = await http.post(f"/v1/jobs/{job['id']}/trigger", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def claimed(http: httpx.AsyncClient, **body: Any) -> list[Json]:
    """What a worker gets."""
    answer = await http.post("/v1/runs/claim", json={"worker": "w1", "limit": 10} | body)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["runs"])


def outcome(run: Json, kind: str = "succeeded", **fields: Any) -> Json:
    """A worker's report about a claimed run, for the batch call."""
    return {
        "run_id": run["run_id"],
        "token": run["token"],
        "outcome": kind,
        "started_at": run["granted_at"],
        "duration_us": 1_500,
    } | fields


def refused(answer: httpx.Response, status: int, code: str) -> Json:
    """The problem, after checking that it is one."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    problem: Json = answer.json()
    assert (problem["code"], problem["status"]) == (code, status), problem
    assert problem["title"]
    assert problem["detail"]
    assert problem["type"].endswith(code)
    return problem
