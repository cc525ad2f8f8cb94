"""kill -9 at every store call and around every delivery, then restart: nothing is lost, doubled or stuck.

Promises P1, P2, P3, P5 and P9. The points are enumerated; each is a real process that really dies there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.crash.points import dying, lasting
from tests.crash.test_callbacks import POINTS as CALLBACK_POINTS
from tests.support.accounting import planned_instants
from tests.support.database import Data
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.receiver import Call, Receiver, receiving

from onbeat.domain.ids import parse_job_id
from onbeat.domain.states import RunState
from onbeat.store import contract
from onbeat.store.open import open_store
from onbeat.testing.events import Planned, Rule
from onbeat.testing.history import judge
from onbeat.testing.rows import read_history

# Reached in any first minute of a scheduler: the number says which call dies.
STORE_POINTS = {
    "jobs.create": 1,
    "jobs.change": 1,
    "fires.record_due": 4,
    "backfills.advance": 1,
    "leases.finish": 2,
    "leases.next_ready_at": 3,
    "leases.expire": 2,
    "runs.prune": 1,
    "nodes.beat": 1,
    "nodes.prune": 1,
    "access.add_secret": 1,
    "access.find_secrets": 1,
    "access.prune_answers": 1,
}
# Reached by what people and remote workers ask for; `exercise` asks for all of it.
ASKED_POINTS = {
    "fires.insert_run": 1,
    "leases.claim": 1,
    "leases.extend": 1,
    "leases.permit": 1,
    "leases.release": 1,
    "leases.cancel": 1,
    "leases.revive": 1,
    "pauses.begin": 1,
    "pauses.note_spread": 1,
    "pauses.end": 1,
    "pauses.drop": 1,
    "backfills.begin": 1,
    "backfills.cancel": 1,
    "calendars.put": 1,
    "calendars.delete": 1,
    "calendars.replan": 1,
    "blackouts.put": 1,
    "blackouts.delete": 1,
    "access.reserve_answer": 1,
    "access.save_answer": 1,
}
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
EXEMPT = {
    "access.add_key", "access.revoke_key", "access.touch_key",  # there are no keys in `onbeat dev`
    "access.drop_answer",  # only after a refused request
    "nodes.leave",  # the last call of a process that stops in order
}  # fmt: skip
READS = {
    "get",
    "get_by_key",
    "get_key",
    "find",
    "find_keys",
    "find_revivable",
    "last_responses",
    "attempts",
    "next_due_at",
    "recovery_places",
    "look_up",
} | {
    "jobs_held_by",
    "jobs_over",
    "count_overdue",
}
JOB = {"key": "beat", "name": "beat", "schedules": [{"every": 1}]}


def _around(calls: dict[str, int]) -> list[str]:
    return [f"{call}:{when}:{nth}" for call, nth in calls.items() for when in ("before", "after")]


def test_every_call_that_writes_is_enumerated() -> None:
    calls = {
        f"{noun}.{method}"
        for noun, protocol in contract_nouns().items()
        for method, call in vars(protocol).items()
        if inspect.iscoroutinefunction(call) and method not in READS
    }
    asked_by_handlers = {point.rsplit(":", 2)[0] for point in CALLBACK_POINTS}
    assert calls == set(STORE_POINTS) | set(ASKED_POINTS) | asked_by_handlers | EXEMPT


def contract_nouns() -> dict[str, type]:
    """The nouns of a Store, by the name under which it has them."""
    nouns: dict[str, type] = {}
    for name, part in vars(contract.Store).items():
        if isinstance(part, property) and part.fget is not None:
            noun = getattr(contract, str(part.fget.__annotations__["return"]), None)
            if noun is not None:
                nouns[name] = noun
    return nouns


@pytest.fixture
def data(either_database: str) -> str:
    """Every point on both engines."""
    return either_database


async def exercise(server: ServerProcess, job_id: str) -> None:
    """Ask for everything that people and remote workers ask for; the server may die over any of it."""
    with contextlib.suppress(httpx.TransportError, KeyError):
        async with httpx.AsyncClient(base_url=server.url, timeout=10) as http:

            async def post(path: str, body: object, **headers: str) -> Any:
                return (await http.post(path, json=body, headers=headers)).json()

            queue_job = {
                "name": "queue",
                "schedules": [{"every": 3_600}],
                "target": {"queue": "mail"},
                "tags": ["mail"],
            }
            mail = await post("/v1/jobs", queue_job, **{"idempotency-key": '"one"'})
            run = await post(f"/v1/jobs/{mail['id']}/trigger", {})
            await post(f"/v1/runs/{run['id']}/cancel", {})
            await post(f"/v1/runs/{run['id']}/retry", {})
            claimed = await post("/v1/runs/claim", {"worker": "w", "queue": "mail", "wait_s": 1})
            held = {"runs": [{"run_id": one["run_id"], "token": one["token"]} for one in claimed["runs"]]}
            for call in ("heartbeat", "permit", "release"):
                await post(f"/v1/runs/{call}", held)
            past = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}
            await post(f"/v1/jobs/{mail['id']}/backfill", past)
            await http.delete(f"/v1/jobs/{mail['id']}/backfills/1")
            await http.put("/v1/calendars/rest", json={"dates": ["2030-01-01"]})
            await http.put("/v1/calendars/rest", json={"dates": ["2030-01-02"]})
            await http.delete("/v1/calendars/rest")
            await post("/v1/pause", {"scope": {"tag": "mail"}})
            await post("/v1/resume", {"scope": {"tag": "mail"}})
            window = {"from": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}
            await http.put("/v1/blackouts/freeze", json=window)
            await http.delete("/v1/blackouts/freeze")
            await post(f"/v1/jobs/{job_id}/pause", {})
            await post(f"/v1/jobs/{job_id}/resume", {})


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


async def verify(data: Data, job_id: str, receiver: Receiver) -> None:
    """No rule of the history checker is broken, and every fire has one id however often it was sent."""
    planned = [Planned(parse_job_id(job_id), tuple(planned_instants(data, job_id)))]
    store = await open_store(str(data), create=False)
    try:
        history = await read_history(store, planned=planned, deliveries=receiver.deliveries())
    finally:
        await store.close()
    assert [run.key for run in history.runs if run.state is RunState.RUNNING] == []
    # A run may wait for its next attempt when the last process is stopped.
    broken = [violation for violation in judge(history).violations if violation.rule is not Rule.STUCK]
    assert broken == []
    ids: dict[str, set[str]] = defaultdict(set)
    for call in receiver.calls:
        ids[call.scheduled_at].add(call.run_id)
    assert {scheduled_at: found for scheduled_at, found in ids.items() if len(found) > 1} == {}


POINTS = [*_around(STORE_POINTS), *_around(ASKED_POINTS), *DECISION_POINTS, *DELIVERY_POINTS]
# Before a call nothing of it has reached an engine yet: one of them is enough.
POINTS_OF_ENGINES = [("sqlite", point) for point in POINTS] + [
    ("postgres", point) for point in POINTS if ":before:" not in point
]


@pytest.mark.slow
@pytest.mark.parametrize(("either_database", "point"), POINTS_OF_ENGINES, indirect=["either_database"])
async def test_a_process_killed_at_a_point_leaves_everything_to_its_successor(
    point: str, data: Data, tmp_path: Path
) -> None:
    port = free_port()
    async with receiving() as receiver:
        async with dying(point, data, log=tmp_path / "1.log", port=port) as first:
            if await first.wait_ready():
                created = await put_job(first, receiver)
                if created is not None and point.rsplit(":", 2)[0] in ASKED_POINTS:
                    await exercise(first, created)
            assert await first.wait_exit() == -signal.SIGKILL
        interrupted = len(receiver.calls)
        async with lasting(data, log=tmp_path / "2.log", port=port) as second:
            assert await second.wait_ready()
            job_id = await put_job(second, receiver)
            assert job_id is not None
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls[interrupted:]}) >= 3)
            assert await second.stop() == 0
        await verify(data, job_id, receiver)


@pytest.mark.slow
@pytest.mark.parametrize("point", AFTER_A_DEATH_POINTS)
async def test_a_process_killed_while_it_takes_over_leaves_everything_to_the_next(
    point: str, data: Data, tmp_path: Path
) -> None:
    port = free_port()
    hanging = asyncio.Event()

    async def answer_after_the_first(call: Call) -> int:
        if not hanging.is_set():
            hanging.set()
            await asyncio.Event().wait()  # the first delivery never gets its answer: its process dies waiting
        return 503 if call.attempt == 2 and point.startswith("leases.finish") else 200

    async with receiving(answer_after_the_first) as receiver:
        async with lasting(data, log=tmp_path / "1.log", port=port) as first:
            assert await first.wait_ready()
            job_id = await put_job(first, receiver)
            assert job_id is not None
            await receiver.wait_for(lambda calls: len(calls) == 1)
            await first.kill()
        async with dying(point, data, log=tmp_path / "2.log", port=port) as second:
            assert await second.wait_exit() == -signal.SIGKILL
        async with lasting(data, log=tmp_path / "3.log", port=port) as third:
            assert await third.wait_ready()
            lost = receiver.calls[0]
            # The run in flight at the first death is delivered again, under the same id, as a later attempt.
            await receiver.wait_for(lambda calls: any(c.run_id == lost.run_id and c.attempt > 1 for c in calls))
            seen = len(receiver.calls)
            await receiver.wait_for(lambda calls: len({call.run_id for call in calls[seen:]}) >= 2)
            assert await third.stop() == 0
        await verify(data, job_id, receiver)
