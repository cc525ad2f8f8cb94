"""How long it takes to create many jobs over the API: a real server process' code, one connection, batches.

    python -m bench.api_create [--jobs 100000] [--batch 1000] [--json FILE]

Server and client share this machine's cores; the server runs in a process of its own. Prints a table: jobs per
second, the time for all, and how long a cheap request (GET /healthz) took at the same time, which shows whether a
batch holds up the rest of the server. Two limits are measured in the same run, by the same code without HTTP: the
service (validation and the store) and the store alone, both with the same durable commits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import statistics
import tempfile
import time
from pathlib import Path

import httpx
from tests.support.process import running

from bench.machine import describe_machine
from onbeat.api.batch import CHUNK
from onbeat.api.schemas.jobs import JobBody, read_draft
from onbeat.app import Services, open_services
from onbeat.config import Settings
from onbeat.domain.model import CronSchedule, Definition, WebhookTarget, encode_definition
from onbeat.domain.states import JobState
from onbeat.store.values import NewJob

SERVER = """
import asyncio, sys
from onbeat.app import DevMode, serve
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


async def measure_limits(count: int) -> dict[str, float]:
    """Jobs per second of the service and of the store alone, in transactions as large as the API's."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:
        async with open_services(Settings(data=str(Path(folder) / "service.sqlite3"))) as services:
            service_s = await _create_by_service(services, count)
        async with open_services(Settings(data=str(Path(folder) / "store.sqlite3"))) as services:
            store_s = await _create_by_store(services, count)
    return {"service_jobs_per_s": round(count / service_s), "store_jobs_per_s": round(count / store_s)}


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


async def measure(count: int, batch: int) -> dict[str, float]:
    """One run over a new data file."""
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:
        data = Path(folder) / "bench.sqlite3"
        async with running(lambda port: ["-c", SERVER, str(data), str(port)], log=Path(folder) / "log") as server:
            assert await server.wait_ready(), (Path(folder) / "log").read_text()
            latencies_ms: list[float] = []
            probing = asyncio.create_task(probe(server.url, latencies_ms))
            async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
                wall_s = await create(http, count, batch)
            probing.cancel()
            await server.stop()
    latencies_ms.sort()
    return {
        "jobs": count,
        "batch": batch,
        "wall_s": round(wall_s, 2),
        "jobs_per_s": round(count / wall_s),
        "probe_p50_ms": round(statistics.median(latencies_ms), 1),
        "probe_max_ms": round(latencies_ms[-1], 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--batch", type=int, action="append", help="jobs per call; may be repeated")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [asyncio.run(measure(arguments.jobs, batch)) for batch in arguments.batch or (1_000, 10_000)]
    limits = asyncio.run(measure_limits(arguments.jobs))
    print(describe_machine())
    print(f"{'batch':>7} {'jobs':>9} {'wall s':>8} {'jobs/s':>8} {'probe p50 ms':>13} {'probe max ms':>13}")
    for result in results:
        print(
            f"{result['batch']:>7,} {result['jobs']:>9,} {result['wall_s']:>8} {result['jobs_per_s']:>8,}"
            f" {result['probe_p50_ms']:>13} {result['probe_max_ms']:>13}"
        )
    print(
        f"limits: service {limits['service_jobs_per_s']:,} jobs/s, store alone {limits['store_jobs_per_s']:,} jobs/s "
        f"({CHUNK} per durable commit)"
    )
    if arguments.json:
        record = {"machine": describe_machine(), "results": results, "limits": limits}
        arguments.json.write_text(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
