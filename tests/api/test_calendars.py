"""/v1/calendars: written, read back the same, imported, refused; and schedules that name them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, created, refused, webhook_job

WHOLE: Json = {
    "timezone": "Europe/Berlin",
    "dates": ["2027-12-25", {"from": "2027-12-24", "until": "2028-01-01"}],
    "weekdays": ["sun", "sat"],
    "cron": ["* * L * *"],
    "holidays": [{"country": "DE", "subdivision": "BE"}, {"country": "US", "subdivision": None}],
}
XMAS = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:x\r\nDTSTART;VALUE=DATE:20271225\r\n{}END:VEVENT\r\nEND:VCALENDAR\r\n"


async def put(http: httpx.AsyncClient, name: str = "c", **rules: Any) -> Json:
    answer = await http.put(f"/v1/calendars/{name}", json=rules or {"weekdays": ["sat", "sun"]})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def behind(*names: str, **more: Any) -> Json:
    return {"cron": "0 9 * * *", "timezone": "Europe/Berlin", "exclude": list(names)} | more


async def test_what_is_written_reads_back_and_written_again_changes_nothing(http: httpx.AsyncClient) -> None:
    first = await put(http, **WHOLE)
    assert first["weekdays"] == ["sun", "sat"]
    assert first["version"] == 1
    read = await http.get("/v1/calendars/c")
    assert read.json() == first
    assert read.headers["etag"] == '"1"'
    rules = {name: read.json()[name] for name in WHOLE}
    assert rules == WHOLE
    assert await put(http, **rules) == first
    assert (await put(http, weekdays=["mon"]))["version"] == 2
    listed = (await http.get("/v1/calendars")).json()["items"]
    assert [(item["name"], item["version"]) for item in listed] == [("c", 2)]


@pytest.mark.parametrize(
    ("rules", "code", "field"),
    [
        ({}, "calendar_invalid", None),
        ({"dates": ["2026-02-30"]}, "calendar_invalid", "dates[0]"),
        ({"dates": ["2026-01-01", "2026-13-01"]}, "calendar_invalid", "dates[1]"),
        ({"dates": ["20260101"]}, "calendar_invalid", "dates[0]"),
        ({"dates": ["2026-W01-1"]}, "calendar_invalid", "dates[0]"),
        ({"dates": ["2026-01-01T00:00:00Z"]}, "calendar_invalid", "dates[0]"),
        ({"dates": ["0000-01-01"]}, "calendar_invalid", "dates[0]"),
        ({"dates": [""]}, "calendar_invalid", "dates[0]"),
        ({"dates": ["２０２６-01-01"]}, "calendar_invalid", "dates[0]"),
        ({"dates": [{"from": "2026-01-02", "until": "2026-01-01"}]}, "calendar_invalid", "dates[0]"),
        ({"dates": [{"from": "2026-01-02", "until": "never"}]}, "calendar_invalid", "dates[0].until"),
        ({"dates": [{"from": "2026-01-02"}]}, "field_invalid", None),
        ({"dates": [20260101]}, "field_invalid", None),
        ({"dates": "2026-01-01"}, "field_invalid", None),
        ({"weekdays": ["sunday"]}, "field_invalid", None),
        ({"weekdays": [0]}, "field_invalid", None),
        ({"cron": ["0 9 * * 1"]}, "calendar_invalid", "cron[0]"),
        ({"cron": ["* * 30 2 *"]}, "never_fires", "cron[0]"),
        ({"cron": ["x"]}, "cron_invalid", "cron[0]"),
        ({"holidays": [{"country": "Atlantis"}]}, "country_unknown", "holidays[0].country"),
        ({"holidays": [{"country": "DE", "subdivision": "Mars"}]}, "country_unknown", "holidays[0].subdivision"),
        ({"holidays": ["DE"]}, "field_invalid", None),
        ({"weekdays": ["mon"], "timezone": "Mars/Base"}, "timezone_unknown", "timezone"),
        ({"weekdays": ["mon"], "calendars": ["c"]}, "unknown_field", "calendars"),
        ({"weekdays": ["mon"], "name": "c"}, "unknown_field", "name"),
    ],
)
async def test_bad_rules_are_refused_by_field(
    http: httpx.AsyncClient, rules: Json, code: str, field: str | None
) -> None:
    problem = refused(await http.put("/v1/calendars/c", json=rules), 422, code)
    if field is not None:
        assert problem["field"] == field
    refused(await http.get("/v1/calendars/c"), 404, "calendar_not_found")


@pytest.mark.parametrize("name", ["A", "a b", "-a", "a" * 129, "%2e%2e", "a%2Fb", "ü"])
async def test_names_are_slugs(http: httpx.AsyncClient, name: str) -> None:
    answer = await http.put(f"/v1/calendars/{name}", json={"weekdays": ["sat"]})
    assert answer.status_code in (404, 405, 422)
    assert (await http.get("/v1/calendars")).json()["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({}, 422, "field_missing", "ics"),
        ({"ics": ""}, 422, "field_invalid", "ics"),
        ({"ics": "hello"}, 422, "ics_invalid", "ics"),
        ({"ics": "BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n"}, 422, "ics_invalid", "ics"),
        ({"ics": XMAS.format("RRULE:FREQ=YEARLY\r\n")}, 422, "ics_invalid", "until"),
        ({"ics": XMAS.format(""), "until": "2026-02-30"}, 422, "calendar_invalid", "until"),
        ({"ics": XMAS.format(""), "url": "https://example.com/x.ics"}, 422, "unknown_field", "url"),
        ({"ics": "X" * 1_000_001}, 422, "ics_invalid", "ics"),
        ({"ics": "X" * 10_000_000}, 413, "body_too_large", None),
    ],
)
async def test_bad_imports_are_refused(
    http: httpx.AsyncClient, body: Json, status: int, code: str, field: str | None
) -> None:
    problem = refused(await http.post("/v1/calendars/c/import", json=body), status, code)
    assert problem.get("field") == field
    refused(await http.get("/v1/calendars/c"), 404, "calendar_not_found")


async def test_import_answers_what_it_found(http: httpx.AsyncClient) -> None:
    body = {"ics": XMAS.format("RRULE:FREQ=YEARLY\r\n"), "until": "2028-12-31"}
    answer = (await http.post("/v1/calendars/c/import", json=body)).json()
    assert answer["dates"] == ["2027-12-25", "2028-12-25"]
    assert (answer["events"], answer["ignored"]) == (1, 0)


async def test_a_job_behind_calendars_reads_back_as_it_was_written(http: httpx.AsyncClient) -> None:
    await put(http)
    schedules = [
        behind("c", only=[], roll="next_business_day"),
        {"every": 3600, "anchor": "1970-01-01T00:00:00Z", "exclude": [], "only": ["c"], "roll": "skip"},
    ]
    job = await created(http, key="k", schedules=schedules)
    assert job["schedules"] == schedules
    again = await http.put("/v1/jobs/by-key/k", json=webhook_job(key="k", schedules=job["schedules"]))
    assert again.json() == job


@pytest.mark.parametrize(
    ("schedule", "code", "field"),
    [
        (behind("nowhere"), "calendar_unknown", "schedules[0].exclude"),
        (behind(only=["nowhere"]), "calendar_unknown", "schedules[0].only"),
        (behind("c", only=["c"]), "never_fires", "schedules[0]"),
        (behind(roll="next_business_day"), "schedule_invalid", "schedules[0].roll"),
        (behind("c", roll="somewhen"), "field_invalid", "schedules[0].roll"),
        (behind("C"), "field_invalid", "schedules[0].exclude[0]"),
        (behind(*[f"c{number}" for number in range(17)]), "field_invalid", "schedules[0].exclude"),
    ],
)
async def test_schedules_with_bad_calendars_are_refused(
    http: httpx.AsyncClient, schedule: Json, code: str, field: str
) -> None:
    await put(http)
    answer = await http.post("/v1/jobs", json=webhook_job(schedules=[schedule]))
    assert refused(answer, 422, code)["field"] == field


async def test_calendar_in_use_is_not_deleted(http: httpx.AsyncClient) -> None:
    await put(http)
    job = await created(http, schedules=[behind("c")])
    refused(await http.delete("/v1/calendars/c"), 409, "calendar_in_use")
    await http.delete(f"/v1/jobs/{job['id']}")
    assert (await http.delete("/v1/calendars/c")).status_code == 204
    refused(await http.delete("/v1/calendars/c"), 404, "calendar_not_found")


async def test_preview_and_next_tell_what_was_moved_and_by_whom(http: httpx.AsyncClient) -> None:
    await put(http)
    schedule = {"cron": "0 9 1 * *", "exclude": ["c"], "roll": "next_business_day"}
    asked = {"schedules": [schedule], "after": "2026-07-15T00:00:00Z", "count": 1}
    shown = (await http.post("/v1/schedules:preview", json=asked)).json()
    assert shown["fires"] == ["2026-08-03T09:00:00Z"]
    assert shown["kept_out"] == [
        {
            "at": "2026-08-01T09:00:00Z",
            "until": "2026-08-01T09:00:00Z",
            "count": 1,
            "calendar": "c",
            "moved_to": "2026-08-03T09:00:00Z",
        }
    ]
    job = await created(http, schedules=[schedule])
    path = f"/v1/jobs/{job['id']}/next"
    plain = (await http.get(path, params={"count": 20})).json()
    assert "kept_out" not in plain
    told = (await http.get(path, params={"count": 20, "explain": "true"})).json()
    assert told["fires"] == plain["fires"]
    assert {found["calendar"] for found in told["kept_out"]} == {"c"}
    assert all(found["moved_to"] in told["fires"] for found in told["kept_out"])
