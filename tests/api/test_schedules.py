"""Previews: what schedules will do, before anybody relies on them."""

from __future__ import annotations

import httpx
import pytest
from tests.api.bodies import Json, refused, with_schedule


async def test_preview_speaks_in_words_and_tells_of_the_clock(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/v1/schedules:preview",
        json={
            "schedules": [{"cron": "30 2 * * *"}, {"every": "6h", "anchor": "epoch"}],
            "timezone": "America/New_York",
            "after": "2027-03-13T12:00:00Z",
            "count": 3,
        },
    )
    preview = answer.json()
    assert answer.status_code == 200, answer.text
    assert preview["timezones"] == ["America/New_York"]
    assert preview["explain"][0]["text"] == "At 02:30 every day"
    assert preview["fires"][:2] == ["2027-03-13T18:00:00Z", "2027-03-14T00:00:00Z"]
    assert any("does not exist" in note for note in preview["notes"])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"schedules": []}, "field_invalid"),
        ({"schedules": [{"cron": "0 0 30 2 *"}]}, "never_fires"),
        ({"schedules": [{"cron": "0 0 * * *"}], "count": 0}, "field_invalid"),
        ({"schedules": [{"cron": "0 0 * * *"}], "after": "yesterday"}, "field_invalid"),
        (with_schedule(cron="0 0 * * *"), "unknown_field"),
    ],
)
async def test_a_preview_refuses_what_a_job_refuses(http: httpx.AsyncClient, body: Json, code: str) -> None:
    refused(await http.post("/v1/schedules:preview", json=body), 422, code)
