"""How long the dispatcher sleeps: until the next clock is due, and never so long that a job of another node is late."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.scheduler import Scheduler, every, scheduling

from onbeat.domain.rendezvous import Share
from onbeat.loops.dispatcher import LOOK_AMONG_NODES_EVERY_S, LOOK_EVERY_S, dispatcher_loop
from onbeat.loops.loop import Loop
from onbeat.services.wake import Wake
from onbeat.telemetry import Metrics


class OneSleep(Wake):
    """Notes how long the loop wants to sleep first, and ends it."""

    loop: Loop
    length_s: float | None = None

    async def wait(self, timeout_s: float) -> bool:
        self.length_s = timeout_s
        self.loop.stop()
        return True


async def first_sleep(scheduler: Scheduler) -> float | None:
    wake = OneSleep()
    wake.loop = dispatcher_loop(scheduler.dispatch, clock=scheduler.clock, wake=wake, metrics=Metrics())
    await wake.loop.run()
    return wake.length_s


@pytest.mark.parametrize(
    ("share", "longest_s"),
    [(None, LOOK_EVERY_S), (Share(nodes=2, own=tuple(range(256)), foreign=()), LOOK_AMONG_NODES_EVERY_S)],
    ids=["alone", "among nodes"],
)
async def test_the_dispatcher_sleeps_until_a_clock_is_due_but_no_longer_than_this(
    tmp_path: Path, share: Share | None, longest_s: float
) -> None:
    async with scheduling(tmp_path / "onbeat.db") as scheduler:
        scheduler.dispatch.serve(share)
        assert await first_sleep(scheduler) == longest_s
        await scheduler.job(every(3_600))
        assert await first_sleep(scheduler) == longest_s
        await scheduler.job(every(1))
        scheduler.clock.advance(0.9)
        assert await first_sleep(scheduler) == pytest.approx(0.1)
