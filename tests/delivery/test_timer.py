"""The timer wheel rings late by a step at most, never early, and not for what was discarded."""

from __future__ import annotations

import asyncio

from tests.delivery.receivers import DEADLINE_S

from onbeat.delivery.timer import TimerWheel


async def test_items_ring_in_the_order_of_their_time_and_never_early() -> None:
    loop = asyncio.get_running_loop()
    rung: list[tuple[str, float]] = []
    last = asyncio.Event()

    def ring(item: str) -> None:
        rung.append((item, loop.time()))
        if item == "late":
            last.set()

    wheel = TimerWheel(loop, step_s=0.01, ring=ring)
    now = loop.time()
    wheel.add("late", at=now + 0.06)
    wheel.add("soon", at=now + 0.02)
    step = wheel.add("discarded", at=now + 0.02)
    wheel.discard("discarded", step=step)
    async with asyncio.timeout(DEADLINE_S):
        await last.wait()
    assert [item for item, _ in rung] == ["soon", "late"]
    assert rung[0][1] >= now + 0.02
    assert rung[1][1] >= now + 0.06
    wheel.discard("late", step=step)


async def test_a_stopped_wheel_holds_nothing() -> None:
    loop = asyncio.get_running_loop()
    wheel: TimerWheel[str] = TimerWheel(loop, step_s=0.01, ring=lambda _: None)
    wheel.add("one", at=loop.time() + 1)
    wheel.stop()
    wheel.add("two", at=loop.time() + 1)
    wheel.stop()
