"""Health, metrics, and what is answered when something is wrong with the server itself."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.api.bodies import BASE_URL, ContextMaker, created, refused, webhook_job
from tests.api.conftest import KeyMaker

from onbeat.api.application import build_api
from onbeat.api.context import ApiContext
from onbeat.app.services import Services
from onbeat.clock import ManualClock
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.ids import parse_job_id
from onbeat.store.values import Counts, JobChange


async def client_of(context: ApiContext) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_api(context), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=BASE_URL) as client:
        yield client


async def test_a_healthy_server_says_so_to_anybody(keyed_http: httpx.AsyncClient) -> None:
    health = await keyed_http.get("/healthz")
    assert (health.status_code, health.json()) == (200, {"status": "ok", "version": "1.2.3"})
    ready = await keyed_http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": [], "warnings": []})


async def unavailable() -> Counts:
    raise StoreUnavailable


async def hanging() -> Counts:
    await asyncio.Event().wait()
    raise AssertionError("never set")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counts": unavailable}, "the database does not answer"),
        ({"counts": hanging}, "the database does not answer"),
        ({"failing_loops": lambda: ["dispatcher"]}, "the dispatcher loop fails"),
        ({"is_stopping": lambda: True}, "stopping"),
    ],
)
async def test_a_server_that_does_not_do_its_work_says_why(
    make_context: ContextMaker, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], reason: str
) -> None:
    if changes.get("counts") is hanging:
        monkeypatch.setattr("onbeat.api.health.STORE_ANSWERS_WITHIN_S", 0.01)
    async for http in client_of(dataclasses.replace(make_context(), **changes)):  # type: ignore[arg-type]
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"ready": False, "reasons": [reason], "warnings": []})
        assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("skew_s", "warning"),
    [
        (0.0, None),
        (2.0, None),
        (2.1, "this host's clock is 2.1 s ahead of the database's"),
        (-300.0, "this host's clock is 300.0 s behind the database's"),
    ],
)
async def test_a_host_whose_clock_is_off_says_so_and_stays_in_rotation(
    make_context: ContextMaker, skew_s: float, warning: str | None
) -> None:
    # Case C05: the clock of a node decides nothing, and its health shows how far it is off.
    context = dataclasses.replace(make_context(), clock=ManualClock(skew_us=round(skew_s * 1e6)))
    async for http in client_of(context):
        answer = await http.get("/readyz")
        expected = {"ready": True, "reasons": [], "warnings": [] if warning is None else [warning]}
        assert (answer.status_code, answer.json()) == (200, expected)
        assert f"onbeat_clock_skew_seconds {skew_s}" in (await http.get("/metrics")).text


async def test_metrics_are_text_for_prometheus(keyed_http: httpx.AsyncClient, bearer: KeyMaker) -> None:
    answer = await keyed_http.get("/metrics", headers=await bearer("admin"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "onbeat_dispatch_lag_seconds" in answer.text


async def test_a_database_that_does_not_answer_is_503_with_retry_after(
    make_context: ContextMaker, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(*_: object, **__: object) -> None:
        raise StoreUnavailable

    async for http in client_of(make_context()):
        monkeypatch.setattr(services.store.jobs, "create", create)
        key = {"idempotency-key": '"k"'}
        answer = await http.post("/v1/jobs", json=webhook_job(), headers=key)
        refused(answer, 503, "store_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        monkeypatch.undo()
        assert (await http.post("/v1/jobs", json=webhook_job(), headers=key)).status_code == 201


async def test_a_fault_of_ours_tells_its_id_and_nothing_else(
    make_context: ContextMaker, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(services.store.jobs, "find", find)
    async for http in client_of(make_context()):
        answer = await http.get("/v1/jobs")
        problem = refused(answer, 500, "internal")
        assert "secret of the house" not in answer.text
        assert problem["request_id"] == answer.headers["x-request-id"]


async def test_every_answer_has_an_id_of_its_own(http: httpx.AsyncClient) -> None:
    answers = [await http.get("/v1/jobs", headers={"x-request-id": "mine\\n"}) for _ in range(2)]
    answers.append(await http.get("/v1/jobs", headers={"host": "evil.example"}))
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 3
    assert all(request_id.startswith("req_") for request_id in ids)
    assert answers[2].json()["request_id"] == answers[2].headers["x-request-id"]


@pytest.mark.parametrize(
    "definition",
    [
        "",
        "{}",
        '{"schedules": [{"kind": "every", "every_s": 0, "anchor_at": 0}], "target": {"kind": "queue", "queue": "q"}}',
        '{"schedules": [{"kind": "at", "at": 99999999999999999999}], "target": {"kind": "queue", "queue": "q"}}',
        '{"schedules": [{"kind": "at", "at": 9000000000000000000}], "target": {"kind": "queue", "queue": "q"}}',
        '{"schedules": [{"kind": "cron", "expression": "61 * * * *", "timezone": ""}],'
        ' "target": {"kind": "queue", "queue": "q", "payload": "not JSON"}}',
    ],
)
async def test_a_row_that_nobody_of_ours_wrote_can_be_read_and_mended(
    http: httpx.AsyncClient, services: Services, definition: str
) -> None:
    # Case D07: a definition written straight into the database.
    job = await created(http)
    number = parse_job_id(job["id"])
    change = JobChange(definition=definition, max_running=1)
    await services.store.jobs.change(number, now=services.clock.now(), decide=lambda _: change)
    path = f"/v1/jobs/{job['id']}"
    assert (await http.get(path)).status_code == 200
    assert (await http.get("/v1/jobs")).status_code == 200
    assert (await http.get(f"{path}/next")).status_code in (200, 422)
    broken = await http.patch(path, json={"name": "x"})
    assert broken.status_code in (200, 422), broken.text
    paused = await http.post(f"{path}/pause", json={})
    assert paused.status_code == 200, paused.text
    mended = await http.patch(path, json={"schedules": [{"every": "1h"}], "target": {"queue": "mail", "payload": None}})
    assert mended.status_code == 200, mended.text
    resumed = (await http.post(f"{path}/resume", json={})).json()
    assert (resumed["state"], resumed["next_fire_at"] is not None) == ("active", True)
    await services.store.jobs.change(number, now=services.clock.now(), decide=lambda _: change)
    assert (await http.delete(path)).status_code == 204
