"""Killed nodes: how long fires of their slots wait, and how long the runs that they held.

    python -m bench.node_kill [--kills 50] [--nodes 3] [--jobs 60]

Nodes with workers of their own on one PostgreSQL, with production's lengths (a lease of 30 s, a heartbeat each 10 s,
a beat among nodes each second). Every job fires each second. Most are answered at once; some take so long that each
node holds runs at any time. One node after the other is killed with SIGKILL and started again a moment later; runs that
a killed node held are waited for meanwhile. Read from the rows afterwards:

- of each kill the fire that waited longest from its planned instant until it was recorded, which is when it can start;
- of each run that a killed node held, the time from the kill until another attempt began.

The limits beside them are the design's: 5 s and 35 s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import httpx
from tests.support.fleet import LOOPBACK, make_key
from tests.support.postgres import MASTER_KEY
from tests.support.process import ServerProcess, running
from tests.support.receiver import Call, receiving

from bench.databases import fresh_place
from bench.figures import Figure, Result, at_most, percentile
from bench.scenario import parser_of, run_alone
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US
from onbeat.testing.events import Delivery

Start = AbstractAsyncContextManager[ServerProcess]

SLOW_ANSWER_S: Final = 3.0
SLOW_JOBS: Final = 15

BETWEEN_S: Final = 7.0
"""From the moment in which a killed node's successor is ready until the next kill: by then all know each other."""

STARTS_WITHIN_S: Final = 120.0
LEASES_END_WITHIN_S: Final = 45.0
AFFECTED_US: Final = round(BETWEEN_S * SECOND_US)
"""Fires planned up to so much after a kill are counted as affected by it."""

_RECORDED: Final = """
SELECT scheduled_at, created_at FROM live_runs WHERE trigger = 'schedule'
UNION ALL SELECT scheduled_at, created_at FROM ended_runs WHERE trigger = 'schedule'
"""
_LOST: Final = "SELECT job_id, scheduled_at, attempt, worker FROM attempts WHERE kind = 'lease_lost'"


@dataclass(frozen=True, slots=True)
class Kill:
    """One node's death."""

    pid: int
    at: int


@dataclass(frozen=True, slots=True)
class Found:
    """Seconds: of each kill, and of each run that a killed node held."""

    fires: int
    slots_s: list[float]
    runs_s: list[float]
    missing: int
    """Lost attempts whose kill or next attempt is not known."""


async def kill_in_turn(
    stack: contextlib.AsyncExitStack, nodes: list[ServerProcess], start: Callable[[], Start], *, kills: int
) -> list[Kill]:
    """Kill one node after the other and start another in its place."""
    done: list[Kill] = []
    for number in range(kills):
        await asyncio.sleep(BETWEEN_S + random.random())  # at any moment of a second
        dying = nodes[number % len(nodes)]
        pid, at = dying.process.pid, host_time_us()
        await dying.kill()
        done.append(Kill(pid, at))
        nodes[number % len(nodes)] = await ready(stack, start)
    return done


async def ready(stack: contextlib.AsyncExitStack, start: Callable[[], Start]) -> ServerProcess:
    """A node that answers."""
    node = await stack.enter_async_context(start())
    if not await node.wait_ready(timeout_s=STARTS_WITHIN_S):
        raise RuntimeError(f"a node died at its start: see {node.log}")
    return node


async def kill_nodes(arguments: argparse.Namespace, *, folder: Path, url: str) -> Found:
    """Everything, on an empty database."""
    settings = LOOPBACK | {"ONBEAT_LOG_LEVEL": "error", "ONBEAT_WORKERS": "200"}

    def start() -> Start:
        return running(
            lambda port: ["-m", "onbeat", "serve", "--data", url, "--port", str(port)],
            log=folder / "nodes.log",
            env=settings,
        )

    async def answer(call: Call) -> int:
        if call.headers["onbeat-job"].startswith("slow"):
            await asyncio.sleep(SLOW_ANSWER_S)
        return 204

    key = await make_key(url, "admin")
    async with receiving(answer) as receiver, contextlib.AsyncExitStack() as stack:
        nodes = [await ready(stack, start) for _ in range(arguments.nodes)]
        async with httpx.AsyncClient(base_url=nodes[0].url, headers={"authorization": f"Bearer {key}"}) as http:
            target = {"url": receiver.url}
            common = {"schedules": [{"every": 1}], "target": target, "max_running": 100, "overlap": "allow"}
            names = [f"quick-{number}" for number in range(arguments.jobs)]
            names += [f"slow-{number}" for number in range(SLOW_JOBS)]
            jobs = [common | {"name": name, "key": name} for name in names]
            (await http.post("/v1/jobs:batch", json={"jobs": jobs}, timeout=60)).raise_for_status()
        kills = await kill_in_turn(stack, nodes, start, kills=arguments.kills)
        await asyncio.sleep(LEASES_END_WITHIN_S)
        for node in nodes:
            await node.stop()
        deliveries = receiver.deliveries()
    return await evaluate(url, kills, deliveries)


async def evaluate(url: str, kills: Sequence[Kill], deliveries: Sequence[Delivery]) -> Found:
    """Of each kill, and of each run that a killed node held."""
    connection = await asyncpg.connect(url)
    try:
        recorded = [(row[0], row[1]) for row in await connection.fetch(_RECORDED)]
        lost = await connection.fetch(_LOST)
    finally:
        await connection.close()
    waits = [
        max(
            (recorded_at - max(scheduled_at, kill.at)) / SECOND_US
            for scheduled_at, recorded_at in recorded
            if kill.at - SECOND_US <= scheduled_at <= kill.at + AFFECTED_US
        )
        for kill in kills
    ]
    killed_at = {kill.pid: kill.at for kill in kills}
    arrived_at = {(*delivery.key, delivery.attempt): delivery.arrived_at for delivery in deliveries}
    held: list[float] = []
    missing = 0
    for job_id, scheduled_at, attempt, worker in lost:
        again_at = arrived_at.get((job_id, scheduled_at, attempt + 1))
        at = killed_at.get(int(worker.rsplit("-", 2)[1]))
        if again_at is None or at is None:
            missing += 1
        else:
            held.append((again_at - at) / SECOND_US)
    return Found(fires=len(recorded), slots_s=waits, runs_s=held, missing=missing)


def measure(options: argparse.Namespace) -> Result:
    """On a new database."""
    os.environ["ONBEAT_MASTER_KEY"] = MASTER_KEY
    with tempfile.TemporaryDirectory() as folder, fresh_place("postgres") as place:
        found = asyncio.run(kill_nodes(options, folder=Path(folder), url=place.data))
    figures: list[Figure] = []
    for name, lengths_s, asked in (
        ("fires of its slots waited at most", found.slots_s, at_most(5)),
        ("runs that it held began again after", found.runs_s, at_most(35)),
    ):
        lengths_s.sort()
        figures += [Figure(f"{name}, p{share * 100:g}", percentile(lengths_s, share), "s") for share in (0.5, 0.9)]
        figures.append(Figure(f"{name}, longest", lengths_s[-1], "s", asked))
    figures.append(Figure("runs that killed nodes held", len(found.runs_s), "runs"))
    figures.append(Figure("lost attempts that nobody explains", found.missing, "attempts", at_most(0)))
    setting = f"postgres, {options.kills} kills of one of {options.nodes} nodes, {found.fires:,} fires"
    return Result(setting, figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=60)
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
