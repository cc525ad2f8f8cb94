"""How the lanes of several jobs are locked: in one order, whoever asks, and answered as they are once locks are had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias, cast

import asyncpg
import pytest
from tests.support.postgres import Databases

from onbeat.store.postgres.connections import Connection as EngineConnection
from onbeat.store.postgres.database import BEGIN_WRITE
from onbeat.store.postgres.locks import lock_lanes

SLOTS = 8
JOBS = [(2, 10), (1, 33), (1, 17)]
"""Slot and job, as nobody would sort them."""
HELD = [(slot, job_id, at, lane) for slot, job_id in JOBS for lane, at in enumerate((300, 100, 200))]
IN_ORDER = sorted((slot, job_id, at) for slot, job_id, at, _lane in HELD)
BLOCKED_WITHIN_S = 10

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def connections(databases: Databases) -> AsyncIterator[list[Connection]]:
    """One that locks, one that is in its way, one that looks on: on a database with runs that hold lanes."""
    url = await databases.create()
    opened = [await asyncpg.connect(url) for _ in range(3)]
    await opened[0].executemany(
        "INSERT INTO live_runs (slot, job_id, scheduled_at, state, trigger, job_version, attempt, lane, ready_at,"
        " late_after, max_run_us, created_at) VALUES ($1, $2, $3, 'pending', 'schedule', 1, 0, $4, 1, 1, 1, 1)",
        [*HELD, *((slot, job_id, 400 + number, None) for slot, job_id in JOBS for number in range(50))],
    )
    yield opened
    for connection in opened:
        await connection.close()
    await databases.drop(url)


async def lock(connection: Connection) -> list[tuple[int, int, int]]:
    await connection.execute(BEGIN_WRITE)
    lanes = await lock_lanes(cast(EngineConnection, connection), [job_id for _, job_id in JOBS], slots=SLOTS)
    return sorted((job_id % SLOTS, job_id, hold.scheduled_at) for job_id, (holds, _) in lanes.items() for hold in holds)


async def start_waiting(connection: Connection, onlooker: Connection) -> asyncio.Task[list[tuple[int, int, int]]]:
    """Lock, and come back when that waits for somebody."""
    pid = connection.get_server_pid()
    task = asyncio.create_task(lock(connection))
    async with asyncio.timeout(BLOCKED_WITHIN_S):
        while not await onlooker.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid):
            assert not task.done()
    return task


async def test_lanes_are_locked_by_slot_job_and_instant(connections: list[Connection]) -> None:
    locker, other, onlooker = connections
    for number, (slot, job_id, at) in enumerate(IN_ORDER):
        await other.execute("BEGIN")
        await other.execute(
            "SELECT FROM live_runs WHERE slot = $1 AND job_id = $2 AND scheduled_at = $3 FOR UPDATE", slot, job_id, at
        )
        waiting = await start_waiting(locker, onlooker)
        free = {
            tuple(row)
            for row in await onlooker.fetch(
                "SELECT slot, job_id, scheduled_at FROM live_runs WHERE lane >= 0 FOR UPDATE SKIP LOCKED"
            )
        }
        assert free == set(IN_ORDER[number + 1 :])
        await other.execute("ROLLBACK")
        assert await waiting == IN_ORDER
        await locker.execute("ROLLBACK")


@pytest.mark.parametrize("change", ["UPDATE live_runs SET lane = NULL", "DELETE FROM live_runs"])
async def test_a_lane_that_is_given_up_meanwhile_is_not_held(connections: list[Connection], change: str) -> None:
    locker, other, onlooker = connections
    await other.execute("BEGIN")
    await other.execute(f"{change} WHERE slot = 1 AND job_id = 33 AND scheduled_at = 200")
    waiting = await start_waiting(locker, onlooker)
    await other.execute("COMMIT")
    assert await waiting == [key for key in IN_ORDER if key != (1, 33, 200)]
    await locker.execute("ROLLBACK")


async def test_runs_that_change_lanes_meanwhile_are_held(connections: list[Connection]) -> None:
    locker, other, onlooker = connections
    await other.execute("BEGIN")
    await other.execute("UPDATE live_runs SET attempt = 1, lane = lane + 5 WHERE job_id = 33 AND lane >= 0")
    waiting = await start_waiting(locker, onlooker)
    await other.execute("COMMIT")
    assert await waiting == IN_ORDER
    await locker.execute("ROLLBACK")
