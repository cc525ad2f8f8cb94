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

IN_OTHER_HANDS_S = 0.01
"""When to look again where everything that is due was being recorded by others."""

MOST_DOUBLINGS = 3
"""Of that, where it stays so and look after look is in vain."""

LOOK_BESIDE_EVERY_S = 0.25
"""How often the second dispatcher looks while the first has all that is due in its hands, and stands still."""


def dispatcher_loop(dispatch: Dispatch, *, clock: Clock, wake: Wake, metrics: Metrics) -> Loop:
    """The loop that fires. It is woken when a job is created or changed."""
    in_vain = 0  # looks one after the other

    async def step() -> float:
        nonlocal in_vain
        report = await dispatch.fire_due()
        batch = report.batch
        metrics.observe_batch(batch, now=clock.now())
        if report.full and not batch.jobs:
            in_vain += 1
            return IN_OTHER_HANDS_S * (1 << min(in_vain - 1, MOST_DOUBLINGS))
        in_vain = 0
        if report.full:
            return 0.0
        look_every_s = LOOK_EVERY_S if dispatch.is_alone else LOOK_AMONG_NODES_EVERY_S
        if batch.next_due_at is None:
            return look_every_s
        return min(max((batch.next_due_at - clock.now()) / 1e6, 0.0), look_every_s)

    return Loop("dispatcher", step, wake=wake)


def second_dispatcher_loop(dispatch: Dispatch, *, clock: Clock, metrics: Metrics) -> Loop:
    """Fires beside the dispatcher while it is late: behind with what is due, or stuck in a lock with its batch."""

    async def step() -> float:
        report = await dispatch.help_out()
        if report is None:
            return LOOK_BESIDE_EVERY_S
        metrics.observe_batch(report.batch, now=clock.now())
        return 0.0 if report.batch.jobs else LOOK_BESIDE_EVERY_S

    return Loop("second_dispatcher", step, wake=dispatch.late)
