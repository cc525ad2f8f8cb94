"""Jobs over the API: what is written reads back, changes are guarded by versions, and no change moves an instant."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, created, refused, webhook_job

WRITABLE = (
    "key", "name", "tags", "schedules", "target", "grace_s", "misfire", "overlap", "max_running", "retry", "timeout_s",
    "max_run_time_s", "delivery", "spread_s", "jitter_s",
)  # fmt: skip


def writable(job: Json) -> Json:
    return {field: job[field] for field in WRITABLE}


async def test_create_answers_location_etag_and_the_next_instant(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/jobs", json=webhook_job(key="nightly", tags=["a", "b"]))
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["etag"] == '"1"'
    assert (job["key"], job["tags"], job["state"], job["version"]) == ("nightly", ["a", "b"], "active", 1)
    assert job["next_fire_at"].endswith("00:00:00Z") or job["next_fire_at"].endswith("01:00:00Z")
    assert (await http.get(answer.headers["location"])).json() == job


async def test_defaults_are_the_documented_ones(http: httpx.AsyncClient) -> None:
    job = await created(http)
    assert {field: job[field] for field in WRITABLE[5:]} == {
        "grace_s": 30,
        "misfire": {"policy": "skip", "max": 3, "window_s": 86_400, "spacing_s": 1},
        "overlap": "queue",
        "max_running": 1,
        "retry": {
            "max_attempts": 5,
            "backoff": "exponential",
            "initial_s": 1.0,
            "factor": 4.0,
            "cap_s": 3_600,
            "table_s": [],
            "max_age_s": 86_400,
            "statuses": {},
            "expires_before_next": False,
        },
        "timeout_s": 30.0,
        "max_run_time_s": 86_400,
        "delivery": "at_least_once",
        "spread_s": 0,
        "jitter_s": 0,
    }


async def test_allow_has_a_hundred_lanes_unless_told_otherwise(http: httpx.AsyncClient) -> None:
    assert (await created(http, overlap="allow"))["max_running"] == 100
    assert (await created(http, overlap="allow", max_running=7))["max_running"] == 7


@pytest.mark.parametrize(
    "fields",
    [
        {"schedules": [{"cron": "*/5 * * * *", "timezone": "Asia/Calcutta"}]},
        {"schedules": [{"cron": "0 3 * * *"}], "timezone": "US/Eastern"},
        {"schedules": [{"every": 300}]},
        {"schedules": [{"every": "1h30m", "anchor": "epoch"}]},
        {"schedules": [{"every": "PT5M", "anchor": "2026-01-01T00:00:07Z"}, {"at": "2099-01-01T09:00:00+02:00"}]},
        {"schedules": [{"at": "2099-01-01T09:00:00", "timezone": "Europe/Kyiv"}]},
        {"target": {"url": "https://example.com/x", "method": "PUT", "headers": {"X-A": "b"}, "body": "plain"}},
        {"target": {"url": "https://example.com/x", "payload": {"a": [1, 2.5, None, "\u0000", 10**30]}}},
        {"target": {"queue": "mail", "payload": "text"}},
        {"overlap": "allow", "retry": {"max_attempts": 1}, "misfire": {"policy": "catch_up", "max": 2}},
    ],
)
async def test_what_is_read_can_be_put_back_and_changes_nothing(http: httpx.AsyncClient, fields: Json) -> None:
    before = await created(http, key="k", **fields)
    answer = await http.put("/v1/jobs/by-key/k", json=writable(before))
    assert answer.status_code == 200, answer.text
    assert writable(answer.json()) == writable(before)
    assert (answer.json()["next_fire_at"], answer.json()["version"]) == (before["next_fire_at"], before["version"])


async def test_a_zone_is_kept_as_it_was_posted(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"cron": "0 3 * * *", "timezone": "Asia/Calcutta"}])
    assert job["schedules"] == [{"cron": "0 3 * * *", "timezone": "Asia/Calcutta"}]


async def test_lengths_of_intervals_are_answered_as_whole_seconds(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"every": "1h30m", "anchor": "epoch"}])
    assert job["schedules"] == [{"every": 5_400, "anchor": "1970-01-01T00:00:00Z"}]


# ---------------------------------------------------------------- by key


async def test_put_creates_and_then_changes_the_job_with_that_key(http: httpx.AsyncClient) -> None:
    first = await http.put("/v1/jobs/by-key/nightly", json=webhook_job())
    second = await http.put("/v1/jobs/by-key/nightly", json=webhook_job(name="Renamed", key="nightly"))
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.headers["location"] == f"/v1/jobs/{first.json()['id']}"
    assert second.json()["id"] == first.json()["id"]
    assert (second.json()["name"], second.json()["version"]) == ("Renamed", 2)
    assert (await http.get("/v1/jobs/by-key/nightly")).json() == second.json()


async def test_put_resets_what_the_body_leaves_out(http: httpx.AsyncClient) -> None:
    await http.put("/v1/jobs/by-key/k", json=webhook_job(tags=["a"], grace_s=5))
    job = (await http.put("/v1/jobs/by-key/k", json=webhook_job())).json()
    assert (job["tags"], job["grace_s"]) == ([], 30)


async def test_put_of_the_same_body_raises_no_version(http: httpx.AsyncClient) -> None:
    body = webhook_job(schedules=[{"every": "1h"}])
    first = (await http.put("/v1/jobs/by-key/k", json=body)).json()
    again = (await http.put("/v1/jobs/by-key/k", json=body)).json()
    assert again == first


async def test_two_puts_at_once_make_one_job(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(http.put("/v1/jobs/by-key/k", json=webhook_job()) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


async def test_put_with_another_key_in_the_body_is_refused(http: httpx.AsyncClient) -> None:
    problem = refused(await http.put("/v1/jobs/by-key/k", json=webhook_job(key="l")), 422, "field_invalid")
    assert problem["field"] == "key"


async def test_a_taken_key_is_a_conflict(http: httpx.AsyncClient) -> None:
    await created(http, key="k")
    other = await created(http, key="l")
    refused(await http.post("/v1/jobs", json=webhook_job(key="k")), 409, "key_taken")
    refused(await http.patch(f"/v1/jobs/{other['id']}", json={"key": "k"}), 409, "key_taken")


async def test_a_deleted_job_frees_its_key_and_is_gone(http: httpx.AsyncClient) -> None:
    job = await created(http, key="k")
    assert (await http.delete(f"/v1/jobs/{job['id']}")).status_code == 204
    refused(await http.delete(f"/v1/jobs/{job['id']}"), 404, "job_not_found")
    refused(await http.get("/v1/jobs/by-key/k"), 404, "job_not_found")
    assert (await http.get("/v1/jobs")).json()["items"] == []
    assert (await created(http, key="k"))["id"] != job["id"]


# ---------------------------------------------------------------- patch


async def test_patch_changes_what_it_names_and_leaves_the_clock_alone(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"every": "7m"}], tags=["a"])
    changed = (await http.patch(f"/v1/jobs/{job['id']}", json={"name": "New", "grace_s": 60})).json()
    assert (changed["name"], changed["grace_s"], changed["tags"]) == ("New", 60, ["a"])
    assert (changed["version"], changed["next_fire_at"]) == (2, job["next_fire_at"])
    assert changed["schedules"] == job["schedules"]


async def test_patch_merges_objects_replaces_lists_and_null_is_the_default(http: httpx.AsyncClient) -> None:
    job = await created(http, tags=["a"], retry={"max_attempts": 2, "cap_s": 10}, grace_s=5)
    patch = {"target": {"method": "PUT"}, "retry": {"cap_s": 20}, "tags": ["b"], "grace_s": None}
    changed = (await http.patch(f"/v1/jobs/{job['id']}", json=patch)).json()
    assert changed["target"] | {"method": "PUT", "url": "https://example.com/hook"} == changed["target"]
    assert (changed["retry"]["max_attempts"], changed["retry"]["cap_s"]) == (2, 20)
    assert (changed["tags"], changed["grace_s"]) == (["b"], 30)


async def test_patch_with_a_target_of_the_other_kind_replaces_the_target(http: httpx.AsyncClient) -> None:
    job = await created(http, target={"url": "https://example.com/x", "headers": {"X-A": "b"}})
    queued = (await http.patch(f"/v1/jobs/{job['id']}", json={"target": {"queue": "mail"}})).json()
    assert queued["target"] == {"queue": "mail"}
    back = (await http.patch(f"/v1/jobs/{job['id']}", json={"target": {"url": "https://example.com/y"}})).json()
    assert (back["target"]["url"], back["target"]["headers"]) == ("https://example.com/y", {})


async def test_the_number_of_lanes_follows_the_overlap_rule_while_it_is_the_default(http: httpx.AsyncClient) -> None:
    job = await created(http)
    assert (await http.patch(f"/v1/jobs/{job['id']}", json={"overlap": "allow"})).json()["max_running"] == 100
    assert (await http.patch(f"/v1/jobs/{job['id']}", json={"overlap": "skip"})).json()["max_running"] == 1


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"state": "active"}, "unknown_field"),
        ({"next_fire_at": None}, "unknown_field"),
        ({"target": {"colour": "red"}}, "unknown_field"),
        ({"name": None}, "field_missing"),
        ({"name": 5}, "field_invalid"),
        ({"schedules": []}, "field_invalid"),
        ({"schedules": [{"cron": "61 * * * *"}]}, "cron_invalid"),
        ({"timezone": "Europe/Berlin"}, "field_invalid"),
    ],
)
async def test_a_bad_patch_is_refused_and_changes_nothing(http: httpx.AsyncClient, patch: Json, code: str) -> None:
    job = await created(http)
    refused(await http.patch(f"/v1/jobs/{job['id']}", json=patch), 422, code)
    assert (await http.get(f"/v1/jobs/{job['id']}")).json() == job


@pytest.mark.parametrize("patch", [[], "x", 5, None, True])
async def test_a_patch_is_an_object(http: httpx.AsyncClient, patch: Any) -> None:
    job = await created(http)
    refused(await http.patch(f"/v1/jobs/{job['id']}", json=patch), 422, "field_invalid")


# ---------------------------------------------------------------- versions


async def test_of_two_changes_on_the_same_version_one_wins(http: httpx.AsyncClient) -> None:
    job = await created(http)
    answers = await asyncio.gather(
        *(
            http.patch(f"/v1/jobs/{job['id']}", json={"name": name}, headers={"if-match": '"1"'})
            for name in ("first", "second")
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412]
    winner = next(answer for answer in answers if answer.status_code == 200)
    assert (await http.get(f"/v1/jobs/{job['id']}")).json() == winner.json()


@pytest.mark.parametrize("tag", ['"1"', "*", '"0", "1"', ' "1" '])
async def test_a_condition_that_holds_lets_the_change_pass(http: httpx.AsyncClient, tag: str) -> None:
    job = await created(http, key="k")
    for answer in (
        await http.patch(f"/v1/jobs/{job['id']}", json={}, headers={"if-match": tag}),
        await http.put("/v1/jobs/by-key/k", json=webhook_job(), headers={"if-match": tag}),
        await http.delete(f"/v1/jobs/{job['id']}", headers={"if-match": tag}),
    ):
        assert answer.is_success, answer.text


@pytest.mark.parametrize("tag", ['"2"', 'W/"1"', '"x"', '"01"', '"1.0"', '"99999999999999999999"'])
async def test_a_condition_that_does_not_hold_is_412(http: httpx.AsyncClient, tag: str) -> None:
    job = await created(http, key="k")
    for answer in (
        await http.patch(f"/v1/jobs/{job['id']}", json={"name": "x"}, headers={"if-match": tag}),
        await http.put("/v1/jobs/by-key/k", json=webhook_job(name="x"), headers={"if-match": tag}),
        await http.delete(f"/v1/jobs/{job['id']}", headers={"if-match": tag}),
    ):
        refused(answer, 412, "version_mismatch")
    assert (await http.get(f"/v1/jobs/{job['id']}")).json() == job


@pytest.mark.parametrize("tag", ["1", '"1', "", "'1'", '"1" "2"', "W/1", '"1",,*'])
async def test_a_malformed_condition_is_refused(http: httpx.AsyncClient, tag: str) -> None:
    job = await created(http)
    answer = await http.patch(f"/v1/jobs/{job['id']}", json={"name": "x"}, headers={"if-match": tag})
    assert refused(answer, 400, "header_field_invalid")["field"] == "If-Match"


async def test_a_condition_on_a_key_that_nobody_has_creates_nothing(http: httpx.AsyncClient) -> None:
    answer = await http.put("/v1/jobs/by-key/k", json=webhook_job(), headers={"if-match": "*"})
    refused(answer, 412, "version_mismatch")
    assert (await http.get("/v1/jobs")).json()["items"] == []


# ---------------------------------------------------------------- lists


async def test_jobs_are_found_by_state_tag_and_text(http: httpx.AsyncClient) -> None:
    first = await created(http, name="Daily sum", tags=["x"], key="sum")
    second = await created(http, name="Über alles", tags=["x", "y"])
    await http.post(f"/v1/jobs/{second['id']}/pause", json={})

    async def found(**where: str) -> list[str]:
        return [job["id"] for job in (await http.get("/v1/jobs", params=where)).json()["items"]]

    assert await found() == [second["id"], first["id"]]
    assert await found(state="paused") == [second["id"]]
    assert await found(tag="x", state="active") == [first["id"]]
    assert await found(tag="z") == []
    assert await found(text="über") == [second["id"]]
    assert await found(text="SUM") == [first["id"]]


async def test_pages_show_every_job_once(http: httpx.AsyncClient) -> None:
    ids = [(await created(http))["id"] for _ in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (await http.get("/v1/jobs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(ids)
    assert len(seen) == 7


async def test_pages_stay_as_they_were_while_jobs_come_and_go(http: httpx.AsyncClient) -> None:
    ids = [(await created(http))["id"] for _ in range(8)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await http.get("/v1/jobs", params={"limit": "3", **cursor})).json()
        seen += [job["id"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
        await created(http)  # newer than all pages to come
        await http.patch(f"/v1/jobs/{ids[0]}", json={"name": f"changed after {len(seen)}"})
        await http.delete(f"/v1/jobs/{seen[-1]}")  # the very item that the cursor names
    assert seen == ids[::-1]


async def test_a_full_last_page_has_no_cursor(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        await created(http)
    assert (await http.get("/v1/jobs", params={"limit": 3})).json()["next_cursor"] is None


async def test_a_server_without_a_public_url_refuses_completion_by_callback(http: httpx.AsyncClient) -> None:
    problem = refused(await http.post("/v1/jobs", json=webhook_job(completion="callback")), 422, "completion_invalid")
    assert "public_url" in problem["remedy"]
