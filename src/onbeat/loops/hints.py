"""Keeps the connection on which hints of other processes are heard."""

from __future__ import annotations

import random

from onbeat.loops.loop import Loop
from onbeat.services.hints import Hints

CHECK_EVERY_S = 5.0
"""A connection that was lost is missed for so long at most; until then work is found by looking."""

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 10.0


def hints_loop(hints: Hints) -> Loop:
    """Not to be heard is no error: nothing depends on hints. So it is tried again later and later, and quietly."""
    failures = 0

    async def step() -> float:
        nonlocal failures
        if await hints.listen():
            failures = 0
            return CHECK_EVERY_S
        backoff_s: float = min(FIRST_BACKOFF_S * 2 ** min(failures, 10), LONGEST_BACKOFF_S)
        failures += 1
        return backoff_s * random.uniform(0.5, 1.0)  # noqa: S311  spreads tries, protects nothing

    return Loop("hints", step)
