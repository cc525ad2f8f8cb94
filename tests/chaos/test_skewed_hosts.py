"""Case C05: nodes and workers on hosts whose clocks are five minutes off do their work by the database's time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, skewed_by, wait_until_at_rest
from tests.support.fleet import make_key, working
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.receiver import Call, receiving

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.history import Seen

JOBS = 10
SECONDS = 10
# Far shorter than the clocks are apart, and long enough for a busy machine.
LENGTHS = {"ONBEAT_LEASE_S": "20", "ONBEAT_HEARTBEAT_S": "1"}
TIMESTAMP_TOLERANCE_S = 60
"""Receivers refuse older signatures after five minutes, as a rule."""


async def tells_of_skew(http: httpx.AsyncClient) -> bool:
    ready = await http.get("/readyz")
    assert ready.status_code == 200, ready.text
    return any("300" in warning for warning in ready.json()["warnings"])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("skew_s", [300, -300])
async def test_hosts_whose_clocks_are_minutes_off_take_nothing_early_and_nothing_from_each_other(
    skew_s: int, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    url = await databases.create()
    key = await make_key(url, "admin")
    calls = [tmp_path / "right.jsonl", tmp_path / "skewed.jsonl"]

    async def answer(_call: Call) -> int:
        await asyncio.sleep(2)
        return 200

    async with (
        receiving(answer) as receiver,
        serving_recorded(url, port=free_port(), calls=calls[0], settings=LENGTHS) as right,
        serving_recorded(url, port=free_port(), calls=calls[1], settings=LENGTHS, skew_s=skew_s) as skewed,
        working(right.url, key, tmp_path / "skewed", concurrency=50, settings=LENGTHS, inside=skewed_by(skew_s)),
        working(skewed.url, key, tmp_path / "right", concurrency=50, settings=LENGTHS),
    ):
        assert await right.wait_ready(timeout_s=90)
        assert await skewed.wait_ready(timeout_s=90)
        headers = {"authorization": f"Bearer {key}"}
        async with (
            httpx.AsyncClient(base_url=right.url, headers=headers, timeout=30) as http,
            httpx.AsyncClient(base_url=skewed.url, headers=headers, timeout=30) as other,
        ):
            first = host_time_us() // SECOND_US + 3
            planned = await create_jobs(
                other, receiver.url, jobs=JOBS, first=first, seconds=SECONDS, overlap="allow", max_running=100
            )
            await wait_until_at_rest(http)
            assert not await tells_of_skew(http)
            assert await tells_of_skew(other)
            nodes = (await http.get("/v1/nodes")).json()["items"]
        assert sorted(round(node["clock_skew_s"] / 10) for node in nodes) == sorted([0, skew_s // 10])
        assert sorted(len(node["warnings"]) for node in nodes) == [0, 1]
        assert await skewed.stop() == 0
        assert await right.stop() == 0
    required = Seen(fires=JOBS * SECONDS // 2)
    verdict = await judge_rows(url, calls=calls, planned=planned, deliveries=receiver.deliveries(), required=required)
    await databases.drop(url)
    assert verdict.holds, verdict.explain()
    assert (verdict.seen.reclaims, verdict.seen.duplicate_deliveries) == (0, 0)
    for call in receiver.calls:
        assert abs(int(call.headers["webhook-timestamp"]) - call.arrived_at / SECOND_US) < TIMESTAMP_TOLERANCE_S
