"""A coarse timer for deadlines that are almost never reached: setting and clearing one costs a set operation."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from math import ceil
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class TimerWheel(Generic[Item]):
    """Rings for each item once its time has come, at most `step_s` late, never early.

    One `call_at` serves all items of a step. `loop.call_later` per attempt would leave a cancelled handle in the
    loop's heap for the whole timeout, 30 s long, at thousands a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, step_s: float, ring: Callable[[Item], None]) -> None:
        self._loop = loop
        self._step_s = step_s
        self._ring = ring
        self._steps: dict[int, set[Item]] = {}
        self._order: list[int] = []
        self._handle: asyncio.TimerHandle | None = None

    def add(self, item: Item, *, at: float) -> int:
        """Ring for `item` at loop time `at`. The answer is what `discard` wants to know."""
        step = ceil(at / self._step_s)
        items = self._steps.get(step)
        if items is None:
            items = self._steps[step] = set()
            heapq.heappush(self._order, step)
            if self._order[0] == step:
                self._wait()
        items.add(item)
        return step

    def discard(self, item: Item, *, step: int) -> None:
        """Do not ring for `item`. Nothing happens where it has rung."""
        items = self._steps.get(step)
        if items is not None:
            items.discard(item)

    def stop(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        self._steps.clear()
        self._order.clear()

    def _wait(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._order:
            self._handle = self._loop.call_at(self._order[0] * self._step_s, self._ring_due)

    def _ring_due(self) -> None:
        due: list[Item] = []
        now = self._loop.time()
        while self._order and self._order[0] * self._step_s <= now:
            due.extend(self._steps.pop(heapq.heappop(self._order)))
        self._wait()
        for item in due:
            self._ring(item)
