"""What tests with faults share: jobs whose instants are counted by hand, a recorded server, rest, and the verdict."""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from msgspec.structs import replace
from tests.support.database import Data
from tests.support.fleet import LOOPBACK, NO_SETTINGS
from tests.support.process import QUICK, ServerProcess, running
from tests.support.starting import Start, start_interpreter

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
MAX_RUNNING, MAX_ATTEMPTS = 3, 5
_numbers = itertools.count(1)
SKEWED_HOST = Path(__file__).with_name("skewed_host.py")


def serving_recorded(
    data: Data,
    *,
    port: int,
    calls: Path,
    skew_s: int = 0,
    settings: Mapping[str, str] = NO_SETTINGS,
    start: Start = start_interpreter,
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat serve` that delivers nothing itself and records its calls about leases; its log lies beside them.

    `skew_s`: how far its host's clock is ahead. `start`: one that has no other node beside it may be forked.
    """
    return running(
        lambda port: [*skewed_by(skew_s), str(SERVER), str(data), str(port), str(calls)],
        log=calls.with_suffix(".log"),
        port=port,
        env=QUICK | LOOPBACK | {"ONBEAT_WORKERS": "0"} | dict(settings),
        start=start,
    )


def skewed_by(skew_s: int) -> list[str]:
    """What comes before a script or `-m onbeat`, so that it runs on a host whose clock is so far ahead."""
    return [str(SKEWED_HOST), str(skew_s)] if skew_s else []


async def create_jobs(
    http: httpx.AsyncClient, url: str, *, jobs: int, first: int, seconds: int, **policies: object
) -> list[Planned]:
    """Jobs that fire each second from `first` (a whole second) on, so many times and never again, each to a path of its
    own.

    What came due before the server had answered may be planned or not.
    """
    numbers = [next(_numbers) for _ in range(jobs)]
    instants = tuple(second * SECOND_US for second in range(first, first + seconds))
    schedule = {"every": 1, "start_at": format_instant(instants[0]), "end_at": format_instant(instants[-1])}
    bodies: list[dict[str, Any]] = [
        {
            "name": f"job {number}",
            "schedules": [schedule],
            "target": {"url": f"{url}/{number}"},
            "max_running": MAX_RUNNING,
            "retry": {"initial_s": 0.1, "max_attempts": MAX_ATTEMPTS},
        }
        | policies
        for number in numbers
    ]
    created = (await http.post("/v1/jobs:batch", json={"jobs": bodies})).raise_for_status().json()
    answered = bisect_right(instants, host_time_us())
    return [
        Planned(
            parse_job_id(item["job"]["id"]),
            must=instants[answered:],
            may=instants[:answered],
            limit=body["max_running"],
            attempts=MAX_ATTEMPTS,
            is_never_cancelled=True,
            path=urlsplit(body["target"]["url"]).path,
        )
        for item, body in zip(created["items"], bodies, strict=True)
    ]


def timed(planned: Sequence[Planned], *, grace_s: int, late_after_s: int | None = None) -> list[Planned]:
    """These plans, judged by time as well: for tests that say what was disturbed when."""
    late_after_us = None if late_after_s is None else late_after_s * SECOND_US
    return [replace(plan, grace_us=grace_s * SECOND_US, late_after_us=late_after_us) for plan in planned]


async def wait_until_at_rest(http: httpx.AsyncClient, *, timeout_s: float = 90.0) -> None:
    """Until every job is completed and no run is live. How long that takes is the machine's business: a backlog is no
    violation, and one that stands still fails with what it consists of.
    """
    jobs: list[Any] = []
    live: list[Any] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                jobs = (await http.get("/v1/jobs", params={"state": "active"})).raise_for_status().json()["items"]
                found = await http.get("/v1/runs", params={"state": ["pending", "running"]})
                live = found.raise_for_status().json()["items"]
                if not jobs and not live:
                    return
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not at rest after {timeout_s} s: active {jobs[:3]}, live {live[:5]}") from None


async def judge_rows(
    data: Data,
    *,
    calls: Sequence[Path],
    planned: Sequence[Planned],
    deliveries: Sequence[Delivery],
    required: Seen,
    disturbed: Sequence[tuple[int, int]] = (),
) -> Verdict:
    """The verdict, after all processes have stopped."""
    store = await open_store(str(data), create=False)
    try:
        history = await read_history(
            store, planned=planned, deliveries=deliveries, calls=read_calls(calls), disturbed=disturbed
        )
    finally:
        await store.close()
    return judge(history, required=required)
