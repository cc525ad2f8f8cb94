"""What tests with faults share: jobs whose instants are counted by hand, a recorded server, rest, and the verdict."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
from tests.support.database import Data
from tests.support.fleet import LOOPBACK, NO_SETTINGS
from tests.support.process import QUICK, ServerProcess, running

from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_job_id
from onbeat.domain.instants import format_instant
from onbeat.domain.model import SECOND_US
from onbeat.store.open import open_store
from onbeat.testing.events import Delivery, Planned
from onbeat.testing.history import Seen, Verdict, judge
from onbeat.testing.recording import read_calls
from onbeat.testing.rows import read_history

SERVER = Path(__file__).with_name("recording_server.py")
SKEWED_HOST = Path(__file__).with_name("skewed_host.py")


def serving_recorded(
    data: Data, *, port: int, calls: Path, skew_s: int = 0, settings: Mapping[str, str] = NO_SETTINGS
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat serve` that delivers nothing itself and records its calls about leases; its log lies beside them.

    `skew_s`: how far its host's clock is ahead.
    """
    return running(
        lambda port: [*skewed_by(skew_s), str(SERVER), str(data), str(port), str(calls)],
        log=calls.with_suffix(".log"),
        port=port,
        env=QUICK | LOOPBACK | {"ONBEAT_WORKERS": "0"} | dict(settings),
    )


def skewed_by(skew_s: int) -> list[str]:
    """What comes before a script or `-m onbeat`, so that it runs on a host whose clock is so far ahead."""
    return [str(SKEWED_HOST), str(skew_s)] if skew_s else []


async def create_jobs(
    http: httpx.AsyncClient, url: str, *, jobs: int, first: int, seconds: int, **policies: object
) -> list[Planned]:
    """Jobs that fire each second from `first` (a whole second) on, so many times and never again.

    What came due before the server had answered may be planned or not.
    """
    instants = tuple(second * SECOND_US for second in range(first, first + seconds))
    schedule = {"every": 1, "start_at": format_instant(instants[0]), "end_at": format_instant(instants[-1])}
    bodies = [
        {
            "name": f"job {number}",
            "schedules": [schedule],
            "target": {"url": url},
            "max_running": 3,
            "retry": {"initial_s": 0.1},
        }
        | policies
        for number in range(jobs)
    ]
    created = (await http.post("/v1/jobs:batch", json={"jobs": bodies})).raise_for_status().json()
    answered = bisect_right(instants, host_time_us())
    return [
        Planned(parse_job_id(item["job"]["id"]), must=instants[answered:], may=instants[:answered])
        for item in created["items"]
    ]


async def wait_until_at_rest(http: httpx.AsyncClient, *, timeout_s: float = 90.0) -> None:
    """Until every job is completed and no run is live."""
    async with asyncio.timeout(timeout_s):
        while True:
            jobs = (await http.get("/v1/jobs", params={"state": "active"})).raise_for_status().json()["items"]
            live = (await http.get("/v1/runs", params={"state": ["pending", "running"]})).raise_for_status().json()
            if not jobs and not live["items"]:
                return
            await asyncio.sleep(0.2)


async def judge_rows(
    data: Data, *, calls: Sequence[Path], planned: Sequence[Planned], deliveries: Sequence[Delivery], required: Seen
) -> Verdict:
    """The verdict, after all processes have stopped."""
    store = await open_store(str(data), create=False)
    try:
        history = await read_history(store, planned=planned, deliveries=deliveries, calls=read_calls(calls))
    finally:
        await store.close()
    return judge(history, required=required)
