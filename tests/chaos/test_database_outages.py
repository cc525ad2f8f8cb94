"""One node, its workers and its API behind a way to PostgreSQL that breaks, in each of the manners in which it can.

Case C07, promise P19: within 15 s of the database being back everything works again without a restart, nothing is lost
or doubled, and callers of the API were told 503 with a time to come again, never 500.

`CHAOS_OUTAGE_S=90` makes each outage as long as in the report; by default it is 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
from tests.chaos.cluster import create_jobs, judge_rows, serving_recorded, wait_until_at_rest
from tests.support.fleet import make_key
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY, PostgresServer, running_postgres
from tests.support.proxy import Proxy, proxying
from tests.support.receiver import Receiver, receiving
from tests.support.starting import start_fork

from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.history import Seen

OUTAGE_S = float(os.environ.get("CHAOS_OUTAGE_S", "10"))
RECOVERED_WITHIN_S = 15.0
JOBS = 20
SECONDS = round(OUTAGE_S) + 20


@pytest.fixture
def postgres(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """A server of our own."""
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    with running_postgres() as server:
        yield server


@dataclass
class Scene:
    """What an outage may be made of."""

    postgres: PostgresServer
    proxy: Proxy

    async def run(self, statement: str) -> None:
        """Past the proxy, as an administrator."""
        administrator = await asyncpg.connect(self.postgres.url())
        try:
            await administrator.execute(statement)
        finally:
            await administrator.close()

    async def end_connections(self) -> None:
        await self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


Outage = Callable[[Scene], Awaitable[None]]


async def connections_ended(scene: Scene) -> None:
    for _ in range(10):
        with contextlib.suppress(asyncpg.AdminShutdownError, asyncpg.ConnectionDoesNotExistError):
            await scene.end_connections()
        await asyncio.sleep(OUTAGE_S / 10)


async def server_stopped(scene: Scene) -> None:
    await asyncio.to_thread(scene.postgres.stop, how=signal.SIGINT)
    await asyncio.sleep(OUTAGE_S)
    await asyncio.to_thread(scene.postgres.start)


async def packets_dropped(scene: Scene) -> None:
    """And never delivered: what was open stays silent, as behind a router that has forgotten it."""
    scene.proxy.stall()
    await asyncio.sleep(OUTAGE_S)
    scene.proxy.forget()


async def answers_dropped(scene: Scene) -> None:
    """One way only: what is asked arrives and is done, and nobody hears of it."""
    scene.proxy.to_client.stall()
    await asyncio.sleep(OUTAGE_S)
    scene.proxy.forget()


async def packets_delayed_and_cut(scene: Scene) -> None:
    scene.proxy.to_server.delay_s = scene.proxy.to_client.delay_s = 0.5
    for _ in range(4):
        await asyncio.sleep(OUTAGE_S / 4)
        scene.proxy.cut()
    scene.proxy.to_server.delay_s = scene.proxy.to_client.delay_s = 0.0


async def failed_over_to_a_standby(scene: Scene) -> None:
    """Connections lead to a server that can only be read, until there is another one."""
    await scene.run("ALTER SYSTEM SET default_transaction_read_only = on")
    await scene.run("SELECT pg_reload_conf()")
    await scene.end_connections()
    await asyncio.sleep(OUTAGE_S)
    await scene.run("ALTER SYSTEM RESET default_transaction_read_only")
    await scene.run("SELECT pg_reload_conf()")


@dataclass
class Callers:
    """Those who use the API all along, and what they are answered."""

    http: httpx.AsyncClient
    job: str
    statuses: set[int] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    async def call(self) -> None:
        for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/runs"), ("POST", f"/v1/jobs/{self.job}/pause")):
            answer = await self.http.request(method, path, json={} if method == "POST" else None)
            self.statuses.add(answer.status_code)
            if answer.status_code == 503:
                if answer.json()["code"] != "store_unavailable" or int(answer.headers["retry-after"]) <= 0:
                    self.faults.append(answer.text)
            elif answer.status_code >= 400:
                self.faults.append(f"{answer.status_code} {answer.text}")
        health = await self.http.get("/healthz")
        if health.status_code != 200:
            self.faults.append(f"/healthz {health.status_code}")


@contextlib.asynccontextmanager
async def calling(http: httpx.AsyncClient) -> AsyncIterator[Callers]:
    body = {"name": "paused", "schedules": [{"every": "1h"}], "target": {"queue": "none"}}
    job = (await http.post("/v1/jobs", json=body)).raise_for_status().json()
    callers = Callers(http, job["id"])
    await callers.call()

    async def go_on() -> None:
        while True:
            await callers.call()
            await asyncio.sleep(0.1)

    task = asyncio.create_task(go_on())
    try:
        yield callers
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def works_again(http: httpx.AsyncClient, receiver: Receiver, *, within_s: float) -> None:
    """Ready, every loop of it, and runs arrive."""
    since = host_time_us()
    said = ""
    try:
        async with asyncio.timeout(within_s):
            while (answer := await http.get("/readyz")).status_code != 200:
                said = answer.text
                await asyncio.sleep(0.05)
            await receiver.wait_for(lambda calls: any(call.arrived_at > since for call in calls))
    except TimeoutError:
        pytest.fail(f"not at work {within_s} s after the database was back: {said}")


@pytest.mark.slow
@pytest.mark.timeout(120 + 4 * OUTAGE_S)
@pytest.mark.parametrize(
    "outage",
    [
        connections_ended,
        server_stopped,
        packets_dropped,
        answers_dropped,
        packets_delayed_and_cut,
        failed_over_to_a_standby,
    ],
    ids=lambda outage: outage.__name__,
)
async def test_a_node_outlives_an_outage_and_accounts_for_every_instant(
    postgres: PostgresServer, tmp_path: Path, outage: Outage
) -> None:
    url = postgres.url()
    key = await make_key(url, "admin")
    calls = tmp_path / "calls.jsonl"
    async with receiving() as receiver, proxying(postgres.port) as proxy:
        through = urlsplit(url)._replace(netloc=f"onbeat@127.0.0.1:{proxy.port}").geturl()
        async with serving_recorded(
            through, port=free_port(), calls=calls, settings={"ONBEAT_WORKERS": "20"}, start=start_fork
        ) as server:
            assert await server.wait_ready()
            headers = {"authorization": f"Bearer {key}"}
            async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as http:
                first = host_time_us() // SECOND_US + 4
                planned = await create_jobs(http, receiver.url, jobs=JOBS, first=first, seconds=SECONDS)
                await receiver.wait_for(lambda calls: len(calls) >= 2 * JOBS)
                async with calling(http) as callers:
                    await outage(Scene(postgres, proxy))
                    await works_again(http, receiver, within_s=RECOVERED_WITHIN_S)
                await wait_until_at_rest(http)
                assert "loop_died" not in calls.with_suffix(".log").read_text()
            assert await server.stop() == 0
        deliveries = receiver.deliveries()
    assert callers.faults == []
    assert callers.statuses <= {200, 503}
    verdict = await judge_rows(
        url, calls=[calls], planned=planned, deliveries=deliveries, required=Seen(fires=JOBS * SECONDS // 2)
    )
    assert verdict.holds, verdict.explain()
