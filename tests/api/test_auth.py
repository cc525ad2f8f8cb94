"""Who may do what: keys, scopes, namespaces; and web pages that reach for a server without keys."""

from __future__ import annotations

import re

import httpx
import pytest
from tests.api.bodies import BASE_URL, ContextMaker, Json, created, queue_job, refused, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.api.application import build_api
from onbeat.app.services import Services

JOB = "job_0000000000001"
RUN = "run_00000000000000000000000001"

ROUTES = [
    ("POST", "/v1/pause", "jobs:write"),
    ("POST", "/v1/resume", "jobs:write"),
    ("GET", "/v1/pauses", "jobs:read"),
    ("POST", "/v1/jobs", "jobs:write"),
    ("GET", "/v1/jobs", "jobs:read"),
    ("POST", "/v1/jobs:batch", "jobs:write"),
    ("POST", "/v1/jobs:bulk", "jobs:write"),
    ("POST", "/v1/runs:bulk", "runs:write"),
    ("GET", "/v1/jobs/by-key/k", "jobs:read"),
    ("PUT", "/v1/jobs/by-key/k", "jobs:write"),
    ("GET", f"/v1/jobs/{JOB}", "jobs:read"),
    ("PATCH", f"/v1/jobs/{JOB}", "jobs:write"),
    ("DELETE", f"/v1/jobs/{JOB}", "jobs:write"),
    ("POST", f"/v1/jobs/{JOB}/pause", "jobs:write"),
    ("POST", f"/v1/jobs/{JOB}/resume", "jobs:write"),
    ("POST", f"/v1/jobs/{JOB}/trigger", "jobs:write"),
    ("GET", f"/v1/jobs/{JOB}/next", "jobs:read"),
    ("POST", f"/v1/jobs/{JOB}/backfill", "jobs:write"),
    ("GET", f"/v1/jobs/{JOB}/backfills", "jobs:read"),
    ("GET", f"/v1/jobs/{JOB}/backfills/1", "jobs:read"),
    ("DELETE", f"/v1/jobs/{JOB}/backfills/1", "jobs:write"),
    ("GET", "/v1/blackouts", "jobs:read"),
    ("GET", "/v1/blackouts/b", "jobs:read"),
    ("PUT", "/v1/blackouts/b", "jobs:write"),
    ("DELETE", "/v1/blackouts/b", "jobs:write"),
    ("GET", "/v1/calendars", "jobs:read"),
    ("GET", "/v1/calendars/c", "jobs:read"),
    ("PUT", "/v1/calendars/c", "jobs:write"),
    ("POST", "/v1/calendars/c/import", "jobs:write"),
    ("DELETE", "/v1/calendars/c", "jobs:write"),
    ("POST", "/v1/schedules:preview", "jobs:read"),
    ("POST", "/v1/retries:preview", "jobs:read"),
    ("GET", "/v1/runs", "runs:read"),
    ("GET", f"/v1/runs/{RUN}", "runs:read"),
    ("GET", f"/v1/runs/{RUN}/attempts", "runs:read"),
    ("POST", f"/v1/runs/{RUN}/cancel", "runs:write"),
    ("POST", f"/v1/runs/{RUN}/retry", "runs:write"),
    ("POST", "/v1/runs/claim", "runs:claim"),
    ("POST", "/v1/runs/heartbeat", "runs:claim"),
    ("POST", "/v1/runs/permit", "runs:claim"),
    ("POST", "/v1/runs/finish", "runs:claim"),
    ("POST", "/v1/runs/release", "runs:claim"),
    ("POST", f"/v1/runs/{RUN}/finish", "runs:claim"),
    ("GET", "/v1/time", "runs:claim"),
    ("POST", "/v1/secrets/default:rotate", "admin"),
    ("GET", "/v1/secrets", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("GET", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/abc", "admin"),
    ("GET", "/v1/nodes", "admin"),
    ("GET", "/metrics", "admin"),
]
WITHOUT_KEY = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    # The token in the body is the right.
    ("POST", "/v1/runs/{run_id}/complete"),
    ("POST", "/v1/runs/{run_id}/heartbeat"),
    ("POST", "/v1/runs/{run_id}/progress"),
}
SCOPES = ("jobs:read", "jobs:write", "runs:read", "runs:write", "runs:claim")

# Acceptable to the call, so that nothing but the key can be the reason of a refusal.
BODIES: dict[str, Json] = {
    "/v1/jobs": webhook_job(),
    f"/v1/jobs/{JOB}/backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
    "/v1/jobs:batch": {"jobs": [webhook_job()]},
    "/v1/jobs:bulk": {"action": "pause", "all": True},
    "/v1/runs:bulk": {"action": "cancel", "all": True},
    "/v1/jobs/by-key/k": webhook_job(),
    "/v1/schedules:preview": {"schedules": [{"cron": "0 0 * * *"}]},
    "/v1/retries:preview": {"retry": {}},
    "/v1/runs/claim": {"worker": "w"},
    "/v1/runs/heartbeat": {"runs": []},
    "/v1/runs/permit": {"runs": []},
    "/v1/runs/finish": {"runs": []},
    "/v1/runs/release": {"runs": []},
    f"/v1/runs/{RUN}/heartbeat": {"token": "A" * 22},
    f"/v1/runs/{RUN}/finish": {"token": "A" * 22, "outcome": "succeeded", "started_at": 1, "duration_us": 1},
    "/v1/keys": {"name": "n", "scopes": ["jobs:read"]},
}


async def ask(http: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    body = BODIES.get(path, {}) if method in ("POST", "PUT", "PATCH") else None
    return await http.request(method, path, json=body, headers=headers)


def test_every_route_is_in_the_table(make_context: ContextMaker) -> None:
    document = build_api(make_context()).openapi()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

    def is_told(method: str, template: str) -> bool:
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
        return any(method == told and re.fullmatch(pattern, path) for told, path, _ in ROUTES)

    assert {route for route in described if not is_told(*route)} == WITHOUT_KEY


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
async def test_a_route_wants_its_scope(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, method: str, path: str, scope: str
) -> None:
    refused(await ask(keyed_http, method, path, {}), 401, "not_authenticated")
    others = await bearer(*(other for other in SCOPES if other != scope))
    refused(await ask(keyed_http, method, path, others), 403, "not_allowed")
    allowed = await ask(keyed_http, method, path, await bearer(scope))
    assert allowed.status_code not in (401, 403), allowed.text
    assert allowed.status_code < 500
    if scope != "admin" and method == "GET":
        admin = await ask(keyed_http, method, path, await bearer("admin"))
        assert admin.status_code == allowed.status_code


async def test_every_route_refuses_keys_that_are_wrong_revoked_or_expired(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, services: Services
) -> None:
    text = (await bearer("admin"))["authorization"]
    revoked = (await bearer("admin"))["authorization"]
    await services.keys.revoke(revoked.removeprefix("Bearer onb_").partition("_")[0])
    wrong = text[:40] + ("A" if text[40] != "A" else "B") + text[41:]
    expired = (await bearer("admin", expires_in_s=0))["authorization"]
    for method, path, _ in ROUTES:
        for header in ("Bearer nonsense", wrong, revoked, expired):
            answer = await ask(keyed_http, method, path, {"authorization": header})
            refused(answer, 401, "not_authenticated")
        in_query = await keyed_http.request(method, path, params={"api_key": text.removeprefix("Bearer ")})
        refused(in_query, 401, "not_authenticated")


async def test_a_caller_is_asked_for_a_key_before_the_body_is_read(keyed_http: httpx.AsyncClient) -> None:
    answer = await keyed_http.post("/v1/jobs:batch", content=b"x" * 2_000_000, headers={"content-encoding": "gzip"})
    refused(answer, 401, "not_authenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "", "Bearer", "Bearer ", "Bearer x", "Basic dXNlcjpwdw==", "Bearer onb_", "Bearer onb__", "Bearer onb_a_b_c",
        "Bearer onb_000000000000_x_00000000", "Bearer onb_\u00e9", "Token x", "Bearer " + "a" * 5_000,
    ],
)  # fmt: skip
async def test_what_is_no_key_of_ours_is_refused(keyed_http: httpx.AsyncClient, header: str) -> None:
    headers = {b"authorization": header.encode("latin-1")}
    refused(await keyed_http.get("/v1/jobs", headers=headers), 401, "not_authenticated")


async def test_wrong_revoked_and_expired_keys_are_refused_alike(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, services: Services
) -> None:
    good = await bearer("jobs:read")
    assert (await keyed_http.get("/v1/jobs", headers=good)).status_code == 200
    text = good["authorization"]
    wrong = {"authorization": text[:30] + ("A" if text[30] != "A" else "B") + text[31:]}
    key_id = text.removeprefix("Bearer onb_").partition("_")[0]
    answers = [await keyed_http.get("/v1/jobs", headers=wrong)]
    await services.keys.revoke(key_id)
    answers.append(await keyed_http.get("/v1/jobs", headers=good))
    answers.append(await keyed_http.get("/v1/jobs", headers=await bearer("jobs:read", expires_in_s=0)))
    problems = [refused(answer, 401, "not_authenticated") for answer in answers]
    assert len({problem["detail"] for problem in problems}) == 1


@pytest.mark.parametrize("parameter", ["api_key", "access_token", "key", "API_KEY"])
async def test_a_key_in_the_url_is_refused(keyed_http: httpx.AsyncClient, bearer: KeyMaker, parameter: str) -> None:
    headers = await bearer("admin")
    text = headers["authorization"].removeprefix("Bearer ")
    for sent in ({}, headers):
        answer = await keyed_http.get("/v1/jobs", params={parameter: text}, headers=sent)
        assert text not in refused(answer, 401, "not_authenticated")["detail"]


# ---------------------------------------------------------------- namespaces


async def test_what_belongs_to_others_does_not_exist(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker, services: Services
) -> None:
    ours, theirs = await bearer("admin"), await bearer(*SCOPES, namespace="theirs")
    job = (await keyed_http.post("/v1/jobs", json=queue_job(key="k"), headers=ours)).json()
    run = (await keyed_http.post(f"/v1/jobs/{job['id']}/trigger", json={}, headers=ours)).json()
    unknown = (JOB, RUN)
    for method, path, scope in ROUTES:
        if scope == "admin" or not any(thing in path for thing in unknown) or scope == "runs:claim":
            continue
        foreign = path.replace(JOB, job["id"]).replace(RUN, run["id"])
        body = BODIES.get(path, {})
        answers = [
            await keyed_http.request(method, place, json=None if method in ("GET", "DELETE") else body, headers=theirs)
            for place in (foreign, path)
        ]
        assert [answer.status_code for answer in answers] == [404, 404], foreign
        assert answers[0].json()["code"] == answers[1].json()["code"]
        assert answers[0].json()["detail"] == answers[1].json()["detail"]
    assert (await keyed_http.get("/v1/jobs", headers=theirs)).json()["items"] == []
    assert (await keyed_http.get("/v1/runs", headers=theirs)).json()["items"] == []
    refused(await keyed_http.get("/v1/runs", params={"job": job["id"]}, headers=theirs), 404, "job_not_found")
    refused(await keyed_http.get("/v1/runs", params={"job": "k"}, headers=theirs), 404, "job_not_found")
    mine = await keyed_http.put("/v1/jobs/by-key/k", json=webhook_job(), headers=theirs)
    assert mine.status_code == 201
    assert [run["id"] for run in (await keyed_http.get("/v1/runs", headers=ours)).json()["items"]] == [run["id"]]


async def test_a_tenants_key_claims_nothing(keyed_http: httpx.AsyncClient, bearer: KeyMaker) -> None:
    tenant = await bearer("runs:claim", namespace="theirs")
    refused(await keyed_http.post("/v1/runs/claim", json={"worker": "w"}, headers=tenant), 403, "not_allowed")


# ---------------------------------------------------------------- keys and secrets over the API


async def test_keys_are_made_shown_once_and_revoked(keyed_http: httpx.AsyncClient, bearer: KeyMaker) -> None:
    admin = await bearer("admin")
    body = {"name": "ci", "scopes": ["jobs:read"], "expires_in_s": 60}
    made = (await keyed_http.post("/v1/keys", json=body, headers=admin)).json()
    key = {"authorization": f"Bearer {made['key']}"}
    assert (await keyed_http.get("/v1/jobs", headers=key)).status_code == 200
    listed = (await keyed_http.get("/v1/keys", headers=admin)).json()["items"]
    assert {entry["name"] for entry in listed} == {"a test", "ci"}
    assert made["key"] not in str(listed)
    assert (await keyed_http.delete(f"/v1/keys/{made['id']}", headers=admin)).status_code == 204
    refused(await keyed_http.get("/v1/jobs", headers=key), 401, "not_authenticated")
    refused(await keyed_http.delete(f"/v1/keys/{made['id']}", headers=admin), 404, "key_not_found")


async def test_administrators_of_a_namespace_see_and_revoke_its_keys_only(
    keyed_http: httpx.AsyncClient, bearer: KeyMaker
) -> None:
    ours, theirs = await bearer("admin"), await bearer("admin", namespace="theirs")
    (our_key,) = (await keyed_http.get("/v1/keys", headers=ours)).json()["items"]
    (their_key,) = (await keyed_http.get("/v1/keys", headers=theirs)).json()["items"]
    assert our_key["id"] != their_key["id"]
    for caller, foreign in ((ours, their_key), (theirs, our_key)):
        refused(await keyed_http.delete(f"/v1/keys/{foreign['id']}", headers=caller), 404, "key_not_found")
    for caller in (ours, theirs):
        assert (await keyed_http.get("/v1/jobs", headers=caller)).status_code == 200
    assert (await keyed_http.delete(f"/v1/keys/{their_key['id']}", headers=theirs)).status_code == 204


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": []},
        {"name": " ", "scopes": ["admin"]},
        {"name": "x", "scopes": ["admin"], "namespace": "theirs"},
        {"name": "x", "scopes": ["admin"], "expires_in_s": 0},
    ],
)
async def test_a_bad_key_is_not_made(keyed_http: httpx.AsyncClient, bearer: KeyMaker, body: Json) -> None:
    answer = await keyed_http.post("/v1/keys", json=body, headers=await bearer("admin"))
    assert answer.status_code == 422, answer.text


async def test_secrets_are_shown_once(http: httpx.AsyncClient) -> None:
    made = await http.post("/v1/secrets/billing:rotate")
    assert made.status_code == 201
    assert made.json()["secret"].startswith("whsec_")
    again = (await http.post("/v1/secrets/billing:rotate", json={"grace_s": 60})).json()
    assert again["secret"] != made.json()["secret"]
    listed = (await http.get("/v1/secrets")).json()["items"]
    assert [(secret["name"], secret["version"]) for secret in listed] == [("billing", 2), ("billing", 1)]
    assert "whsec_" not in str(listed)
    job = await created(http, target={"url": "https://example.com/", "secret": "billing"})
    assert job["target"]["secret"] == "billing"


@pytest.mark.parametrize("name", ["Bad", "a%2Fb", ".", "x" * 129])
async def test_a_secrets_name_is_a_slug(http: httpx.AsyncClient, name: str) -> None:
    assert (await http.post(f"/v1/secrets/{name}:rotate")).status_code in (404, 422)


# ---------------------------------------------------------------- browsers


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://["},
    ],
)
async def test_a_page_of_another_site_changes_nothing(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    refused(await http.post("/v1/jobs", json=webhook_job(), headers=headers), 403, "cross_site_refused")
    assert (await http.get("/v1/jobs", headers=headers)).json()["items"] == []


@pytest.mark.parametrize(
    "headers", [{}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {"origin": BASE_URL}]
)
async def test_our_own_pages_and_programs_may(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await http.post("/v1/jobs", json=webhook_job(), headers=headers)).status_code == 201


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8623", "", "localhost.evil", "[::2]"]
)
async def test_a_development_server_answers_to_loopback_names_only(http: httpx.AsyncClient, host: str) -> None:
    refused(await http.get("/v1/jobs", headers={"host": host}), 400, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8623", "127.0.0.1", "[::1]:8623", "[::1]"])
async def test_loopback_names(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/v1/jobs", headers={"host": host})).status_code == 200


async def test_configured_hosts_are_the_only_ones_except_for_probes(
    make_context: ContextMaker, bearer: KeyMaker
) -> None:
    app = build_api(make_context(keyed=True, allowed_hosts=("jobs.example.com",)))
    key = await bearer("admin")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://jobs.example.com") as http:
        assert (await http.get("/v1/jobs", headers=key)).status_code == 200
        other = {"host": "10.1.2.3:8623"}
        refused(await http.get("/v1/jobs", headers=key | other), 400, "host_not_allowed")
        assert (await http.get("/healthz", headers=other)).status_code == 200
        assert (await http.get("/readyz", headers=other)).status_code == 200
