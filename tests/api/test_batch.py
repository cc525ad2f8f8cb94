"""Many jobs in one call: each judged by itself, answered in order."""

from __future__ import annotations

import httpx
import pytest
from tests.api.bodies import Json, refused, webhook_job

PROBLEM_FIELDS = {"type", "title", "status", "code", "detail"}


async def post(http: httpx.AsyncClient, jobs: list[object], **headers: str) -> Json:
    answer = await http.post("/v1/jobs:batch", json={"jobs": jobs}, headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_thousand_jobs_are_created_in_order(http: httpx.AsyncClient) -> None:
    answer = await post(http, [webhook_job(key=f"job-{number}", name=f"Job {number}") for number in range(1_000)])
    assert (answer["created"], answer["refused"]) == (1_000, 0)
    assert [item["job"]["key"] for item in answer["items"]] == [f"job-{number}" for number in range(1_000)]
    assert len({item["job"]["id"] for item in answer["items"]}) == 1_000
    last = answer["items"][-1]["job"]
    shown = (await http.get(f"/v1/jobs/{last['id']}")).json()
    assert {name: shown[name] for name in last} == last


async def test_bad_ones_do_not_refuse_the_others(http: httpx.AsyncClient) -> None:
    jobs: list[object] = [
        webhook_job(key="a"),
        webhook_job(name=""),
        webhook_job(colour="red"),
        webhook_job(schedules=[{"cron": "61 * * * *"}]),
        webhook_job(target={"url": "https://example.com/", "secret": "nobody-made-it"}),
        webhook_job(key="a"),
        5,
        None,
        {},
        webhook_job(key="b"),
    ]
    answer = await post(http, jobs)
    assert (answer["created"], answer["refused"]) == (2, 8)
    codes = [item["error"]["code"] if "error" in item else item["job"]["key"] for item in answer["items"]]
    assert codes == [
        "a", "field_invalid", "unknown_field", "cron_invalid", "secret_unknown", "key_taken", "field_invalid",
        "field_invalid", "field_missing", "b",
    ]  # fmt: skip
    assert [item["status"] for item in answer["items"]] == [201, 422, 422, 422, 422, 409, 422, 422, 422, 201]
    for item in answer["items"]:
        assert ("job" in item) != ("error" in item)
        assert "error" not in item or item["error"].keys() >= PROBLEM_FIELDS


async def test_a_key_that_was_taken_in_an_earlier_part_of_the_batch_is_taken(http: httpx.AsyncClient) -> None:
    jobs = [webhook_job(key=f"k{number % 300}") for number in range(301)]
    answer = await post(http, list(jobs))
    assert (answer["created"], answer["items"][300]["error"]["code"]) == (300, "key_taken")


async def test_a_batch_is_repeated_under_its_key(http: httpx.AsyncClient) -> None:
    jobs: list[object] = [webhook_job(), webhook_job(name="")]
    first = await post(http, jobs, **{"idempotency-key": '"b1"'})
    assert await post(http, jobs, **{"idempotency-key": '"b1"'}) == first
    assert len((await http.get("/v1/jobs")).json()["items"]) == 1


@pytest.mark.parametrize("jobs", [[], None, {}, "x", [{}] * 10_001])
async def test_a_batch_has_one_to_ten_thousand_jobs(http: httpx.AsyncClient, jobs: object) -> None:
    problem = refused(await http.post("/v1/jobs:batch", json={"jobs": jobs}), 422, "field_invalid")
    assert problem["field"] == "jobs"


async def test_a_batch_may_be_larger_than_other_bodies(http: httpx.AsyncClient) -> None:
    large = webhook_job(target={"url": "https://example.com/", "body": "x" * 200_000})
    assert (await post(http, [large] * 10))["created"] == 10
    headers = {"content-type": "application/json"}
    answer = await http.post("/v1/jobs:batch", content=b" " * (16 * 1_048_576 + 1), headers=headers)
    refused(answer, 413, "body_too_large")
