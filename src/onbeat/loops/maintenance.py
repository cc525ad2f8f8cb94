"""The slow loops: take back expired leases, delete old history, plan clocks again."""

from __future__ import annotations

from onbeat.clock import Clock
from onbeat.loops.loop import Loop
from onbeat.services.backfills import Backfills
from onbeat.services.calendars import Calendars
from onbeat.services.pauses import Pauses
from onbeat.services.reap import BATCH as REAP_BATCH
from onbeat.services.reap import Reap
from onbeat.services.retain import Retain
from onbeat.services.wake import Wake

REAP_EVERY_S = 1.0
"""A dead worker's run is offered again at most this long after its lease ended (promise P5 allows 5 s)."""

PRUNE_EVERY_S = 60.0
PRUNE_PAUSE_S = 0.2
"""Between two batches of a long clean-up, so that claims and fires come first."""

REPLAN_EVERY_S = 60.0
"""A change wakes the replanner. Looking by itself serves what a crash has left behind."""
REPLAN_PAUSE_S = 0.05

BACKFILLS_EVERY_S = 60.0
"""A new backfill wakes the loop, and one that goes on says when."""
BACKFILL_PAUSE_S = 0.05
"""Between two batches at least, so that claims and fires come first."""

PAUSES_EVERY_S = 1.0
"""A job goes on at most this long after its pause ended; what came due meanwhile is inside grace."""

CLOCK_READ_EVERY_S = 5.0


def reaper_loop(reap: Reap) -> Loop:
    """Takes back runs of silent workers. A loop of this process, not a job: it cannot get stuck itself."""

    async def step() -> float:
        return 0.0 if await reap.expire_leases() >= REAP_BATCH else REAP_EVERY_S

    return Loop("reaper", step)


def retention_loop(retain: Retain) -> Loop:
    """Deletes history that is older than its retention."""

    async def step() -> float:
        return PRUNE_PAUSE_S if await retain.prune() else PRUNE_EVERY_S

    return Loop("retention", step)


def replanner_loop(calendars: Calendars, *, wake: Wake) -> Loop:
    """Sets the clocks of jobs whose calendar changed, batch after batch."""

    async def step() -> float:
        return REPLAN_PAUSE_S if await calendars.replan() else REPLAN_EVERY_S

    return Loop("replanner", step, wake=wake)


def backfills_loop(backfills: Backfills, *, clock: Clock, wake: Wake) -> Loop:
    """Creates the runs of the past that people asked for, at the rate that each asked for."""

    async def step() -> float:
        next_at = await backfills.advance()
        wait_s = BACKFILLS_EVERY_S if next_at is None else (next_at - clock.now()) / 1e6
        return min(max(wait_s, BACKFILL_PAUSE_S), BACKFILLS_EVERY_S)

    return Loop("backfills", step, wake=wake)


def pauses_loop(pauses: Pauses, *, clock: Clock, wake: Wake) -> Loop:
    """Ends pauses that are over, and goes on with those that a stopped process left half done."""

    async def step() -> float:
        ends_at = await pauses.keep_up()
        return PAUSES_EVERY_S if ends_at is None else min(max((ends_at - clock.now()) / 1e6, 0.0), PAUSES_EVERY_S)

    return Loop("pauses", step, wake=wake)


def clock_loop(clock: Clock) -> Loop:
    """Keeps the database's time fresh in a process that has no dispatcher."""

    async def step() -> float:
        await clock.refresh()
        return CLOCK_READ_EVERY_S

    return Loop("clock", step)
