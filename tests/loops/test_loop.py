"""The one endless loop: it never loses a wake-up, never dies of an error, and stops when told to."""

from __future__ import annotations

import asyncio

from onbeat.loops.loop import Loop
from onbeat.services.wake import Wake


async def test_a_wake_up_during_the_step_is_not_lost() -> None:
    steps = 0
    twice = asyncio.Event()

    async def step() -> float:
        nonlocal steps
        steps += 1
        if steps == 1:
            loop.wake.set()  # comes while the step runs, before anybody waits
        else:
            twice.set()
        return 3_600.0

    loop = Loop("test", step)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(5):
        await twice.wait()
    loop.stop()
    await task
    assert steps == 2


async def test_a_failing_step_is_repeated_and_recovers() -> None:
    steps = 0
    recovered = asyncio.Event()

    async def step() -> float:
        nonlocal steps
        steps += 1
        if steps < 3:
            raise RuntimeError("the database is away")
        recovered.set()
        return 3_600.0

    loop = Loop("test", step)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(10):
        await recovered.wait()
    loop.stop()
    await task
    assert loop.failures == 0


async def test_failures_are_counted_until_the_next_success() -> None:
    failed = asyncio.Event()

    async def step() -> float:
        failed.set()
        raise RuntimeError("always")

    loop = Loop("test", step)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(5):
        await failed.wait()
    loop.stop()
    await task
    assert loop.failures >= 1


async def test_stop_ends_a_waiting_loop_at_once() -> None:
    waiting = asyncio.Event()

    async def step() -> float:
        waiting.set()
        return 3_600.0

    loop = Loop("test", step)
    task = asyncio.create_task(loop.run())
    async with asyncio.timeout(5):
        await waiting.wait()
        loop.stop()
        await task


async def test_wake_is_taken_once() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    assert await wake.wait(0.0) is True
    assert await wake.wait(0.0) is False
