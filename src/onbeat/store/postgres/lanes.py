"""Lanes: who may run next when a run leaves its lane. The only place where a waiting run gets one.

A job has lanes 0 … max_running - 1; a live run that runs, or waits for its next attempt, holds one. The fence is the
unique index `live_lanes`; this module only decides who gets what is free.

Several transactions may free lanes of one job at a time. Each of them, once it has freed its own, locks the run that
is first in line and looks afterwards which lanes are held: the one that gets the lock last sees them all, so that a
lane is never left free behind a run that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg

from onbeat.domain.overlap import lowest_free_lane
from onbeat.store.postgres.after_finish import set_clocks_after
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection, LostRaceError
from onbeat.store.postgres.queries import load_queries

_QUERIES = load_queries("leases")


async def free_lane(connection: Connection, job_id: int, *, slot: int) -> int | None:
    """The lowest free lane of a job as it stands. None: all are held, or there is no such job."""
    for _job_id, max_running, held in await connection.fetch(_QUERIES["lanes_of_jobs"], [slot], [job_id]):
        return lowest_free_lane(held, max_running=max_running)
    return None


async def pass_lanes_on(connection: Connection, job_ids: Iterable[int], *, slots: int, now: int) -> int:
    """Give the free lanes of these jobs to runs that wait: schedule-triggered first, then oldest.

    Each is ready at max(now, its own ready_at). Answer: how many runs got a lane. Where none is live any more,
    a job that fires after a finish gets its clock.
    """
    asked = list({(job_id % slots, job_id) for job_id in job_ids})
    clocks_wanted: set[int] = set()
    given = 0
    while asked:
        rows = await connection.fetch(_QUERIES["what_ends_leave"], *columns(asked, count=2))
        clocks_wanted.update(job_id for job_id, _head, is_after_finish in rows if is_after_finish)
        heads = [(job_id % slots, job_id, head) for job_id, head, _is_after_finish in rows if head is not None]
        more, asked = await _give_lanes(connection, heads, now=now) if heads else (0, [])
        given += more
    if clocks_wanted:
        await set_clocks_after(connection, clocks_wanted, slots=slots, now=now)
    return given


async def _give_lanes(
    connection: Connection, heads: Sequence[tuple[int, int, int]], *, now: int
) -> tuple[int, list[tuple[int, int]]]:
    """Give one lane to each of these runs, as far as one is free. Answer: how many got one, and the jobs to be asked
    once more: those that may have another, and those whose first run has left the line meanwhile.
    """
    locked = {row[0] for row in await connection.fetch(_QUERIES["lock_waiting"], *columns(heads, count=3))}
    again = [(slot, job_id) for slot, job_id, _head in heads if job_id not in locked]
    heads = [head for head in heads if head[1] in locked]
    if not heads:
        return 0, again
    asked = [(slot, job_id) for slot, job_id, _head in heads]
    rows = await connection.fetch(_QUERIES["lanes_of_jobs"], *columns(asked, count=2))
    lanes = {row[0]: (row[1], row[2]) for row in rows}
    given: list[tuple[int, int, int, int]] = []
    for slot, job_id, head in heads:
        max_running, held = lanes.get(job_id, (0, []))
        lane = lowest_free_lane(held, max_running=max_running)
        if lane is None:
            continue
        given.append((slot, job_id, head, lane))
        if lowest_free_lane([*held, lane], max_running=max_running) is not None:
            again.append((slot, job_id))
    if given:
        try:
            await connection.execute(_QUERIES["give_lanes"], now, *columns(given, count=4))
        except asyncpg.UniqueViolationError as error:
            raise LostRaceError("a lane was taken meanwhile") from error
    return len(given), again
