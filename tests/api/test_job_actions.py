"""Pause, resume, trigger, and the instants to come."""

from __future__ import annotations

import httpx
from tests.api.bodies import created, queue_job, refused, triggered

from onbeat.domain.instants import parse_instant


async def test_pause_and_resume(http: httpx.AsyncClient) -> None:
    job = await created(http, schedules=[{"every": "1h"}])
    answer = (await http.post(f"/v1/jobs/{job['id']}/pause", json={"note": "holidays"})).json()
    paused = answer["job"]
    assert (paused["state"], paused["reason"], paused["next_fire_at"]) == ("paused", "holidays", None)
    assert answer["last_possible_side_effect_at"] > paused["paused_at"]
    refused(await http.post(f"/v1/jobs/{job['id']}/trigger", json={}), 409, "state_conflict")
    resumed = (await http.post(f"/v1/jobs/{job['id']}/resume", json={})).json()
    assert (resumed["state"], resumed["reason"]) == ("active", None)
    assert resumed["next_fire_at"] == job["next_fire_at"]


async def test_actions_need_no_body(http: httpx.AsyncClient) -> None:
    job = await created(http)
    for action, status in (("pause", 200), ("resume", 200), ("trigger", 201)):
        answer = await http.post(f"/v1/jobs/{job['id']}/{action}")
        assert answer.status_code == status, answer.text


async def test_pause_is_bounded_by_the_attempt_that_runs(http: httpx.AsyncClient) -> None:
    idle = await created(http, timeout_s=600)
    busy = await created(http, timeout_s=600)
    await triggered(http, busy)
    assert len((await http.post("/v1/runs/claim", json={"worker": "w", "limit": 5})).json()["runs"]) == 1
    bounds = {}
    for name, job in (("idle", idle), ("busy", busy)):
        paused = (await http.post(f"/v1/jobs/{job['id']}/pause", json={"running": "finish"})).json()
        bounds[name] = seconds_between(paused["job"]["paused_at"], paused["last_possible_side_effect_at"])
    assert bounds["idle"] == 5
    assert 590 < bounds["busy"] <= 606


def seconds_between(first: str, second: str) -> float:
    return (parse_instant(second, field="") - parse_instant(first, field="")) / 1e6


async def test_trigger_records_a_run_with_its_own_payload(http: httpx.AsyncClient) -> None:
    job = (await http.post("/v1/jobs", json=queue_job(target={"queue": "mail", "payload": {"a": 1}}))).json()
    answer = await http.post(f"/v1/jobs/{job['id']}/trigger", json={"payload": {"b": [2]}})
    run = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert (run["trigger"], run["state"], run["job_id"]) == ("manual", "pending", job["id"])
    claim = (await http.post("/v1/runs/claim", json={"worker": "w", "queue": "mail", "limit": 1})).json()
    assert claim["runs"][0]["payload"] == '{"b":[2]}'


async def test_next_tells_the_instants_of_the_preview(http: httpx.AsyncClient) -> None:
    # Case F07: one function computes the instants of preview, job and dispatcher, and each carries its offset.
    schedule = {"cron": "0 6,20 * * *", "timezone": "Europe/Paris"}
    preview = await http.post(
        "/v1/schedules:preview", json={"schedules": [schedule], "after": "2025-07-15T12:00:00Z", "count": 2}
    )
    assert preview.json()["fires"] == ["2025-07-15T18:00:00Z", "2025-07-16T04:00:00Z"]
    assert preview.json()["instants"][0]["local"] == ["Tue 2025-07-15 20:00 +0200"]
    job = await created(http, schedules=[schedule])
    fires = (await http.get(f"/v1/jobs/{job['id']}/next", params={"count": 5})).json()["fires"]
    ahead = (await http.post("/v1/schedules:preview", json={"schedules": [schedule], "count": 5})).json()["fires"]
    assert fires == ahead
    assert fires[0] == job["next_fire_at"]


async def test_a_paused_job_plans_nothing(http: httpx.AsyncClient) -> None:
    job = await created(http)
    await http.post(f"/v1/jobs/{job['id']}/pause", json={})
    assert (await http.get(f"/v1/jobs/{job['id']}/next")).json()["fires"] == []
