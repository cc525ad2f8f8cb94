"""The heartbeat of this node, and the sweep of slots whose own node does not serve them."""

from __future__ import annotations

from onbeat.loops.loop import Loop
from onbeat.services.dispatch import Dispatch
from onbeat.services.membership import Membership
from onbeat.telemetry import Metrics

BEAT_EVERY_S = 5.0
"""Where no other process works on the database, the row is for people."""

SHARED_BEAT_EVERY_S = 1.0
"""Where others may, it says who serves which slots: see DEAD_AFTER_S."""

SWEEP_EVERY_S = 1.0


def membership_loop(membership: Membership, *, is_shared: bool) -> Loop:
    """Keeps this node's row fresh, and its share of the slots right."""

    async def step() -> float:
        await membership.beat()
        return SHARED_BEAT_EVERY_S if is_shared else BEAT_EVERY_S

    return Loop("membership", step)


def sweeper_loop(dispatch: Dispatch, *, metrics: Metrics) -> Loop:
    """Fires what is overdue in slots of other nodes: of one that died, that stands still, or that cannot keep up."""

    async def step() -> float:
        report = await dispatch.sweep()
        if report is None:
            return SWEEP_EVERY_S
        metrics.observe_sweep(report.batch)
        return 0.0 if report.full else SWEEP_EVERY_S

    return Loop("sweeper", step)
