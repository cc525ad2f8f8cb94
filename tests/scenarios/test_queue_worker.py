"""The worker of docs/queues.md, word for word, against a real server; and what claims by queue promise."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.process import ServerProcess, running
from tests.support.scheduler import every, scheduling

from onbeat.domain.model import MisfirePolicy, QueueTarget
from onbeat.domain.states import Trigger
from onbeat.services.handoff import Parked

PAGE = Path(__file__).parents[2] / "docs" / "queues.md"


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


def shown_worker() -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


async def until_run_is(server: ServerProcess, run_id: str, state: str) -> dict[str, object]:
    async with asyncio.timeout(20), httpx.AsyncClient(base_url=server.url) as http:
        while (run := (await http.get(f"/v1/runs/{run_id}")).json())["state"] != state:
            await asyncio.sleep(0.02)
    return dict(run)


async def test_the_worker_of_the_page_does_the_work_of_its_queue(start_server: StartServer, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(shown_worker())
    async with start_server() as server:
        assert await server.wait_ready()
        async with (
            running(lambda _port: [str(script)], log=tmp_path / "out.log", env={"ONBEAT_URL": server.url}) as worker,
            httpx.AsyncClient(base_url=server.url) as http,
        ):
            body = {"name": "mail", "schedules": [{"every": 1}], "target": {"queue": "mail", "payload": {"to": "ann"}}}
            job = (await http.post("/v1/jobs", json=body)).json()
            body = {"name": "other", "schedules": [{"every": 3_600}], "target": {"queue": "other"}}
            other = (await http.post("/v1/jobs", json=body)).json()
            await http.post(f"/v1/jobs/{other['id']}/trigger", json={})
            by_hand = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={"payload": "special"})).json()
            run = await until_run_is(server, by_hand["id"], "succeeded")
            assert (run["worker"], run["queue"], run["attempt"]) == ("mailer-1", "mail", 1)
            async with asyncio.timeout(20):
                while "attempt 1: {'to': 'ann'}" not in await asyncio.to_thread((tmp_path / "out.log").read_text):
                    await asyncio.sleep(0.05)
            assert worker.is_running
            runs = (await http.get("/v1/runs", params={"job": other["id"]})).json()["items"]
            assert [run["state"] for run in runs] == ["pending"]
        assert f"{by_hand['id']} attempt 1: special" in (tmp_path / "out.log").read_text()


async def test_a_fire_goes_straight_to_a_claim_that_waits_for_its_queue(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduling(data) as scheduler:
        for queue in ("mail", "other"):
            await scheduler.job(every(60), target=QueueTarget(queue=queue))
        await scheduler.settle()
        waits, park = asyncio.Event(), scheduler.handoff.park

        def parking(*arguments: Any, **named: Any) -> Parked:
            waits.set()
            return park(*arguments, **named)

        monkeypatch.setattr(scheduler.handoff, "park", parking)
        claim = asyncio.create_task(scheduler.leasing.claim(queue="mail", limit=5, wait_s=90))
        await waits.wait()
        scheduler.clock.advance(60)
        batch = (await scheduler.dispatch.fire_due()).batch
        (held,) = await claim
        assert (held.queue, held.attempt, held.trigger) == ("mail", 1, Trigger.SCHEDULE)
        assert ([run.key for run in batch.leased], batch.pending) == ([held.key], 1)  # the other's waits in its queue


async def test_a_batch_is_claimed_at_once_and_a_stale_token_of_a_queue_worker_changes_nothing(data: str) -> None:
    async with scheduling(data) as scheduler:
        jobs = [await scheduler.job(every(3_600), target=QueueTarget(queue="mail"), name=f"j{n}") for n in range(5)]
        for job in jobs:
            await scheduler.runs.trigger(job.job_id, payload=None)
        assert await scheduler.claim() == []  # webhook workers do not see them
        held = await scheduler.leasing_for("mailer").claim(queue="mail", limit=4, wait_s=0)
        assert len(held) == 4
        scheduler.clock.advance(31)
        await scheduler.reap.expire_leases()
        again = await scheduler.leasing_for("second").claim(queue="mail", limit=10, wait_s=0)
        assert sorted(run.attempt for run in again) == [1, 2, 2, 2, 2]
        await scheduler.end(held)
        assert {(await scheduler.runs.get(run.key)).worker for run in again} == {"second"}
        await scheduler.end(again)
        assert {(await scheduler.runs.get(run.key)).state.value for run in again} == {"succeeded"}


async def test_urgent_jobs_go_first_in_queues_and_for_webhooks_and_recovery_goes_last(data: str) -> None:
    async with scheduling(data) as scheduler:
        catch_up = MisfirePolicy(policy="catch_up", max=1)
        recovering = await scheduler.job(every(60), misfire=catch_up, priority=9, name="recovering")
        scheduler.clock.advance(645)
        await scheduler.dispatch.fire_due()
        expected = [recovering.job_id]
        for priority in (0, 5, 9):
            job = await scheduler.job(every(3_600), priority=priority, name=f"priority {priority}")
            await scheduler.runs.trigger(job.job_id, payload=None)
            expected.insert(0, job.job_id)
        assert [held.key.job_id for held in await scheduler.claim()] == expected
