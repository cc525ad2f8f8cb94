"""When a claim that waits looks again."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.scheduler import SECOND, START

from onbeat.services.readiness import LOOK_EVERY_S, ReadyLook


def seen_now(ready_at: int | None) -> ReadyLook:
    return ReadyLook(ready_at, 0, asyncio.get_running_loop().time())


@pytest.mark.parametrize("late_us", [0, 1, 60 * SECOND])
async def test_whoever_saw_a_run_coming_does_not_wait_once_it_is_ready(late_us: int) -> None:
    """It can become ready between two readings of the clock: it was then found by the next poll, 250 ms late."""
    assert seen_now(START).next_look_s(now=START + late_us) == 0


async def test_whoever_sees_a_run_coming_waits_until_it_is_ready_and_no_longer_than_a_poll() -> None:
    assert seen_now(START).next_look_s(now=START - 1_000) == 0.001
    assert LOOK_EVERY_S / 2 < seen_now(START).next_look_s(now=START - SECOND) <= LOOK_EVERY_S
    assert LOOK_EVERY_S / 2 < seen_now(None).next_look_s(now=START) <= LOOK_EVERY_S
