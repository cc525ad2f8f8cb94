"""A transaction of somebody else keeps rows for long: what it is not about goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import httpx
import pytest
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.database import look
from tests.support.fleet import delivering, make_key
from tests.support.postgres import MASTER_KEY, Databases

from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_job_id
from onbeat.domain.instants import format_instant
from onbeat.domain.model import SECOND_US
from onbeat.services.dispatch import BATCH

pytestmark = pytest.mark.slow

OTHERS = 20
ENOUGH = 6 * OTHERS

# Transactions that have due clocks in their hands.
WAITING_TO_RECORD = """
SELECT count(*) FROM pg_locks AS waited JOIN pg_locks AS held USING (pid)
WHERE waited.relation = 'live_runs'::regclass AND NOT waited.granted
AND held.relation = 'clocks'::regclass AND held.mode = 'RowShareLock' AND held.granted
"""


@pytest.fixture(autouse=True)
def master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the node and commands share."""
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)


@contextlib.asynccontextmanager
async def keeping(url: str, statement: str, *bindings: object) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """What a statement locks stays locked while the block runs."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(statement, *bindings)
            yield connection
    finally:
        await connection.close()


async def create(http: httpx.AsyncClient, schedule: object, *, count: int) -> list[str]:
    """Jobs of a queue that nobody works on. Answer: their ids."""
    body = {"name": "one of many", "schedules": [schedule], "target": {"queue": "nobody"}}
    created = (await http.post("/v1/jobs:batch", json={"jobs": [body] * count})).json()
    assert created["created"] == count
    return [item["job"]["id"] for item in created["items"]]


async def test_a_kept_run_of_one_job_holds_up_no_other_job(databases: Databases, tmp_path: Path) -> None:
    url = await databases.create()
    headers = {"authorization": f"Bearer {await make_key(url, 'admin')}"}
    async with delivering(url, log=tmp_path / "node.log") as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as http:
            kept, *others = await create(http, {"every": 1}, count=OTHERS + 1)
        async with asyncio.timeout(30):
            while not look(url, "select 1 from live_runs where job_id = ?", parse_job_id(kept)):
                await asyncio.sleep(0.1)
        async with keeping(url, "SELECT 1 FROM live_runs WHERE job_id = $1 FOR UPDATE", parse_job_id(kept)):
            await asyncio.sleep(1.5)  # what had begun before is over
            before = sum(len(recorded_instants(url, job_id)) for job_id in others)
            async with asyncio.timeout(30):
                while sum(len(recorded_instants(url, job_id)) for job_id in others) < before + ENOUGH:
                    await asyncio.sleep(0.5)
        assert await server.stop() == 0
    for job_id in [kept, *others]:
        assert recorded_instants(url, job_id) == planned_instants(url, job_id)
    await databases.drop(url)


async def test_what_is_due_behind_a_batch_that_stands_is_taken_by_a_second_one_beside_it(
    databases: Databases, tmp_path: Path
) -> None:
    url = await databases.create()
    headers = {"authorization": f"Bearer {await make_key(url, 'admin')}"}
    async with delivering(url, log=tmp_path / "node.log") as server:
        assert await server.wait_ready()
        async with (
            httpx.AsyncClient(base_url=server.url, headers=headers, timeout=20) as http,
            keeping(url, "LOCK TABLE live_runs IN SHARE ROW EXCLUSIVE MODE") as connection,  # nobody writes into it
        ):
            due_at = format_instant((host_time_us() // SECOND_US + 10) * SECOND_US)
            await create(http, {"at": due_at}, count=2 * BATCH)
            async with asyncio.timeout(60):
                while await connection.fetchval(WAITING_TO_RECORD) < 2:
                    await asyncio.sleep(0.02)
        async with asyncio.timeout(60):
            while look(url, "select count(*) from runs") != [(2 * BATCH,)]:
                await asyncio.sleep(0.1)
        assert await server.stop() == 0
    await databases.drop(url)
