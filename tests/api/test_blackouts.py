"""/v1/blackouts: written, read back the same, refused; and the hint of a run by hand."""

from __future__ import annotations

import httpx
import pytest
from tests.api.bodies import Json, created, refused, triggered

ONCE: Json = {"tag": None, "from": "2026-12-24T18:00:00Z", "until": "2026-12-27T06:00:00Z"}
RECURS: Json = {"tag": "db", "cron": "0 22 * * 5", "timezone": "Europe/Berlin", "duration": 28_800}


@pytest.mark.parametrize("rules", [ONCE, RECURS])
async def test_what_is_written_reads_back_and_written_again_changes_nothing(
    http: httpx.AsyncClient, rules: Json
) -> None:
    first = (await http.put("/v1/blackouts/b", json=rules)).json()
    read = await http.get("/v1/blackouts/b")
    assert read.json() == first
    assert {name: first[name] for name in rules} == rules
    assert read.headers["etag"] == '"1"'
    assert (await http.put("/v1/blackouts/b", json=rules)).json() == first
    assert (await http.get("/v1/blackouts")).json()["items"] == [first]
    assert (await http.delete("/v1/blackouts/b")).status_code == 204
    refused(await http.get("/v1/blackouts/b"), 404, "blackout_not_found")
    refused(await http.delete("/v1/blackouts/b"), 404, "blackout_not_found")


@pytest.mark.parametrize(
    ("rules", "code", "field"),
    [
        ({}, "blackout_invalid", None),
        ({"from": "2026-01-01T00:00:00Z"}, "blackout_invalid", None),
        ({"from": "2026-01-01T00:00:00", "until": "2026-01-02T00:00:00Z"}, "field_invalid", "from"),
        ({"from": "2026-02-30T00:00:00Z", "until": "2026-03-02T00:00:00Z"}, "field_invalid", "from"),
        ({"from": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "blackout_invalid", "until"),
        (ONCE | {"timezone": "UTC"}, "blackout_invalid", "timezone"),
        (ONCE | {"cron": "0 1 * * *", "duration": "1h"}, "blackout_invalid", None),
        ({"cron": "0 1 * * *"}, "blackout_invalid", "duration"),
        ({"cron": "0 1 * * *", "duration": "1s"}, "blackout_invalid", "duration"),
        ({"cron": "0 1 * * *", "duration": "soon"}, None, "duration"),
        ({"cron": "0 1 * * *", "duration": -5}, None, "duration"),
        ({"cron": "* * * * *", "duration": "1h"}, "blackout_invalid", "cron"),
        ({"cron": "60 * * * *", "duration": "1h"}, "cron_invalid", "cron"),
        ({"cron": "0 1 * * *", "duration": "1h", "timezone": "Mars"}, "timezone_unknown", "timezone"),
        (ONCE | {"tag": ""}, "field_invalid", "tag"),
        (ONCE | {"tags": ["db"]}, "unknown_field", "tags"),
    ],
)
async def test_bad_rules_are_refused_by_field(
    http: httpx.AsyncClient, rules: Json, code: str | None, field: str | None
) -> None:
    answer = await http.put("/v1/blackouts/b", json=rules)
    problem = refused(answer, 422, answer.json()["code"] if code is None else code)
    assert problem.get("field") == field
    assert (await http.get("/v1/blackouts")).json()["items"] == []


async def test_a_run_by_hand_tells_of_the_blackout_that_lasts(http: httpx.AsyncClient) -> None:
    job = await created(http, tags=["db"])
    assert "hint" not in await triggered(http, job)
    always = {"from": "2020-01-01T00:00:00Z", "until": "2200-01-01T00:00:00Z"}
    await http.put("/v1/blackouts/b", json=always | {"tag": "web"})
    assert "hint" not in await triggered(http, job)
    await http.put("/v1/blackouts/b", json=always | {"tag": "db"})
    assert "'b'" in (await triggered(http, job))["hint"]
