"""From a data file to PostgreSQL and back, with real servers and a copy that is killed: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

import apsw
import httpx
import pytest
from tests.store.factories import Maker
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.database import Data
from tests.support.fleet import make_key, serving
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.receiver import Receiver, receiving

from onbeat.domain.errors import ConfigError
from onbeat.store.moving import BATCH_ROWS
from onbeat.store.open import open_store

ROWS = int(os.environ.get("ONBEAT_TEST_MOVED_RUNS", "70000"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both sides share."""
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)


def copying(source: Data, target: Data, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "onbeat", "db", "copy", str(source), str(target), *arguments)


async def copy(source: Data, target: Data) -> dict[str, tuple[int, int, str]]:
    """Of each table: its rows, how many were found in the target, and the checksum."""
    process = await asyncio.create_subprocess_exec(*copying(source, target, "--json"), stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    tables = json.loads(output)["tables"]
    return {table["name"]: (table["rows"], table["found"], table["checksum"]) for table in tables}


async def kill_copy(source: Data, target: Data) -> None:
    """Begin a copy and kill it when its first batch of history is there."""
    process = await asyncio.create_subprocess_exec(*copying(source, target), stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(b"ended_runs: "):
            process.kill()
    assert await process.wait() == -9


async def make_history(path: Path) -> None:
    store = await open_store(str(path))
    for number in range(20):
        await Maker(store).job(key=f"job-{number}")
    await store.close()
    connection = apsw.Connection(str(path))
    with connection:
        connection.execute(
            """
            INSERT INTO ended_runs (
                slot, job_id, scheduled_at, state, late, trigger, job_version, attempt, created_at, finished_at, worker
            )
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT ?)
            SELECT slot, job_id, n * 1000000, 'succeeded', n % 7 = 0, 'schedule', 1, 1, n, n * 1000000, 'worker-' || n
            FROM numbers, jobs
            """,
            (ROWS // 20,),
        )
    connection.close()


async def test_a_copy_that_was_killed_goes_on_and_ends_the_same(databases: Databases, tmp_path: Path) -> None:
    path, back = tmp_path / "onbeat.sqlite3", tmp_path / "back.sqlite3"
    await make_history(path)
    url = await databases.create(has_schema=False)
    for source, target in ((path, url), (url, back)):
        await kill_copy(source, target)
        with pytest.raises(ConfigError):
            await open_store(str(target), create=False)
        again = await copy(source, target)
        rows, found, _checksum = again["ended_runs"]
        assert BATCH_ROWS <= found < rows == ROWS // 20 * 20
        assert again["jobs"][:2] == (20, 20)
    whole = await copy(path, await databases.create(has_schema=False))
    assert {name: (rows, checksum) for name, (rows, _found, checksum) in again.items()} == {
        name: (rows, checksum) for name, (rows, _found, checksum) in whole.items()
    }
    await databases.drop(url)


async def fire_for_a_while(data: Data, receiver: Receiver, key: str, *, creates: bool) -> str:
    """Serve until some more fires have been delivered, then stop. Answer: the job."""
    async with serving(data, settings={"ONBEAT_WORKERS": "4"}) as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
            if creates:
                body = {"name": "beat", "schedules": [{"every": 1}], "target": {"url": receiver.url}}
                (await http.put("/v1/jobs/by-key/beat", json=body)).raise_for_status()
            job = (await http.get("/v1/jobs/by-key/beat")).raise_for_status().json()
        seen = len(receiver.calls)
        await receiver.wait_for(lambda calls: len(calls) >= seen + 3)
        assert await server.stop() == 0
    return str(job["id"])


async def test_a_server_goes_on_firing_on_the_other_engine_and_back_again(databases: Databases, tmp_path: Path) -> None:
    path, back = tmp_path / "onbeat.sqlite3", tmp_path / "back.sqlite3"
    url = await databases.create(has_schema=False)
    key = await make_key(path, "admin")
    async with receiving() as receiver:
        job_id = await fire_for_a_while(path, receiver, key, creates=True)
        await copy(path, url)
        assert await fire_for_a_while(url, receiver, key, creates=False) == job_id
        await copy(url, back)
        assert await fire_for_a_while(back, receiver, key, creates=False) == job_id
        calls = receiver.calls
    for data in (path, url, back):
        assert recorded_instants(data, job_id) == planned_instants(data, job_id)
    assert [fire for fire, times in Counter(call.run_id for call in calls).items() if times > 1] == []
    assert len({call.scheduled_at for call in calls}) == len(calls)
    await databases.drop(url)
