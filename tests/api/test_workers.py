"""The worker protocol over HTTP: what travels, who is fenced off, and what a hang-up gives back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.api.bodies import ContextMaker, Json, claimed, created, outcome, queue_job, refused, triggered

from onbeat.api.application import build_api
from onbeat.app.api_server import ApiServer
from onbeat.app.services import Services
from onbeat.client.link import HttpLink
from onbeat.domain.ids import RunKey, parse_job_id, parse_run_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.services.assignment import LARGEST_CALL
from onbeat.store.values import Finish, FinishResult, LeaseStatus

FORGED = base64.urlsafe_b64encode(b"x" * 16).rstrip(b"=").decode()


async def assignment_of(http: httpx.AsyncClient, **fields: object) -> Json:
    """A claimed run of a new job."""
    await triggered(http, await created(http, **fields))
    (assignment,) = await claimed(http)
    return assignment


def held(run: Json) -> Json:
    return {"run_id": run["run_id"], "token": run["token"]}


async def test_a_claim_carries_everything_that_a_delivery_needs(http: httpx.AsyncClient) -> None:
    job = await created(http, key="k", timeout_s=7.5, target={"url": "https://example.com/x", "headers": {"X-A": "b"}})
    run = await triggered(http, job, payload={"a": 1})
    (assignment,) = await claimed(http, worker="w9")
    assert assignment["run_id"] == run["id"]
    assert (assignment["attempt"], assignment["trigger"], assignment["job_version"]) == (1, "manual", 1)
    assert (assignment["job_name"], assignment["job_key"], assignment["namespace"]) == (job["name"], "k", "default")
    assert (assignment["target"]["url"], assignment["target"]["headers"]) == ("https://example.com/x", {"X-A": "b"})
    assert (assignment["timeout_s"], assignment["payload"], assignment["queue"]) == (7.5, '{"a":1}', None)
    assert assignment["lease_until"] > assignment["granted_at"]
    assert len(base64.urlsafe_b64decode(assignment["token"] + "==")) == 16
    assert [secret[:6] for secret in assignment["secrets"]] == ["whsec_"]
    shown = (await http.get(f"/v1/runs/{run['id']}")).json()
    assert (shown["state"], shown["worker"]) == ("running", "w9")


async def test_queues_are_apart(http: httpx.AsyncClient) -> None:
    job = (await http.post("/v1/jobs", json=queue_job())).json()
    await triggered(http, job)
    assert await claimed(http) == []
    assert await claimed(http, queue="other") == []
    (assignment,) = await claimed(http, queue="mail")
    assert (assignment["queue"], assignment["secrets"]) == ("mail", [])


async def test_a_claim_takes_no_more_than_its_limit(http: httpx.AsyncClient) -> None:
    job = await created(http, overlap="allow")
    for _ in range(5):
        await triggered(http, job)
    assert [len(await claimed(http, limit=limit)) for limit in (2, 2, 2)] == [2, 2, 1]


@pytest.mark.parametrize(
    "body",
    [
        {}, {"worker": ""}, {"worker": "a b"}, {"worker": "w", "limit": 0}, {"worker": "w", "limit": 1_001},
        {"worker": "w", "wait_s": -1}, {"worker": "w", "wait_s": 31}, {"worker": "w", "wait": 5},
        {"worker": "w", "limit": True},
    ],
)  # fmt: skip
async def test_a_bad_claim_is_refused(http: httpx.AsyncClient, body: Json) -> None:
    assert (await http.post("/v1/runs/claim", json=body)).status_code == 422


async def test_a_heartbeat_extends_and_a_stale_one_changes_nothing(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    stale = held(assignment) | {"token": FORGED}
    answer = await http.post("/v1/runs/heartbeat", json={"runs": [held(assignment), stale]})
    assert [(run["run_id"], run["status"]) for run in answer.json()["runs"]] == [
        (assignment["run_id"], "live"),
        (assignment["run_id"], "lease_lost"),
    ]
    path = f"/v1/runs/{assignment['run_id']}/heartbeat"
    single = await http.post(path, json={"token": assignment["token"]})
    assert (single.status_code, single.json()["status"]) == (200, "live")
    refused(await http.post(path, json={"token": FORGED}), 409, "lease_lost")


async def test_a_permit_is_held_back_by_a_pause(http: httpx.AsyncClient) -> None:
    job = await created(http)
    await triggered(http, job)
    (assignment,) = await claimed(http)
    body = {"runs": [held(assignment)]}
    assert (await http.post("/v1/runs/permit", json=body)).json()["runs"][0]["status"] == "live"
    await http.post(f"/v1/jobs/{job['id']}/pause", json={})
    assert (await http.post("/v1/runs/permit", json=body)).json()["runs"][0]["status"] == "held_back"


async def test_the_same_report_twice_is_answered_twice(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    path = f"/v1/runs/{assignment['run_id']}/finish"
    report = {name: value for name, value in outcome(assignment).items() if name != "run_id"}
    first, again = [await http.post(path, json=report) for _ in range(2)]
    assert (first.status_code, first.json()["result"], first.json()["state"]) == (200, "ended", "succeeded")
    assert (again.status_code, again.json()["result"]) == (200, "repeated")
    batch = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment)]})
    assert batch.json()["runs"][0]["result"] == "repeated"


async def test_a_stale_or_forged_token_reports_nothing(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    path = f"/v1/runs/{assignment['run_id']}/finish"
    report = {name: value for name, value in outcome(assignment).items() if name != "run_id"} | {"token": FORGED}
    refused(await http.post(path, json=report), 409, "lease_lost")
    batch = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment, token=FORGED), outcome(assignment)]})
    assert [run["result"] for run in batch.json()["runs"]] == ["lease_lost", "ended"]


async def test_a_report_after_the_run_ended_by_another_hand_is_terminal(http: httpx.AsyncClient) -> None:
    # The worker gave the lease back, the run was cancelled while it waited, and now the worker reports all the same.
    assignment = await assignment_of(http)
    await http.post("/v1/runs/release", json={"runs": [held(assignment)]})
    await http.post(f"/v1/runs/{assignment['run_id']}/cancel", json={})
    report = {name: value for name, value in outcome(assignment).items() if name != "run_id"}
    refused(await http.post(f"/v1/runs/{assignment['run_id']}/finish", json=report), 409, "run_terminal")
    batch = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment)]})
    assert batch.json()["runs"][0]["result"] == "run_terminal"


async def test_a_failed_attempt_waits_for_the_next(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    answer = await http.post(
        "/v1/runs/finish", json={"runs": [outcome(assignment, "http_status", status=503, retry_after_s=90.5)]}
    )
    (finished,) = answer.json()["runs"]
    assert (finished["result"], finished["state"]) == ("will_retry", "pending")
    assert finished["ready_at"] >= assignment["granted_at"] + 90_000_000


async def test_released_attempts_can_be_claimed_again(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    stale = held(assignment) | {"token": FORGED}
    answer = await http.post("/v1/runs/release", json={"runs": [held(assignment), stale]})
    assert answer.json() == {"released": 1}
    (again,) = await claimed(http)
    assert (again["run_id"], again["attempt"]) == (assignment["run_id"], 1)
    assert again["token"] != assignment["token"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"token": "x"}, "runs[0].token"),
        ({"token": "é" * 22}, "runs[0].token"),
        ({"token": "A" * 21 + "="}, "runs[0].token"),
        ({"run_id": "run_1"}, "runs[0].run_id"),
        ({"run_id": "job_0000000000001"}, "runs[0].run_id"),
        ({"outcome": "fine"}, "runs[0].outcome"),
        ({"outcome": "lease_lost"}, "runs[0].outcome"),
        ({"status": 99}, "runs[0].status"),
        ({"status": 1000}, "runs[0].status"),
        ({"duration_us": -1}, "runs[0].duration_us"),
        ({"started_at": 2**63}, "runs[0].started_at"),
        ({"error": "x" * 2_001}, "runs[0].error"),
        ({"error": "a\0b"}, "runs[0].error"),
        ({"retry_after_s": -1}, "runs[0].retry_after_s"),
        ({"response": {"body": "not base64"}}, "runs[0].response.body"),
        ({"response": {"body": base64.b64encode(b"x" * 16_385).decode()}}, "runs[0].response.body"),
        ({"response": {"headers": [["a", "b", "c"]]}}, "runs[0].response.headers[0]"),
        ({"response": {"headers": [["a", "b"]] * 201}}, "runs[0].response.headers"),
        ({"colour": "red"}, "runs[0].colour"),
    ],
)
async def test_a_bad_report_is_refused_whole(http: httpx.AsyncClient, fields: Json, field: str) -> None:
    assignment = await assignment_of(http)
    answer = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment) | fields]})
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert (await http.get(f"/v1/runs/{assignment['run_id']}")).json()["state"] == "running"


async def test_a_report_has_at_most_five_hundred_runs(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    answer = await http.post("/v1/runs/finish", json={"runs": [outcome(assignment)] * 501})
    assert (answer.status_code, answer.json()["field"]) == (422, "runs")


async def test_five_hundred_full_responses_fit_into_one_report(http: httpx.AsyncClient) -> None:
    assignment = await assignment_of(http)
    response = {"body": base64.b64encode(b"\xff" * 16_384).decode(), "truncated": True}
    runs = [outcome(assignment, token=FORGED, response=response)] * 500
    answer = await http.post("/v1/runs/finish", json={"runs": runs})
    assert [run["result"] for run in answer.json()["runs"]] == ["lease_lost"] * 500


# ---------------------------------------------------------------- over a real socket


@pytest.fixture
async def server_url(make_context: ContextMaker) -> AsyncIterator[str]:
    server = ApiServer("127.0.0.1", 0)
    url = await server.serve(build_api(make_context()))
    yield url
    await server.stop()


async def parked(services: Services) -> None:
    """Until a claim waits for work."""
    async with asyncio.timeout(10):
        while not services.handoff._parked:
            await asyncio.sleep(0)


async def test_a_waiting_claim_is_woken_by_work(server_url: str, services: Services) -> None:
    async with HttpLink(server_url, key=None, worker="far") as link, httpx.AsyncClient(base_url=server_url) as http:
        job = await created(http)
        claim = asyncio.create_task(link.claim(queue=None, limit=3, wait_s=25))
        await parked(services)
        run = await triggered(http, job)
        async with asyncio.timeout(10):
            (assignment,) = await claim
        assert assignment.key == parse_run_id(run["id"])
        assert await link.extend([(assignment.key, assignment.token)]) == [LeaseStatus.LIVE]
        done = Outcome(kind=OutcomeKind.SUCCEEDED, started_at=assignment.granted_at, duration_us=5, status=200)
        (finished,) = await link.finish([Finish(assignment.key, assignment.token, done)])
        assert finished.result == FinishResult.ENDED
        assert abs(await link.read_clock() - services.clock.now()) < 60_000_000


async def test_a_waiting_claim_is_handed_a_run_in_the_moment_it_is_due(
    server_url: str, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with httpx.AsyncClient(base_url=server_url, timeout=60) as http:
        jobs = {}
        for queue in ("mail", "other"):
            body = queue_job(schedules=[{"every": "1h"}], target={"queue": queue})
            jobs[queue] = (await http.post("/v1/jobs", json=body)).json()
        claim = asyncio.create_task(
            http.post("/v1/runs/claim", json={"worker": "w", "queue": "mail", "limit": 5, "wait_s": 30})
        )
        await parked(services)
        due_at = parse_instant(jobs["mail"]["next_fire_at"], field="")
        monkeypatch.setattr(services.clock, "now", lambda: due_at + 1_500)
        await services.dispatch.fire_due()
        async with asyncio.timeout(10):
            (run,) = (await claim).json()["runs"]
        assert parse_run_id(run["run_id"]) == RunKey(parse_job_id(jobs["mail"]["id"]), due_at)
        shown = (await http.get(f"/v1/runs/{run['run_id']}")).json()
        assert (shown["state"], shown["worker"], shown["lag_ms"], shown["late"]) == ("running", "w", 1.5, False)
        assert await claimed(http, worker="webhooks") == []
        assert len(await claimed(http, worker="w2", queue="other")) == 1


async def test_a_worker_that_hangs_up_leaves_nothing_leased(server_url: str, services: Services) -> None:
    async with httpx.AsyncClient(base_url=server_url) as http:
        job = await created(http)
        claim = asyncio.create_task(
            http.post("/v1/runs/claim", json={"worker": "gone", "limit": 1, "wait_s": 30}, timeout=60)
        )
        await parked(services)
        claim.cancel()
        async with asyncio.timeout(10):
            while services.handoff._parked:
                await asyncio.sleep(0)
        run = await triggered(http, job)
        (assignment,) = await claimed(http)
        assert (assignment["run_id"], assignment["attempt"]) == (run["id"], 1)


async def test_what_is_granted_in_the_moment_of_a_hang_up_is_given_back(server_url: str, services: Services) -> None:
    async with httpx.AsyncClient(base_url=server_url) as http:
        job = await created(http, schedules=[{"at": "2020-01-01T00:00:00Z"}], past="run_now")
        claim = asyncio.create_task(
            http.post("/v1/runs/claim", json={"worker": "gone", "limit": 1, "wait_s": 30}, timeout=60)
        )
        await parked(services)
        reservation = services.handoff.reserve(until=services.clock.now() + 30_000_000)
        claim.cancel()
        services.handoff.settle(reservation, [])
        run = await triggered(http, job)
        async with asyncio.timeout(10):
            while True:
                shown = (await http.get(f"/v1/runs/{run['id']}")).json()
                if shown["state"] == "pending":
                    break
        assert shown["attempt"] == 0


async def test_no_wait_answers_at_once(server_url: str) -> None:
    async with HttpLink(server_url, key=None, worker="far") as link:
        async with asyncio.timeout(5):
            assert await link.claim(queue=None, limit=1, wait_s=0) == []


async def test_a_worker_of_more_than_one_call_names_is_served_in_several(server_url: str) -> None:
    count = 2 * LARGEST_CALL + 1
    nobodys = [(RunKey(number, 1_000_000), bytes(16)) for number in range(count)]
    async with HttpLink(server_url, key=None, worker="large") as link:
        assert await link.claim(queue=None, limit=10_000, wait_s=0) == []
        assert await link.extend(nobodys) == [LeaseStatus.LEASE_LOST] * count
        assert await link.permit(nobodys) == [LeaseStatus.LEASE_LOST] * count
        assert await link.release(nobodys) == 0
