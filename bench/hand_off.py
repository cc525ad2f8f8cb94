"""How long a run waits that one node records while only another node has workers waiting.

    python -m bench.hand_off [--runs 60] [--pooled]

Two `onbeat serve` on one PostgreSQL, both real processes: the first delivers nothing (`workers = 0`), the second has 50
places free. Measured are runs that were triggered through the first one's API, at any moment between two looks of the
second; fires of the first one's slots; and how long a run that the second one delivers goes on after somebody cancelled
it through the first. `--pooled` tells both nodes that a pooler stands in between, so that nobody hints and all is found
by looking: that is the limit beside which the other figures are to be read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path

import httpx
from tests.support.fleet import LOOPBACK, make_key
from tests.support.postgres import DEFAULT_SLOTS, MASTER_KEY
from tests.support.process import ServerProcess, running
from tests.support.receiver import Call, Receiver, receiving

from bench.databases import fresh_place
from bench.figures import Result, latencies
from bench.scenario import parser_of, run_alone
from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_job_id
from onbeat.domain.rendezvous import share_of

FIRING_JOBS = 5
FIRES_EVERY_S = 2
CANCELLED_RUNS = 10


@asynccontextmanager
async def two_nodes(url: str, *, folder: Path) -> AsyncIterator[tuple[ServerProcess, ServerProcess]]:
    """The one that dispatches only, and the one whose workers wait."""
    async with _node(url, folder / "1.log", workers=0) as first, _node(url, folder / "2.log", workers=50) as second:
        assert await first.wait_ready()
        assert await second.wait_ready()
        await asyncio.sleep(3)  # until each knows the other
        yield first, second


def _node(url: str, log: Path, *, workers: int) -> AbstractAsyncContextManager[ServerProcess]:
    return running(
        lambda port: ["-m", "onbeat", "serve", "--port", str(port)],
        log=log,
        env=LOOPBACK | {"ONBEAT_DATA": url, "ONBEAT_WORKERS": str(workers), "ONBEAT_LOG_LEVEL": "warning"},
    )


async def triggered(http: httpx.AsyncClient, receiver: Receiver, *, runs: int) -> list[float]:
    """Milliseconds from the moment that a triggered run was recorded for to its arrival."""
    job_id = await _create(http, receiver.url, every_s=86_400)
    for number in range(runs):
        await asyncio.sleep(random.uniform(0.2, 0.6))
        (await http.post(f"/v1/jobs/{job_id}/trigger", json={})).raise_for_status()
        await receiver.wait_for(more_than(number))
    return [_lag_ms(call) for call in receiver.calls]


async def fired(http: httpx.AsyncClient, receiver: Receiver, *, runs: int) -> list[float]:
    """The same for fires in slots of the first node, from their planned instants."""
    nodes = (await http.get("/v1/nodes")).raise_for_status().json()["items"]
    first = next(node["name"] for node in nodes if node["workers"] == 0)
    share = share_of(first, nodes={node["name"] for node in nodes}, slots=DEFAULT_SLOTS)
    assert share is not None
    before = len(receiver.calls)
    for _ in range(FIRING_JOBS):
        await _create(http, receiver.url, every_s=FIRES_EVERY_S, slots=share.own)
    await receiver.wait_for(more_than(before + runs), timeout_s=300)
    return [_lag_ms(call) for call in receiver.calls[before:]]


async def cancelled(http: httpx.AsyncClient) -> list[float]:
    """Milliseconds from the answer to a cancel until the run has ended."""
    lags: list[float] = []

    async def hang(_call: Call) -> int:
        await asyncio.Event().wait()
        return 200

    async with receiving(hang) as receiver:
        job_id = await _create(http, receiver.url, every_s=86_400)
        for number in range(CANCELLED_RUNS):
            run = (await http.post(f"/v1/jobs/{job_id}/trigger", json={})).raise_for_status().json()
            await receiver.wait_for(more_than(number))
            (await http.post(f"/v1/runs/{run['id']}/cancel")).raise_for_status()
            asked_at = host_time_us()
            while (await http.get(f"/v1/runs/{run['id']}")).json()["state"] == "running":
                await asyncio.sleep(0.005)
            lags.append((host_time_us() - asked_at) / 1e3)
    return lags


async def measure_lags(url: str, *, runs: int, folder: Path) -> dict[str, list[float]]:
    """All three, in milliseconds."""
    key = await make_key(url, "admin")
    async with receiving() as receiver, two_nodes(url, folder=folder) as (first, _second):
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=first.url, headers=headers, timeout=30) as http:
            return {
                "triggered through the first node": await triggered(http, receiver, runs=runs),
                "fired by the first node": await fired(http, receiver, runs=runs),
                "cancelled through the first node": await cancelled(http),
            }


def more_than(count: int) -> Callable[[list[Call]], bool]:
    """So many calls have arrived, and another one."""
    return lambda calls: len(calls) > count


async def _create(http: httpx.AsyncClient, url: str, *, every_s: int, slots: Collection[int] | None = None) -> str:
    """The id of a new job; where slots are given, in one of those."""
    body = {"name": "hand-off", "schedules": [{"every": every_s}], "target": {"url": url}}
    while True:
        job_id = str((await http.post("/v1/jobs", json=body)).raise_for_status().json()["id"])
        if slots is None or parse_job_id(job_id) % DEFAULT_SLOTS in slots:
            return job_id
        (await http.delete(f"/v1/jobs/{job_id}")).raise_for_status()


def _lag_ms(call: Call) -> float:
    return call.arrived_at / 1e3 - datetime.fromisoformat(call.scheduled_at).timestamp() * 1e3


def measure(options: argparse.Namespace) -> Result:
    """All three, on a new database."""
    os.environ["ONBEAT_MASTER_KEY"] = MASTER_KEY
    with fresh_place("postgres") as place, tempfile.TemporaryDirectory() as folder:
        url = place.data + ("?pooled=1" if options.pooled else "")
        lags = asyncio.run(measure_lags(url, runs=options.runs, folder=Path(folder)))
    figures = [figure for name, lags_ms in lags.items() for figure in latencies(name, lags_ms, shares=(0.5, 0.95, 1.0))]
    return Result(f"postgres, from one node to the workers of another{', pooled' * options.pooled}", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--pooled", action="store_true")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
