"""Jobs that pause by themselves, over the API: the policy, the pause, and one call that resumes and replays."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, created, refused, triggered

ONCE: Json = {"max_attempts": 1}


async def failed_run(http: httpx.AsyncClient, job: Json) -> str:
    """The id of a run that has failed."""
    run = await triggered(http, job)
    (held,) = (await http.post("/v1/runs/claim", json={"worker": "w"})).json()["runs"]
    report = {"token": held["token"], "outcome": "refused", "started_at": held["granted_at"], "duration_us": 1}
    answer = await http.post(f"/v1/runs/{run['id']}/finish", json=report)
    assert answer.json()["state"] == "failed", answer.text
    return str(run["id"])


async def read(http: httpx.AsyncClient, path: str) -> Json:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_the_policy_reads_back_is_merged_and_is_turned_off_with_null(http: httpx.AsyncClient) -> None:
    job = await created(http)
    path = f"/v1/jobs/{job['id']}"
    assert job["auto_pause"] is None
    patches: list[tuple[Any, Any]] = [
        ({"failures": 10}, {"failures": 10, "failing_s": None}),
        ({"failing_s": 86_400}, {"failures": 10, "failing_s": 86_400}),
        ({"failures": None}, {"failures": None, "failing_s": 86_400}),
        (None, None),
    ]
    for patch, stands in patches:
        patched = await http.patch(path, json={"auto_pause": patch})
        assert patched.json()["auto_pause"] == stands
    assert (await read(http, path))["auto_pause"] is None


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({}, "auto_pause_invalid"),
        ({"failures": None}, "auto_pause_invalid"),
        ({"failures": 0}, "field_invalid"),
        ({"failing_s": 0}, "field_invalid"),
        ({"failing_s": "24h"}, "field_invalid"),
        ({"after": 3}, "unknown_field"),
        (3, "field_invalid"),
    ],
)
async def test_a_policy_that_says_nothing_or_nonsense_is_refused(
    http: httpx.AsyncClient, policy: object, code: str
) -> None:
    job = await created(http)
    refused(await http.patch(f"/v1/jobs/{job['id']}", json={"auto_pause": policy}), 422, code)


async def test_a_job_pauses_with_a_reason_and_one_call_resumes_it_and_brings_its_runs_back(
    http: httpx.AsyncClient,
) -> None:
    job = await created(http, retry=ONCE, auto_pause={"failures": 2})
    path = f"/v1/jobs/{job['id']}"
    runs = [await failed_run(http, job), await failed_run(http, job)]
    paused = await read(http, path)
    assert (paused["state"], paused["reason"], paused["paused_by"]) == (
        "paused",
        "auto_pause: 2 failed runs in a row",
        None,
    )
    answer = await http.post(f"{path}/resume", json={"replay": "failed"}, headers={"idempotency-key": '"one"'})
    assert answer.json()["replayed"] == {"count": 2, "left": 0}
    assert answer.json() | {"replayed": None} == await read(http, path) | {"replayed": None}
    assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
    for run in runs:
        assert (await read(http, f"/v1/runs/{run}"))["state"] == "pending"
    same = await http.post(f"{path}/resume", json={"replay": "failed"}, headers={"idempotency-key": '"one"'})
    assert same.json() == answer.json()
    again = await http.post(f"{path}/resume", json={"replay": "failed"})
    assert (again.status_code, again.json()["replayed"]) == (200, {"count": 0, "left": 0})


async def test_resume_without_replay_leaves_failed_runs_alone(http: httpx.AsyncClient) -> None:
    job = await created(http, retry=ONCE, auto_pause={"failures": 1})
    run = await failed_run(http, job)
    resumed = (await http.post(f"/v1/jobs/{job['id']}/resume", json={"replay": "none"})).json()
    assert resumed["state"] == "active"
    assert "replayed" not in resumed
    assert (await read(http, f"/v1/runs/{run}"))["state"] == "failed"
    refused(await http.post(f"/v1/jobs/{job['id']}/resume", json={"replay": "all"}), 422, "field_invalid")


async def test_jobs_that_a_filter_finds_are_resumed_with_what_failed(http: httpx.AsyncClient) -> None:
    jobs = [await created(http, retry=ONCE, auto_pause={"failures": 1}, tags=["a"]) for _ in range(3)]
    runs = [await failed_run(http, job) for job in jobs]
    body = {"filter": {"tag": "a", "state": "paused"}, "action": "resume", "arguments": {"replay": "failed"}}
    assert (await http.post("/v1/jobs:bulk", json=body)).json()["done"] == 3
    for run in runs:
        assert (await read(http, f"/v1/runs/{run}"))["state"] == "pending"
