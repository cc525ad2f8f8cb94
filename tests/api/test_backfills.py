"""/v1/jobs/{id}/backfill and …/backfills."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import created, refused

from onbeat.app.services import Services

DAY = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}


async def hourly(http: httpx.AsyncClient) -> str:
    return str((await created(http, schedules=[{"cron": "0 * * * *"}]))["id"])


async def test_a_dry_run_tells_what_it_would_do_and_does_nothing(http: httpx.AsyncClient) -> None:
    job = await hourly(http)
    answer = await http.post(f"/v1/jobs/{job}/backfill", json=DAY | {"dry_run": True, "max": 20})
    assert answer.status_code == 200
    assert answer.json() == {
        "instants": 24, "with_runs": 0, "in_marks": 0, "unaccountable": 0, "blacked_out": 0, "to_create": 20,
    }  # fmt: skip
    assert (await http.get(f"/v1/jobs/{job}/backfills")).json() == {"items": []}


async def test_a_backfill_is_found_where_its_answer_says_and_tells_how_far_it_is(
    http: httpx.AsyncClient, services: Services
) -> None:
    job = await hourly(http)
    answer = await http.post(f"/v1/jobs/{job}/backfill", json=DAY | {"order": "newest", "rate_per_s": 50, "max": 3})
    assert answer.status_code == 202
    begun = answer.json()
    assert begun | {"created_at": ""} == {
        "job_id": job, "number": 1, "state": "running", "reason": None, **DAY, "order": "newest", "rate_per_s": 50,
        "max": 3, "instants": 24, "looked_at": 0, "created": 0, "created_at": "", "ended_at": None,
    }  # fmt: skip
    place = answer.headers["location"]
    assert (await http.get(place)).json() == begun
    refused(await http.post(f"/v1/jobs/{job}/backfill", json=DAY), 409, "state_conflict")
    await services.backfills.advance()
    done = (await http.get(place)).json()
    assert (done["state"], done["created"], done["looked_at"]) == ("done", 3, 3)
    assert (await http.get(f"/v1/jobs/{job}/backfills")).json() == {"items": [done]}
    runs = (await http.get("/v1/runs", params={"job": job})).json()["items"]
    assert [(run["trigger"], run["scheduled_at"]) for run in runs] == [
        ("backfill", f"2026-01-01T{hour}:00:00Z") for hour in (23, 22, 21)
    ]


async def test_a_backfill_can_be_cancelled(http: httpx.AsyncClient, services: Services) -> None:
    job = await hourly(http)
    await http.post(f"/v1/jobs/{job}/backfill", json=DAY)
    assert (await http.delete(f"/v1/jobs/{job}/backfills/1")).status_code == 204
    assert await services.backfills.advance() is None
    assert (await http.get(f"/v1/jobs/{job}/backfills/1")).json()["state"] == "cancelled"
    assert (await http.delete(f"/v1/jobs/{job}/backfills/1")).status_code == 204
    refused(await http.get(f"/v1/jobs/{job}/backfills/2"), 404, "backfill_not_found")
    refused(await http.delete(f"/v1/jobs/{job}/backfills/2"), 404, "backfill_not_found")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"to": "2026-01-01T00:00:00Z"}, "from"),
        ({"to": "2025-12-31T00:00:00Z"}, "from"),
        ({"to": "2999-01-01T00:00:00Z"}, "to"),
        ({"from": "2026-01-01"}, "from"),
        ({"to": "2026-01-02T00:00:00"}, "to"),
        ({"rate_per_s": 0}, "rate_per_s"),
        ({"rate_per_s": 51}, "rate_per_s"),
        ({"max": 0}, "max"),
        ({"max": 100_001}, "max"),
        ({"order": "random"}, "order"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_bad_requests_are_refused_and_name_the_field(
    http: httpx.AsyncClient, changes: dict[str, Any], field: str, dry_run: bool
) -> None:
    job = await hourly(http)
    answer = await http.post(f"/v1/jobs/{job}/backfill", json=DAY | {"dry_run": dry_run} | changes)
    assert refused(answer, 422, "field_invalid")["field"] == field


@pytest.mark.parametrize("schedule", [{"every": 1, "anchor": "1970-01-01T00:00:00Z"}, {"cron": "* * * * * *"}])
async def test_a_range_of_a_billion_instants_is_counted_and_refused(
    http: httpx.AsyncClient, schedule: dict[str, Any]
) -> None:
    job = (await created(http, schedules=[schedule]))["id"]
    asked = {"from": "1990-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z", "dry_run": True}
    refusal = refused(await http.post(f"/v1/jobs/{job}/backfill", json=asked), 422, "field_invalid")
    assert (refusal["field"], refusal["detail"].split()[0]) == ("from", "1136073600")


async def test_jobs_that_are_paused_or_gone_are_refused(http: httpx.AsyncClient) -> None:
    job = await hourly(http)
    await http.post(f"/v1/jobs/{job}/pause")
    refused(await http.post(f"/v1/jobs/{job}/backfill", json=DAY), 409, "state_conflict")
    await http.delete(f"/v1/jobs/{job}")
    refused(await http.post(f"/v1/jobs/{job}/backfill", json=DAY), 404, "job_not_found")
    refused(await http.get(f"/v1/jobs/{job}/backfills"), 404, "job_not_found")
