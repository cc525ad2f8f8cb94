"""The API: how long it takes to create many jobs, to list them and to read them, with a real server process.

    python -m bench.api [--jobs 100000] [--batches 1000,10000] [--reads 500]

Server and client share this machine's cores. While jobs are created a cheap request (GET /healthz) is asked again and
again, which shows whether a batch holds up the rest of the server. Limits, measured in the same run: for creation the
same code without HTTP, which is the service (validation and the store) and the store alone, with the same durable
commits; for reading the cheap request. Lists and reads ask for pages and jobs all over the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import tempfile
import time
from functools import partial
from pathlib import Path

import httpx
from tests.support.process import ServerProcess, running

from bench.figures import Figure, Limit, Result, at_most, latencies, percentile
from bench.processes import cpu_s
from bench.scenario import parser_of, run_alone
from onbeat.api.batch import CHUNK
from onbeat.api.schemas.jobs import JobBody, read_draft
from onbeat.app.services import Services, open_services
from onbeat.config import Settings
from onbeat.domain.model import CronSchedule, Definition, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.values import NewJob

ASKED_WITH = 100_000
SHARES = (0.5, 0.99)
SERVER = """
import asyncio, sys
from onbeat.app.node import DevMode, serve
from onbeat.config import Settings
raise SystemExit(asyncio.run(serve(Settings(data=sys.argv[1], port=int(sys.argv[2]), workers=0), dev=DevMode())))
"""


def job(number: int) -> dict[str, object]:
    """One of many that differ as jobs of a real installation do."""
    return {
        "key": f"tenant-{number}",
        "name": f"Daily report of tenant {number}",
        "tags": ["report"],
        "schedules": [{"cron": f"{number % 60} {number // 60 % 24} * * *", "timezone": "Europe/Berlin"}],
        "target": {"url": f"https://example.com/hooks/{number}", "headers": {"X-Tenant": str(number)}},
    }


async def create(http: httpx.AsyncClient, count: int, batch: int) -> float:
    """Seconds for all jobs."""
    bodies = [
        json.dumps({"jobs": [job(number) for number in range(start, min(start + batch, count))]}).encode()
        for start in range(0, count, batch)
    ]
    started = time.perf_counter()
    for body in bodies:
        answer = await http.post("/v1/jobs:batch", content=body, headers={"content-type": "application/json"})
        assert answer.json()["refused"] == 0, answer.text[:300]
    return time.perf_counter() - started


async def probe(url: str, latencies_ms: list[float]) -> None:
    """How long a cheap request takes meanwhile."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        while True:
            started = time.perf_counter()
            await http.get("/healthz")
            latencies_ms.append((time.perf_counter() - started) * 1_000)
            await asyncio.sleep(0.05)


async def measure_limits(count: int) -> list[Figure]:
    """Jobs per second of the service and of the store alone, in transactions as large as the API's."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:
        async with open_services(Settings(data=str(Path(folder) / "service.sqlite3"))) as services:
            service_s = await _create_by_service(services, count)
        async with open_services(Settings(data=str(Path(folder) / "store.sqlite3"))) as services:
            store_s = await _create_by_store(services, count)
    return [
        Figure(f"{name} alone, jobs created, {CHUNK:,} at once", count / took_s, "per second")
        for name, took_s in (("service", service_s), ("store", store_s))
    ]


async def _create_by_service(services: Services, count: int) -> float:
    drafts = [read_draft(JobBody.model_validate(job(number))) for number in range(count)]
    started = time.perf_counter()
    for start in range(0, count, CHUNK):
        await services.jobs.create_many(drafts[start : start + CHUNK], namespace="default")
    return time.perf_counter() - started


async def _create_by_store(services: Services, count: int) -> float:
    now = services.clock.now()
    jobs = [_new_job(number, next_fire_at=now + 3_600_000_000) for number in range(count)]
    started = time.perf_counter()
    for start in range(0, count, CHUNK):
        await services.store.jobs.create(jobs[start : start + CHUNK], now=now)
    return time.perf_counter() - started


def _new_job(number: int, *, next_fire_at: int) -> NewJob:
    schedule = CronSchedule(expression=f"{number % 60} {number // 60 % 24} * * *", timezone="Europe/Berlin")
    target = WebhookTarget(url=f"https://example.com/hooks/{number}", headers={"X-Tenant": str(number)})
    return NewJob(
        job_id=secrets.randbits(63),
        namespace="default",
        key=f"tenant-{number}",
        name=f"Daily report of tenant {number}",
        tags=("report",),
        definition=encode_definition(Definition(schedules=(schedule,), target=target)),
        max_running=1,
        state=JobState.ACTIVE,
        next_fire_at=next_fire_at,
    )


async def measure_creation(server: ServerProcess, *, jobs: int, batch: int) -> list[Figure]:
    """All of them."""
    latencies_ms: list[float] = []
    probing = asyncio.create_task(probe(server.url, latencies_ms))
    used_s = cpu_s(server.process.pid)
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        wall_s = await create(http, jobs, batch)
    used_s = cpu_s(server.process.pid) - used_s
    probing.cancel()
    what = f"in batches of {batch:,}"
    return [
        Figure(f"{jobs:,} jobs created {what}", wall_s, "s", at_most(30) if jobs == ASKED_WITH else None),
        Figure(f"created {what}", jobs / wall_s, "jobs/s"),
        Figure(f"CPU of the server {what}", used_s * 1e6 / jobs, "µs/job"),
        *latencies(f"GET /healthz meanwhile, {what}", latencies_ms, shares=(0.5, 1.0)),
    ]


async def measure_reading(server: ServerProcess, *, reads: int) -> list[Figure]:
    """Pages of a list that is walked to its end or as far as `reads` go, then single jobs of it."""
    randomness = random.Random(3)
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        ids: list[str] = []
        cursors: list[dict[str, str]] = [{}]
        page: dict[str, str] = {}
        for _ in range(reads):
            answer = (await http.get("/v1/jobs", params={"limit": "100"} | page)).raise_for_status().json()
            ids += [job["id"] for job in answer["items"]]
            if not answer["next_cursor"]:
                break
            page = {"cursor": answer["next_cursor"]}
            cursors.append(page)
        asked: dict[str, list[tuple[str, dict[str, str]]]] = {
            "GET /healthz": [("/healthz", {}) for _ in range(reads)],
            "list 100 jobs": [("/v1/jobs", {"limit": "100"} | randomness.choice(cursors)) for _ in range(reads)],
            "find a job by its key": [(f"/v1/jobs/by-key/{key}", {}) for key in _keys(randomness, reads, len(ids))],
            "read a job": [(f"/v1/jobs/{randomness.choice(ids)}", {}) for _ in range(reads)],
        }
        figures: list[Figure] = []
        limits: dict[float, Limit] = {}
        for name, requests in asked.items():
            used_s = cpu_s(server.process.pid)
            took_ms: list[float] = []
            for path, parameters in requests:
                started = time.perf_counter()
                (await http.get(path, params=parameters)).raise_for_status()
                took_ms.append((time.perf_counter() - started) * 1e3)
            used_s = cpu_s(server.process.pid) - used_s
            figures += latencies(name, took_ms, shares=SHARES, limits=limits)
            figures.append(Figure(f"CPU of the server, {name}", used_s * 1e6 / reads, "µs each"))
            took_ms.sort()
            limits = limits or {share: Limit(name, percentile(took_ms, share)) for share in SHARES}
    return figures


def _keys(randomness: random.Random, count: int, jobs: int) -> list[str]:
    return [f"tenant-{randomness.randrange(jobs)}" for _ in range(count)]


def _command(data: Path, port: int) -> list[str]:
    return ["-c", SERVER, str(data), str(port)]


async def measure_all(options: argparse.Namespace) -> list[Figure]:
    """A new data file and server for each size of batches; the last one is read."""
    figures: list[Figure] = []
    batches = [int(batch) for batch in options.batches.split(",")]
    for batch in batches:
        with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:
            data, log = Path(folder) / "bench.sqlite3", Path(folder) / "log"
            async with running(partial(_command, data), log=log) as server:
                assert await server.wait_ready(), log.read_text()
                figures += await measure_creation(server, jobs=options.jobs, batch=batch)
                if batch == batches[-1]:
                    figures += await measure_reading(server, reads=options.reads)
                await server.stop()
    return figures + await measure_limits(options.jobs)


def measure(options: argparse.Namespace) -> Result:
    """Everything."""
    return Result(f"sqlite, {options.jobs:,} jobs, one connection", asyncio.run(measure_all(options)))


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--batches", default="1000,10000", help="jobs per call")
    parser.add_argument("--reads", type=int, default=500, help="of each kind")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
