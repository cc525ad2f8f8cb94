"""Nodes on a database whose tables are spread by slot: they fire, claim and finish one slot at a time.

On one ordinary server: Citus cannot be had here (tests/support/citus.py).
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import pytest
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.citus import SCHEMA, spread
from tests.support.database import look
from tests.support.fleet import make_key, two_nodes
from tests.support.postgres import DEFAULT_SLOTS, MASTER_KEY, Databases
from tests.support.receiver import Call, receiving

pytestmark = pytest.mark.slow

JOBS = 8


async def test_nodes_fire_every_instant_and_go_on_when_one_is_killed(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many slots as a database has by default: more than a process looks into at once."""
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    template = await databases.make_template(
        "spread_widely_template", functools.partial(spread, slots=DEFAULT_SLOTS), search_path=f"public, {SCHEMA}"
    )
    url = await databases.create(template=template)
    key = await make_key(url, "admin")

    async def answer(call: Call) -> int:
        return 503 if call.attempt == 1 and call.scheduled_at.endswith(("3Z", "7Z")) else 200

    async with contextlib.AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(receiving(answer))
        longer = {"ONBEAT_LEASE_S": "10", "ONBEAT_HEARTBEAT_S": "2"}
        servers, http = await stack.enter_async_context(two_nodes(url, key, logs=tmp_path, settings=longer))
        ids = []
        for number in range(JOBS):
            body = {
                "name": f"job {number}", "schedules": [{"every": 1}], "target": {"url": receiver.url}, "grace_s": 60,
                "retry": {"initial_s": 0.1},
            }  # fmt: skip
            made = await http.post("/v1/jobs", json=body)
            assert made.status_code == 201, made.text
            ids.append(made.json()["id"])
        await receiver.wait_for(lambda calls: len({call.run_id for call in calls}) >= 2 * JOBS, timeout_s=60)
        await servers[1].kill()
        seen = len(receiver.calls)
        await receiver.wait_for(lambda calls: len(calls) >= seen + 3 * JOBS, timeout_s=60)
        asked_for = (await http.post(f"/v1/jobs/{ids[0]}/trigger", json={})).raise_for_status().json()["id"]
        await receiver.wait_for(lambda calls: any(call.run_id == asked_for for call in calls))
        assert await servers[0].stop() == 0
    for job_id in ids:
        assert recorded_instants(url, job_id) == planned_instants(url, job_id)
    assert look(url, "select count(*) from ended_runs where state = 'succeeded' and attempt > 1")[0][0] > 0
    assert look(url, "select count(*) from ended_runs where state in ('failed', 'unknown', 'missed')") == [(0,)]
    await databases.drop(url)
