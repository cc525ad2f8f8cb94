"""Time rules over the API: what is written reads back, what has no meaning is refused, the preview explains."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import created, refused, triggered, with_schedule

LAST_FRIDAY = {
    "rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
    "dtstart": "2027-01-01T00:00:00",
    "timezone": "Europe/Kyiv",
}
NEW_YORK = {"cron": "30 2 * * *", "timezone": "America/New_York"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({**NEW_YORK, "dst_gap": "skip", "dst_overlap": "second"}, None),
        ({**NEW_YORK, "start_at": "2100-01-01T00:00:00Z", "end_at": "2101-01-01T00:00:00.500000Z"}, None),
        ({**NEW_YORK, "start_at": "2100-01-01T00:00"}, {**NEW_YORK, "start_at": "2100-01-01T05:00:00Z"}),
        (
            {"every": "1h", "start_at": "2100-01-01T00:30:00Z"},
            {"every": 3600, "anchor": "2100-01-01T00:30:00Z", "start_at": "2100-01-01T00:30:00Z"},
        ),
        ({**NEW_YORK, "max_fires": 3}, None),
        ({"every_after_finish": 300}, None),
        (
            {"every_after_finish": "5m", "end_at": "2100-01-01T00:00:00Z"},
            {"every_after_finish": 300, "end_at": "2100-01-01T00:00:00Z"},
        ),
        ({"at": "2100-01-01T00:00:00Z", "end_at": "2100-01-01T00:00:00Z"}, None),
        (LAST_FRIDAY, None),
        ({**LAST_FRIDAY, "start_at": "2100-01-01T00:00:00Z", "max_fires": 3}, None),
        ({**LAST_FRIDAY, "dtstart": "2027-01-01T06:30:00.5Z"}, {**LAST_FRIDAY, "dtstart": "2027-01-01T08:30:01"}),
        ({**LAST_FRIDAY, "dtstart": "2027-07-01T08:30"}, {**LAST_FRIDAY, "dtstart": "2027-07-01T08:30:00"}),
        (
            {"rrule": "FREQ=DAILY", "dtstart": "2027-01-01 08:30"},
            {"rrule": "FREQ=DAILY", "dtstart": "2027-01-01T08:30:00", "timezone": "UTC"},
        ),
    ],
)
async def test_rules_read_back_and_put_of_what_was_read_changes_nothing(
    http: httpx.AsyncClient, written: dict[str, Any], read: dict[str, Any] | None
) -> None:
    job = await created(http, key="k", schedules=[written])
    assert job["schedules"] == [read or written]
    fields = ("name", "schedules", "target")
    again = (await http.put("/v1/jobs/by-key/k", json={name: job[name] for name in fields})).json()
    assert (again["version"], again["next_fire_at"]) == (1, job["next_fire_at"])


@pytest.mark.parametrize(
    ("schedule", "code", "field"),
    [
        ({"every": 60, "dst_gap": "skip"}, "schedule_invalid", "schedules[0].dst_gap"),
        ({"at": "2100-01-01T00:00:00Z", "dst_overlap": "both"}, "schedule_invalid", "schedules[0].dst_overlap"),
        ({**NEW_YORK, "dst_gap": "first"}, "field_invalid", "schedules[0].dst_gap"),
        ({**NEW_YORK, "end_at": "2001-01-01T00:00:00Z"}, "never_fires", "schedules[0]"),
        ({"at": "2100-01-01T00:00:00Z", "max_fires": 1}, "schedule_invalid", "schedules[0].max_fires"),
        ({"every_after_finish": "5m", "max_fires": 2}, "schedule_invalid", "schedules[0].max_fires"),
        ({"every_after_finish": 0}, "field_invalid", "schedules[0].every_after_finish"),
        ({**NEW_YORK, "max_fires": 0}, "field_invalid", "schedules[0].max_fires"),
        (
            {"every": 60, "start_at": "2100-01-02T00:00:00Z", "end_at": "2100-01-01T00:00:00Z"},
            "schedule_invalid",
            "schedules[0].end_at",
        ),
        ({"every": 60, "start_at": "2100-01-01T00:00:00"}, "field_invalid", "schedules[0].start_at"),
        ({"cron": "@daily", "timezone": "Mars/Base", "start_at": "2100-01-01T00:00"}, "timezone_unknown", None),
        ({"rrule": "FREQ=DAILY"}, "schedule_invalid", "schedules[0].dtstart"),
        ({"every": 60, "dtstart": "2100-01-01T00:00"}, "schedule_invalid", "schedules[0].dtstart"),
        ({**LAST_FRIDAY, "dtstart": "soon"}, "field_invalid", "schedules[0].dtstart"),
        ({**LAST_FRIDAY, "dtstart": "9999-12-31T23:59:59Z"}, "schedule_invalid", "schedules[0].dtstart"),
        ({**LAST_FRIDAY, "timezone": "Mars/Base"}, "timezone_unknown", None),
        ({**LAST_FRIDAY, "timezone": "Mars/Base", "dtstart": "2100-01-01T00:00:00Z"}, "timezone_unknown", None),
        ({**LAST_FRIDAY, "rrule": "FREQ=HOURLY"}, "rrule_invalid", "schedules[0].rrule"),
        ({**LAST_FRIDAY, "rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "never_fires", "schedules[0]"),
        ({**LAST_FRIDAY, "dst_gap": "skip"}, "schedule_invalid", "schedules[0].dst_gap"),
        ({**LAST_FRIDAY, "cron": "@daily"}, "schedule_invalid", "schedules[0]"),
    ],
)
async def test_rule_without_a_meaning_is_refused(
    http: httpx.AsyncClient, schedule: dict[str, Any], code: str, field: str | None
) -> None:
    problem = refused(await http.post("/v1/jobs", json=with_schedule(**schedule)), 422, code)
    assert problem["field"] == (field or "schedules[0].timezone")


async def test_runs_show_the_planned_and_the_moved_start(http: httpx.AsyncClient) -> None:
    job = await created(http, spread_s=600, jitter_s=60)
    assert (job["spread_s"], job["jitter_s"]) == (600, 60)
    run = await triggered(http, job)
    assert run["starts_at"] == run["scheduled_at"]  # by hand: not moved
    refused(await http.patch(f"/v1/jobs/{job['id']}", json={"jitter_s": -1}), 422, "field_invalid")


async def test_preview_of_a_rule_that_follows_runs_tells_the_next_instant_only(http: httpx.AsyncClient) -> None:
    body = {"schedules": [{"every_after_finish": "5m"}], "after": "2025-03-09T12:00:00.5Z", "count": 3}
    shown = (await http.post("/v1/schedules:preview", json=body)).json()
    assert shown["fires"] == ["2025-03-09T12:05:01Z"]
    assert shown["explain"][0]["text"] == "5m after each run has ended"


async def test_preview_counts_a_limit_from_where_it_begins(http: httpx.AsyncClient) -> None:
    body = {"schedules": [{"cron": "@daily", "max_fires": 2}], "after": "2025-03-09T12:00:00Z"}
    shown = (await http.post("/v1/schedules:preview", json=body)).json()
    assert shown["fires"] == ["2025-03-10T00:00:00Z", "2025-03-11T00:00:00Z"]
    assert next(item["at"] for item in shown["removed"]) == "2025-03-12T00:00:00Z"


async def test_preview_tells_what_was_removed_and_moved(http: httpx.AsyncClient) -> None:
    body = {
        "schedules": [{**NEW_YORK, "dst_gap": "skip"}, NEW_YORK | {"end_at": "2025-03-10T00:00:00Z"}],
        "after": "2025-03-09T00:00:00Z",
        "count": 2,
    }
    shown = (await http.post("/v1/schedules:preview", json=body)).json()
    assert shown["fires"] == ["2025-03-09T07:00:00Z", "2025-03-10T06:30:00Z"]
    removed = [(item["schedule"], item["at"], item["moved_to"]) for item in shown["removed"]]
    assert removed == [(0, None, None), (1, None, "2025-03-09T07:00:00Z"), (1, "2025-03-10T06:30:00Z", None)]


async def test_preview_of_a_recurrence_tells_its_instants_and_what_calendars_do(
    http: httpx.AsyncClient,
) -> None:
    body = {"schedules": [LAST_FRIDAY], "after": "2027-02-01T00:00:00Z", "count": 3}
    shown = (await http.post("/v1/schedules:preview", json=body)).json()
    # The clock goes forward on 28 March.
    assert shown["fires"] == ["2027-02-26T07:00:00Z", "2027-03-26T07:00:00Z", "2027-04-30T06:00:00Z"]
    assert shown["explain"][0]["text"].startswith("By the rule FREQ=MONTHLY;BYDAY=-1FR")
    calendar = {"dates": ["2027-03-26"]}
    assert (await http.put("/v1/calendars/closed", json=calendar)).status_code in (200, 201)
    body["schedules"] = [{**LAST_FRIDAY, "exclude": ["closed"], "roll": "previous_business_day"}]
    shown = (await http.post("/v1/schedules:preview", json=body)).json()
    assert shown["fires"][1] == "2027-03-25T07:00:00Z"
