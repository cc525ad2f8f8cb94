"""Limits on time, kept by the scheduler whatever workers say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from tests.support.fleet import make_key, serving

from onbeat.client.link import HttpLink
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.store.values import Finish, FinishResult, LeaseStatus


async def test_a_wedged_worker_that_goes_on_reporting_is_cut_at_the_end_of_the_run(data: Path) -> None:
    key = await make_key(data, "admin")
    async with serving(data) as server:
        assert await server.wait_ready()
        async with (
            httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http,
            HttpLink(server.url, key=key, worker="wedged") as link,
        ):
            body = {"name": "wedged", "schedules": [{"every": "1h"}], "target": {"queue": "mail"}, "max_run_time_s": 2}
            job = (await http.post("/v1/jobs", json=body)).json()
            stuck, waiting = [(await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json() for _ in range(2)]
            (held,) = await link.claim(queue="mail", limit=1, wait_s=5)
            statuses = []
            async with asyncio.timeout(20):
                while (await http.get(f"/v1/runs/{stuck['id']}")).json()["state"] == "running":
                    statuses += await link.extend([(held.key, held.token)])
                    await asyncio.sleep(0.1)
            assert set(statuses) <= {LeaseStatus.LIVE, LeaseStatus.LEASE_LOST}
            assert statuses.count(LeaseStatus.LIVE) >= 10  # a lease lasts 1 s and was extended to the end of the run
            run = (await http.get(f"/v1/runs/{stuck['id']}")).json()
            assert (run["state"], run["error"]) == ("timed_out", "max_run_time passed")
            assert await link.extend([(held.key, held.token)]) == [LeaseStatus.LEASE_LOST]
            outcome = Outcome(OutcomeKind.SUCCEEDED, held.granted_at, 1)
            (late,) = await link.finish([Finish(held.key, held.token, outcome)])
            assert late.result == FinishResult.RUN_TERMINAL
            (following,) = await link.claim(queue="mail", limit=1, wait_s=5)  # the lane is free again
            assert (await http.get(f"/v1/runs/{waiting['id']}")).json()["state"] == "running"
            assert following.key.scheduled_at > held.key.scheduled_at
            listed = (await http.get("/v1/runs", params={"state": "timed_out"})).json()["items"]
            assert [item["id"] for item in listed] == [stuck["id"]]
            assert (await http.get("/v1/runs", params={"state": "failed"})).json()["items"] == []
            metrics = (await http.get("/metrics")).text
    assert 'onbeat_runs_ended_total{state="timed_out"} 1.0' in metrics
    assert "onbeat_runs_overdue 0.0" in metrics
    assert 'onbeat_runs_ended_total{state="failed"}' not in metrics
