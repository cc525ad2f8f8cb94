"""A transaction of somebody else keeps a row of one job for long: the fires of all others go on."""

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
from tests.support.fleet import LOOPBACK, make_key
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.process import QUICK, running

from onbeat.domain.ids import parse_job_id

pytestmark = pytest.mark.slow

OTHERS = 20
ENOUGH = 6 * OTHERS


@contextlib.asynccontextmanager
async def keeping(url: str, statement: str, *bindings: object) -> AsyncIterator[None]:
    """The rows that a statement locks stay locked while the block runs."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            assert await connection.fetch(statement, *bindings)
            yield
    finally:
        await connection.close()


async def test_a_kept_run_of_one_job_holds_up_no_other_job(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    url = await databases.create()
    key = await make_key(url, "admin")
    async with running(
        lambda port: ["-m", "onbeat", "serve", "--port", str(port)],
        log=tmp_path / "node.log",
        env=QUICK | LOOPBACK | {"ONBEAT_DATA": url},
    ) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            body = {"name": "each second", "schedules": [{"every": 1}], "target": {"queue": "nobody"}}
            created = (await http.post("/v1/jobs:batch", json={"jobs": [body] * (OTHERS + 1)})).json()
            kept, *others = [item["job"]["id"] for item in created["items"]]
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
