"""Runs over the API: find them, look at attempts, cancel, retry."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import Json, claimed, created, outcome, queue_job, refused, triggered

from onbeat.app.services import Services


async def ended_run(http: httpx.AsyncClient, kind: str = "succeeded", **fields: Any) -> Json:
    """A run of its own job, claimed and reported."""
    job = await created(http, retry={"max_attempts": 1}, name="own")
    run = await triggered(http, job)
    (assignment,) = await claimed(http)
    answer = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment, kind, **fields)]})
    assert answer.json()["runs"][0]["result"] == "ended", answer.text
    return dict((await http.get(f"/v1/runs/{run['id']}")).json())


async def test_a_run_tells_when_it_was_planned_started_and_how_it_went(http: httpx.AsyncClient) -> None:
    run = await ended_run(http, status=204, duration_us=12_500)
    assert (run["state"], run["trigger"], run["attempt"], run["status"]) == ("succeeded", "manual", 1, 204)
    assert run["duration_ms"] == 12.5
    assert isinstance(run["lag_ms"], float)
    assert run["lag_ms"] >= 0
    for moment in ("scheduled_at", "created_at", "started_at", "finished_at"):
        assert str(run[moment]).endswith("Z")
    assert (run["count"], run["until"], run["late"], run["reason"]) == (1, None, False, None)


async def test_runs_are_found_by_job_and_state(http: httpx.AsyncClient) -> None:
    first = await created(http, key="job_first")
    second = await created(http)
    runs = {}
    for job in (first, second):
        runs[job["id"]] = await triggered(http, job)
    await http.post(f"/v1/runs/{runs[second['id']]['id']}/cancel", json={})

    async def found(**where: object) -> list[str]:
        answer = await http.get("/v1/runs", params=where)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        return [run["id"] for run in answer.json()["items"]]

    newest_first = [runs[second["id"]]["id"], runs[first["id"]]["id"]]
    assert await found() == newest_first
    assert await found(job=first["id"]) == newest_first[1:]
    assert await found(job="job_first") == newest_first[1:]
    assert await found(state="cancelled") == newest_first[:1]
    assert await found(state=["cancelled", "pending"]) == newest_first
    assert await found(late=True) == []
    assert await found(**{"from": runs[second["id"]]["scheduled_at"]}) == newest_first[:1]
    assert await found(to=runs[second["id"]]["scheduled_at"]) == newest_first[1:]
    refused(await http.get("/v1/runs", params={"job": "nobody"}), 404, "job_not_found")
    refused(await http.get("/v1/runs", params={"job": "job_x"}), 404, "job_not_found")


async def test_pages_show_every_run_once(http: httpx.AsyncClient) -> None:
    job = await created(http, overlap="allow")
    ids = [(await triggered(http, job))["id"] for _ in range(7)]
    for where in ({}, {"job": job["id"]}):
        seen: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(4):
            page = (await http.get("/v1/runs", params={"limit": "2", **where, **cursor})).json()
            seen += [run["id"] for run in page["items"]]
            cursor = {"cursor": page["next_cursor"] or ""}
        assert page["next_cursor"] is None
        assert seen == ids[::-1]


async def test_pages_of_runs_stay_as_they_were_while_runs_are_made_and_end(http: httpx.AsyncClient) -> None:
    job = await created(http, overlap="allow")
    ids = [(await triggered(http, job))["id"] for _ in range(6)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(3):
        page = (await http.get("/v1/runs", params={"limit": "2", **cursor})).json()
        seen += [run["id"] for run in page["items"]]
        cursor = {"cursor": page["next_cursor"] or ""}
        await triggered(http, job)
        (assignment,) = await claimed(http, limit=1)  # runs move from the live ones to the ended ones meanwhile
        await http.post("/v1/runs/finish", json={"runs": [outcome(assignment)]})
    assert seen == ids[::-1]


async def test_pages_of_one_namespace_leave_out_the_others(http: httpx.AsyncClient, services: Services) -> None:
    job = await created(http, overlap="allow")
    theirs = (await http.post("/v1/jobs", json=queue_job(overlap="allow"))).json()
    ours = []
    for _ in range(5):
        ours.append((await triggered(http, job))["id"])
        await triggered(http, theirs)
    from onbeat.domain.ids import parse_job_id
    from onbeat.store.values import Page, RunFilter

    services.runs._namespaces[parse_job_id(theirs["id"])] = "theirs"
    found = await services.runs.find(RunFilter(), Page(limit=3), namespace="default")
    assert len(found) == 3
    page = (await http.get("/v1/runs", params={"limit": 5})).json()
    assert [run["id"] for run in page["items"]] == ours[::-1]
    assert page["next_cursor"] is None


async def test_attempts_tell_what_the_receiver_answered(http: httpx.AsyncClient) -> None:
    response = {"headers": [["content-type", "text/plain"]], "body": "Ym9vbSBubyDw/w==", "truncated": True}
    run = await ended_run(http, "http_status", status=500, error="the receiver answered 500", response=response)
    assert (run["state"], run["status"], run["error"]) == ("failed", 500, "the receiver answered 500")
    (attempt,) = (await http.get(f"/v1/runs/{run['id']}/attempts")).json()["items"]
    assert (attempt["attempt"], attempt["outcome"], attempt["status"]) == (1, "http_status", 500)
    assert (attempt["duration_ms"], attempt["worker"]) == (1.5, "w1")
    assert attempt["response"]["body"] == response["body"]
    assert attempt["response"]["truncated"] is True
    assert [list(pair) for pair in attempt["response"]["headers"]] == response["headers"]


async def test_a_waiting_run_is_cancelled_at_once_and_again(http: httpx.AsyncClient) -> None:
    run = await triggered(http, await created(http))
    for _ in range(2):
        answer = await http.post(f"/v1/runs/{run['id']}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


async def test_a_running_run_is_asked_to_stop(http: httpx.AsyncClient) -> None:
    run = await triggered(http, await created(http))
    (assignment,) = await claimed(http)
    answer = await http.post(f"/v1/runs/{run['id']}/cancel", json={})
    assert (answer.json()["state"], answer.json()["cancel_requested"]) == ("running", True)
    held = {"run_id": assignment["run_id"], "token": assignment["token"]}
    statuses = (await http.post("/v1/runs/heartbeat", json={"runs": [held]})).json()["runs"]
    assert [status["status"] for status in statuses] == ["cancel"]


async def test_an_ended_run_cannot_be_cancelled(http: httpx.AsyncClient) -> None:
    run = await ended_run(http)
    refused(await http.post(f"/v1/runs/{run['id']}/cancel", json={}), 409, "run_terminal")


async def test_a_failed_run_comes_back_under_its_own_id(http: httpx.AsyncClient) -> None:
    run = await ended_run(http, "http_status", status=404)
    again = await http.post(f"/v1/runs/{run['id']}/retry", json={})
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, run["id"], "pending")
    (assignment,) = await claimed(http)
    assert (assignment["run_id"], assignment["attempt"]) == (run["id"], 2)


async def test_a_run_that_succeeded_is_not_retried_and_one_that_waits_is_left_alone(http: httpx.AsyncClient) -> None:
    done = await ended_run(http)
    refused(await http.post(f"/v1/runs/{done['id']}/retry", json={}), 409, "state_conflict")
    waiting = await triggered(http, await created(http))
    answer = await http.post(f"/v1/runs/{waiting['id']}/retry", json={})
    assert (answer.status_code, answer.json()) == (200, waiting)


async def test_history_of_a_deleted_job_can_still_be_read(http: httpx.AsyncClient) -> None:
    run = await ended_run(http)
    assert (await http.delete(f"/v1/jobs/{run['job_id']}")).status_code == 204
    assert (await http.get(f"/v1/runs/{run['id']}")).json()["state"] == "succeeded"
    assert [found["id"] for found in (await http.get("/v1/runs", params={"job": run["job_id"]})).json()["items"]] == [
        run["id"]
    ]


@pytest.mark.parametrize("action", ["pause", "resume", "trigger"])
async def test_actions_refuse_fields_that_nobody_knows(http: httpx.AsyncClient, action: str) -> None:
    job = await created(http)
    refused(await http.post(f"/v1/jobs/{job['id']}/{action}", json={"colour": "red"}), 422, "unknown_field")


@pytest.mark.parametrize("action", ["cancel", "retry"])
async def test_actions_on_runs_refuse_fields_that_nobody_knows(http: httpx.AsyncClient, action: str) -> None:
    run = await triggered(http, await created(http))
    refused(await http.post(f"/v1/runs/{run['id']}/{action}", json={"force": True}), 422, "unknown_field")
