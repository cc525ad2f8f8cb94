"""Retry policies over the API: kept as they are written, refused where they make no sense, previewed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, created, refused, webhook_job

RULES = {"404": "retry", "409": "succeed", "5xx": "fail"}


@pytest.mark.parametrize(
    "retry",
    [
        {"backoff": "table", "table_s": [1, 30, 600], "statuses": RULES},
        {"backoff": "fixed", "initial_s": 10, "expires_before_next": True},
    ],
)
async def test_a_policy_reads_back_as_it_was_written(http: httpx.AsyncClient, retry: Json) -> None:
    job = await created(http, retry=retry)
    assert {name: job["retry"][name] for name in retry} == retry
    again = await http.patch(f"/v1/jobs/{job['id']}", json={"retry": job["retry"]})
    assert again.json()["version"] == 1


@pytest.mark.parametrize(
    ("retry", "code"),
    [
        ({"backoff": "table"}, "retry_invalid"),
        ({"table_s": [1]}, "retry_invalid"),
        ({"backoff": "table", "table_s": [-1]}, "field_invalid"),
        ({"backoff": "table", "table_s": [1] * 101}, "field_invalid"),
        ({"backoff": "random"}, "field_invalid"),
        ({"statuses": {"200": "fail"}}, "field_invalid"),
        ({"statuses": {"404": "perhaps"}}, "field_invalid"),
        ({"statuses": {"600": "fail"}}, "field_invalid"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused_by_jobs_and_preview(
    http: httpx.AsyncClient, retry: Json, code: str
) -> None:
    refused(await http.post("/v1/jobs", json=webhook_job(retry=retry)), 422, code)
    refused(await http.post("/v1/retries:preview", json={"retry": retry}), 422, code)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (
            {"retry": {"max_attempts": 3, "backoff": "fixed", "initial_s": 5}, "timeout_s": 10},
            {
                "attempts": [
                    {"attempt": 1, "earliest_s": 0, "latest_s": 0},
                    {"attempt": 2, "earliest_s": 5, "latest_s": 15},
                    {"attempt": 3, "earliest_s": 10, "latest_s": 30},
                ],
                "attempts_at_least": 3,
                "ends_with": "max_attempts",
            },
        ),
        (
            {"retry": {"max_attempts": 2}},
            {
                "attempts": [
                    {"attempt": 1, "earliest_s": 0, "latest_s": 0},
                    {"attempt": 2, "earliest_s": 0, "latest_s": 31},
                ],
                "attempts_at_least": 2,
                "ends_with": "max_attempts",
            },
        ),
    ],
)
async def test_the_ladder_is_previewed(http: httpx.AsyncClient, body: Json, answer: Any) -> None:
    previewed = await http.post("/v1/retries:preview", json=body)
    assert (previewed.status_code, previewed.json()) == (200, answer)
