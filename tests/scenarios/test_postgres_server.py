"""Nodes on a PostgreSQL server that is not there yet, goes away, or is not theirs; and what they never tell."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.fleet import LOOPBACK, make_key
from tests.support.postgres import MASTER_KEY, Databases, PostgresServer, running_postgres
from tests.support.process import QUICK, ServerProcess, running
from tests.support.receiver import Receiver, receiving

from onbeat.api.awaiting import AWAITED

PASSWORD = "tr0ub4dor"  # of a server that trusts everybody

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all nodes and commands share."""
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server of our own, to be stopped and started."""
    with running_postgres() as server:
        yield server


def node(url: str, log: Path, **settings: str) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat serve` with a URL from a file, as a container is given its secrets."""
    secret = log.with_suffix(".url")
    secret.write_text(url.replace("onbeat@", f"onbeat:{PASSWORD}@"))
    return running(
        lambda port: ["-m", "onbeat", "serve", "--port", str(port)],
        log=log,
        env=QUICK | LOOPBACK | {"ONBEAT_DATA_FILE": str(secret), "ONBEAT_LOG_LEVEL": "debug"} | settings,
    )


async def says(log: Path, event: str) -> None:
    async with asyncio.timeout(30):
        while event not in await asyncio.to_thread(log.read_text):
            await asyncio.sleep(0.05)


async def until_ready(http: httpx.AsyncClient, *, status: int = 200) -> None:
    async with asyncio.timeout(40):
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await http.get("/readyz")).status_code == status:
                    return
            await asyncio.sleep(0.05)


async def put_job(http: httpx.AsyncClient, receiver: Receiver) -> str:
    body = {"key": "beat", "name": "beat", "schedules": [{"every": 1}], "target": {"url": receiver.url}}
    return str((await http.put("/v1/jobs/by-key/beat", json=body)).raise_for_status().json()["id"])


def client(server: ServerProcess, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=20)


async def test_a_node_that_starts_before_its_database_waits_for_it_and_makes_the_schema(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    log = tmp_path / "node.log"
    postgres.stop()
    async with node(postgres.url(), log) as server:
        await says(log, "database_awaited")
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/healthz")).json()["status"] == "ok"
            waiting = await http.get("/readyz")
            assert (waiting.status_code, waiting.json()["reasons"]) == (503, [AWAITED])
            refused = await http.post("/v1/jobs", json={})
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            assert int(refused.headers["retry-after"]) > 0
            postgres.start()
            await until_ready(http)
        assert await server.stop() == 0
    assert PASSWORD not in log.read_text()


async def test_a_node_that_waits_for_its_database_can_be_stopped(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    async with node("postgresql://onbeat@127.0.0.1:1/onbeat", log) as server:
        await says(log, "database_awaited")
        async with httpx.AsyncClient(base_url=server.url) as http:
            assert (await http.get("/healthz")).status_code == 200
        assert await server.stop() == 0
    assert PASSWORD not in log.read_text()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
async def test_a_database_that_goes_away_and_comes_back_loses_no_instant(
    postgres: PostgresServer, tmp_path: Path, how: signal.Signals
) -> None:
    log = tmp_path / "node.log"
    url = postgres.url()
    key = await make_key(url, "admin")
    async with receiving() as receiver, node(url, log) as server:
        assert await server.wait_ready()
        async with client(server, key) as http:
            job_id = await put_job(http, receiver)
            await receiver.wait_for(lambda calls: len(calls) >= 2)
            postgres.stop(how=how)
            await until_ready(http, status=503)
            assert (await http.get("/healthz")).status_code == 200
            refused = await http.get("/v1/jobs")
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            seen = len(receiver.calls)
            postgres.start()
            await until_ready(http)
            await receiver.wait_for(lambda calls: len(calls) >= seen + 2)
            told = refused.text + (await http.get("/metrics")).text + (await http.get("/readyz")).text
        arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode()
        assert await server.stop() == 0
    assert recorded_instants(url, job_id) == planned_instants(url, job_id)
    assert PASSWORD not in told + arguments + log.read_text()


async def test_a_node_with_another_master_key_is_refused(databases: Databases, tmp_path: Path) -> None:
    url = await databases.create()
    other = base64.b64encode(os.urandom(32)).decode()
    async with node(url, tmp_path / "1.log") as first:
        assert await first.wait_ready()
        async with node(url, tmp_path / "2.log", ONBEAT_MASTER_KEY=other) as second:
            assert await second.wait_exit() == 2
        assert "another master key" in (tmp_path / "2.log").read_text()
        assert await first.stop() == 0
    await databases.drop(url)


async def test_of_two_nodes_each_fire_is_delivered_by_one_and_the_second_goes_on_alone(
    databases: Databases, tmp_path: Path
) -> None:
    url = await databases.create()
    key = await make_key(url, "admin")
    async with receiving() as receiver, node(url, tmp_path / "1.log") as first, node(url, tmp_path / "2.log") as second:
        assert await first.wait_ready()
        assert await second.wait_ready()
        async with client(first, key) as http:
            job_id = await put_job(http, receiver)
        await receiver.wait_for(lambda calls: len(calls) >= 4)
        await first.kill()
        seen = len(receiver.calls)
        await receiver.wait_for(lambda calls: len({call.run_id for call in calls[seen:]}) >= 4)
        assert await second.stop() == 0
    assert recorded_instants(url, job_id) == planned_instants(url, job_id)
    # What was on the wire when the first node died may come again, under the same id and as a later attempt.
    sent = Counter((call.run_id, call.attempt) for call in receiver.calls)
    assert [sending for sending, times in sent.items() if times > 1] == []
    assert len({call.scheduled_at for call in receiver.calls}) == len({call.run_id for call in receiver.calls})
    await databases.drop(url)
