"""Lanes: who may run next when a run leaves its lane. The only place where a waiting run gets one.

A job has lanes 0 … max_running - 1; a live run that runs, or waits for its next attempt, holds one. The fence is the
unique index `live_lanes`; this module only decides who gets what is free.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from onbeat.domain.overlap import lowest_free_lane
from onbeat.store.sqlite.after_finish import set_clocks_after
from onbeat.store.sqlite.queries import load_queries

_QUERIES = load_queries("leases")


def free_lane(connection: apsw.Connection, job_id: int, *, slot: int) -> int | None:
    """The lowest free lane of a job as it stands. None: all are held, or there is no such job."""
    max_running = connection.execute(_QUERIES["max_running"], (job_id,)).get or 0
    return lowest_free_lane(_held_lanes(connection, job_id, slot=slot), max_running=max_running)


def pass_lanes_on(connection: apsw.Connection, job_ids: Iterable[int], *, slots: int, now: int) -> int:
    """Give the free lanes of these jobs to runs that wait: schedule-triggered first, then oldest.

    Each is ready at max(now, its own ready_at). Answer: how many runs got a lane. Where none is live any more,
    a job that fires after a finish gets its clock.
    """
    ended = set(job_ids)
    given = 0
    if connection.execute(_QUERIES["any_waiting"]).get is not None:
        given = sum(_pass_lanes_of_job_on(connection, job_id, slot=job_id % slots, now=now) for job_id in ended)
    set_clocks_after(connection, ended, slots=slots, now=now)
    return given


def _pass_lanes_of_job_on(connection: apsw.Connection, job_id: int, *, slot: int, now: int) -> int:
    given = 0
    held: set[int] | None = None
    max_running = 0
    while (scheduled_at := connection.execute(_QUERIES["next_waiting"], (slot, job_id)).get) is not None:
        if held is None:
            held = _held_lanes(connection, job_id, slot=slot)
            max_running = connection.execute(_QUERIES["max_running"], (job_id,)).get or 0
        lane = lowest_free_lane(held, max_running=max_running)
        if lane is None:
            break
        connection.execute(_QUERIES["give_lane"], (lane, now, slot, job_id, scheduled_at))
        held.add(lane)
        given += 1
    return given


def _held_lanes(connection: apsw.Connection, job_id: int, *, slot: int) -> set[int]:
    return {lane for (lane,) in connection.execute(_QUERIES["held_lanes"], (slot, job_id))}
