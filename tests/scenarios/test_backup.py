"""A copy of a server that fires, restored after its death: the same ids, every planned instant accounted for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from tests.chaos.cluster import create_jobs, wait_until_at_rest
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.fleet import make_key, serving
from tests.support.receiver import Call, Receiver, receiving
from tests.support.starting import run_fork

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.store.open import open_store
from onbeat.testing.history import Seen, judge
from onbeat.testing.rows import read_history

JOBS = 60
SECONDS = 40
ENOUGH_S = 20
"""Copies are made until that long before the last instant, so that fires follow the last copy however slow it is."""


async def db(command: str, path: Path, *arguments: str, data: Path) -> None:
    """`onbeat db …`, as an operator calls it."""
    await run_fork("-m", "onbeat", "db", command, str(path), "--data", str(data), *arguments)


async def hear_more(receiver: Receiver, count: int) -> None:
    """Until so many more calls have come."""
    enough = len(receiver.calls) + count
    await receiver.wait_for(lambda calls: len(calls) >= enough)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_hot_copy_restored_after_a_kill_accounts_for_every_instant(data: Path, tmp_path: Path) -> None:
    key = await make_key(data, "admin")
    kept, restored = tmp_path / "kept.sqlite3", tmp_path / "elsewhere" / "onbeat.sqlite3"
    restored.parent.mkdir()
    busy = {"ONBEAT_WORKERS": "30"}

    async def answer(_call: Call) -> int:
        await asyncio.sleep(0.05)
        return 200

    async with receiving(answer) as receiver:
        async with serving(data, settings=busy) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                first, policies = host_time_us() // SECOND_US + 3, {"grace_s": 3_600}
                planned = await create_jobs(http, receiver.url, jobs=JOBS, first=first, seconds=SECONDS, **policies)
            copies = 0
            while copies == 0 or host_time_us() < planned[0].must[-1] - ENOUGH_S * SECOND_US:
                await db("backup", kept, "--force", data=data)
                copies += 1
                await hear_more(receiver, JOBS)
                assert server.is_running, f"the server died of copy {copies}"
            await server.kill()
        before = len(receiver.calls)
        await db("restore", kept, data=restored)
        async with serving(restored, settings=busy) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                await wait_until_at_rest(http)
            assert await server.stop() == 0
        calls = receiver.calls
    store = await open_store(str(restored), create=False)
    try:
        # The receiver remembers what the copy does not know of, so deliveries are judged by their ids alone.
        history = await read_history(store, planned=planned, deliveries=None)
    finally:
        await store.close()
    verdict = judge(history, required=Seen(fires=JOBS * SECONDS // 2))
    assert verdict.holds, verdict.explain()
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call in calls:
        ids[call.headers["onbeat-job"], call.scheduled_at].add(call.run_id)
    assert {fire: found for fire, found in ids.items() if len(found) > 1} == {}
    again = {call.run_id for call in calls[:before]} & {call.run_id for call in calls[before:]}
    assert again, "no fire after the copy was made again"


@pytest.mark.slow
async def test_what_is_restored_paused_starts_nothing_until_it_is_resumed(data: Path, tmp_path: Path) -> None:
    key, kept, restored = await make_key(data, "admin"), tmp_path / "kept.sqlite3", tmp_path / "restored.sqlite3"
    headers, busy = {"authorization": f"Bearer {key}"}, {"ONBEAT_WORKERS": "4"}
    async with receiving() as receiver:
        async with serving(data, settings=busy) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
                body = {"name": "beat", "schedules": [{"every": 1}], "target": {"url": receiver.url}, "grace_s": 3_600}
                job = (await http.put("/v1/jobs/by-key/beat", json=body)).raise_for_status().json()["id"]
            await hear_more(receiver, 2)
            await db("backup", kept, data=data)
            await hear_more(receiver, 2)
            assert await server.stop() == 0
        before = len(receiver.calls)
        await db("restore", kept, "--paused", data=restored)
        async with serving(restored, settings=busy) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
                held = (await http.get(f"/v1/jobs/{job}")).raise_for_status().json()
                assert (held["state"], held["reason"]) == ("paused", "restored from kept.sqlite3")
                assert len(receiver.calls) == before
                resumed = await http.post("/v1/resume", json={"scope": "all"})
                assert resumed.raise_for_status().json() == {"jobs": 1}
            await hear_more(receiver, 2)
            assert await server.stop() == 0
        calls = receiver.calls
    assert len({call.run_id for call in calls}) == len({call.scheduled_at for call in calls})
    assert recorded_instants(restored, job) == planned_instants(restored, job)
