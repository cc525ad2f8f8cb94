"""Nodes behind a PgBouncer, at work while their connections to the server are ended and the pooler dies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.database import look
from tests.support.fleet import make_key, two_nodes
from tests.support.pgbouncer import pooling, until_it_answers
from tests.support.postgres import MASTER_KEY, Databases
from tests.support.receiver import Call, receiving

pytestmark = pytest.mark.slow

JOBS = 20
ROUNDS = int(os.environ.get("CHAOS_POOLER_ROUNDS", "8"))


def more_than(seen: int, calls: Sequence[Call]) -> bool:
    return len(calls) > seen


async def end_connections(direct: str) -> int:
    """Of the pooler and of whoever else uses the database. Answer: how many."""
    administrator = await asyncpg.connect(direct)
    try:
        return int(
            await administrator.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    finally:
        await administrator.close()


async def test_no_instant_is_lost_while_connections_are_ended_and_the_pooler_dies(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    direct = await databases.create()
    async with contextlib.AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(receiving())
        pooler = stack.enter_context(pooling(databases.server, connections=4))
        url = pooler.url(direct)
        await until_it_answers(url)
        key = await make_key(url, "admin")
        servers, http = await stack.enter_async_context(two_nodes(url, key, logs=tmp_path))
        ids = []
        for number in range(JOBS):
            body = {
                "name": f"job {number}", "schedules": [{"every": 1}], "target": {"url": receiver.url}, "grace_s": 60,
            }  # fmt: skip
            ids.append((await http.post("/v1/jobs", json=body)).raise_for_status().json()["id"])
        await receiver.wait_for(lambda calls: len(calls) >= JOBS)
        ended = 0
        for number in range(ROUNDS):
            seen = len(receiver.calls)
            ended += await end_connections(direct)
            if number == ROUNDS // 2:
                pooler.kill()
                pooler.start()
            # They go on between the rounds: one that stood still would be met by the next one.
            await receiver.wait_for(partial(more_than, seen))
        assert ended >= ROUNDS
        seen = len(receiver.calls)
        await receiver.wait_for(lambda calls: len(calls) >= seen + 2 * JOBS)
        for server in servers:
            assert await server.stop() == 0
        called = {call.run_id for call in receiver.calls}
    for job_id in ids:
        assert recorded_instants(direct, job_id) == planned_instants(direct, job_id)
    # What waited behind a run whose lease was lost with its connection gave its place to the next instant.
    ends = look(direct, "select distinct state, reason from ended_runs")
    assert set(ends) <= {("succeeded", None), ("missed", None), ("skipped", "overlap")}
    ((succeeded,),) = look(direct, "select count(*) from ended_runs where state = 'succeeded'")
    assert succeeded >= 2 * JOBS
    assert len(called) >= succeeded
    await databases.drop(direct)
