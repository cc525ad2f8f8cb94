"""Sleeps until the next clock is due, then lets fires become runs."""

from __future__ import annotations

from onbeat.clock import Clock
from onbeat.loops.loop import Loop
from onbeat.services.dispatch import Dispatch
from onbeat.services.wake import Wake
from onbeat.telemetry import Metrics

LOOK_EVERY_S = 1.0
"""A clock step or a job written by another process is noticed after at most this long."""

LOOK_AMONG_NODES_EVERY_S = 0.25
"""The same beside other nodes, through which most jobs of these slots are written: a short one-shot starts in time."""

HELPERS = 2
"""So many more batches are recorded at once while more is due than one takes. Most of a batch's time is waiting for
the database and the way to it; with more of them one process has no time of its own left to plan them.
"""

IN_OTHER_HANDS_S = 0.01
"""When to look again where everything that is due was being recorded by others."""


def dispatcher_loops(
    dispatch: Dispatch, *, clock: Clock, wake: Wake, metrics: Metrics, helpers: int = HELPERS
) -> tuple[Loop, ...]:
    """The loops that fire, the first of which is woken when a job is created or changed. The others help it while more
    is due than one batch takes: no two batches hold the same clock.
    """

    async def step() -> float:
        report = await dispatch.fire_due()
        batch = report.batch
        metrics.observe_batch(batch, now=clock.now())
        if report.full:
            for helper in helping:
                helper.wake.set()
            return 0.0 if batch.jobs else IN_OTHER_HANDS_S
        look_every_s = LOOK_EVERY_S if dispatch.is_alone else LOOK_AMONG_NODES_EVERY_S
        if batch.next_due_at is None:
            return look_every_s
        return min(max((batch.next_due_at - clock.now()) / 1e6, 0.0), look_every_s)

    async def help_out() -> float:
        if not dispatch.has_more:
            return LOOK_EVERY_S
        batch = (await dispatch.fire_due()).batch
        metrics.observe_batch(batch, now=clock.now())
        return 0.0 if batch.jobs else LOOK_EVERY_S

    helping = tuple(Loop(f"dispatcher-{number}", help_out) for number in range(2, helpers + 2))
    return (Loop("dispatcher", step, wake=wake), *helping)
