"""kill -9 at every store call and around every delivery, then restart: nothing is lost, doubled or stuck.

Promises P1, P2, P3, P5 and P9. The points are enumerated; each is a real process that really dies there.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import defaultdict
from pathlib import Path

import httpx
import pytest
from tests.support.accounting import live_states, planned_instants, recorded_instants
from tests.support.process import ServerProcess, free_port, running
from tests.support.receiver import Call, Receiver, receiving

SERVER = Path(__file__).with_name("crashing_server.py")

STORE_POINTS = [
    f"{call}:{when}:{nth}"
    for call, nth in {
        "jobs.create": 1,
        "jobs.change": 1,
        "fires.record_due": 4,
        "leases.finish": 2,
        "leases.next_ready_at": 3,
        "leases.expire": 2,
        "runs.prune": 1,
        "nodes.beat": 1,
        "access.add_secret": 1,
        "access.find_secrets": 1,
    }.items()
    for when in ("before", "after")
]
DECISION_POINTS = ["jobs.change:inside:1", "fires.record_due:inside:2", "fires.record_due:inside:4"]
# These are reached only where a run was left behind by a dead process, or waits because nobody was free.
AFTER_A_DEATH_POINTS = [
    "leases.expire:inside:1",
    "leases.expire:after:1",
    "leases.claim:before:1",
    "leases.claim:after:1",
    "leases.finish:inside:1",
]
DELIVERY_POINTS = [
    f"{point}:{when}:{nth}"
    for point in ("sender.send", "sender.outcome")
    for when in ("before", "after")
    for nth in (1, 3)
]
JOB = {"key": "beat", "name": "beat", "schedules": [{"every": 1}]}


async def put_job(server: ServerProcess, receiver: Receiver) -> str | None:
    """Create the job, or change it; None where the server died over it."""
    body = JOB | {"target": {"url": receiver.url}, "retry": {"initial_s": 0.1}}
    with contextlib.suppress(httpx.TransportError):
        async with httpx.AsyncClient(base_url=server.url, timeout=10) as http:
            answer = await http.put("/v1/jobs/by-key/beat", json=body)
            if answer.status_code < 300:
                await http.patch(f"/v1/jobs/{answer.json()['id']}", json={"name": "beat, renamed"})
                return str(answer.json()["id"])
    return None


async def verify(data: Path, job_id: str, receiver: Receiver) -> None:
    """Every planned instant has exactly one record, and every fire one id however often it was sent."""
    assert recorded_instants(data, job_id) == planned_instants(data, job_id)
    assert [state for _, state in live_states(data) if state == "running"] == []
    ids: dict[str, set[str]] = defaultdict(set)
    for call in receiver.calls:
        ids[call.scheduled_at].add(call.run_id)
    assert {scheduled_at: found for scheduled_at, found in ids.items() if len(found) > 1} == {}


@pytest.mark.slow
@pytest.mark.parametrize("point", [*STORE_POINTS, *DECISION_POINTS, *DELIVERY_POINTS])
async def test_a_process_killed_at_a_point_leaves_everything_to_its_successor(point: str, tmp_path: Path) -> None:
    data, port = tmp_path / "onbeat.sqlite3", free_port()
    async with receiving() as receiver:
        async with running(
            lambda port: [str(SERVER), str(data), str(port), point], log=tmp_path / "1.log", port=port
        ) as first:
            if await first.wait_ready():
                await put_job(first, receiver)
            assert await first.wait_exit() == -signal.SIGKILL
        interrupted = len(receiver.calls)
        async with running(
            lambda port: [str(SERVER), str(data), str(port), "none"], log=tmp_path / "2.log", port=port
        ) as second:
            assert await second.wait_ready()
            job_id = await put_job(second, receiver)
            assert job_id is not None
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls[interrupted:]}) >= 3)
            assert await second.stop() == 0
        await verify(data, job_id, receiver)


@pytest.mark.slow
@pytest.mark.parametrize("point", AFTER_A_DEATH_POINTS)
async def test_a_process_killed_while_it_takes_over_leaves_everything_to_the_next(point: str, tmp_path: Path) -> None:
    data, port = tmp_path / "onbeat.sqlite3", free_port()
    hanging = asyncio.Event()

    async def answer_after_the_first(call: Call) -> int:
        if not hanging.is_set():
            hanging.set()
            await asyncio.Event().wait()  # the first delivery never gets its answer: its process dies waiting
        return 503 if call.attempt == 2 and point.startswith("leases.finish") else 200

    async with receiving(answer_after_the_first) as receiver:
        async with running(
            lambda port: [str(SERVER), str(data), str(port), "none"], log=tmp_path / "1.log", port=port
        ) as first:
            assert await first.wait_ready()
            job_id = await put_job(first, receiver)
            assert job_id is not None
            await receiver.wait_for(lambda calls: len(calls) == 1)
            await first.kill()
        async with running(
            lambda port: [str(SERVER), str(data), str(port), point], log=tmp_path / "2.log", port=port
        ) as second:
            assert await second.wait_exit() == -signal.SIGKILL
        async with running(
            lambda port: [str(SERVER), str(data), str(port), "none"], log=tmp_path / "3.log", port=port
        ) as third:
            assert await third.wait_ready()
            lost = receiver.calls[0]
            # The run in flight at the first death is delivered again, under the same id, as a later attempt.
            await receiver.wait_for(lambda calls: any(c.run_id == lost.run_id and c.attempt > 1 for c in calls))
            seen = len(receiver.calls)
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls[seen:]}) >= 2)
            assert await third.stop() == 0
        await verify(data, job_id, receiver)
