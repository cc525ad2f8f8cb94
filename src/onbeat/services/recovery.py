"""The global recovery rate: how fast what makes up for the past starts, over all jobs together. Design §3.

That is what is caught up after an outage, and what a person brings back in bulk.

A place is a second with `per_s` starts in it. A run takes the first place that is free at or after its own earliest
instant, so that one job's spacing leaves room for the runs of others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from onbeat.domain.ids import RunKey
from onbeat.domain.model import SECOND_US

SECONDS_REMEMBERED: Final = 3_600
"""Seconds that are past by more than this are forgotten."""


class Recovery:
    """Gives out places. Filled at a start from the runs that are recorded already, so a restart changes no rate."""

    def __init__(self, *, per_s: int) -> None:
        self._all_per_s = per_s
        self._per_s = per_s  # this node's part of it
        self._taken: dict[int, int] = {}
        self._next_free: dict[int, int] = {}  # a full second → a later one to look at; shortened on the way
        self._lock = threading.Lock()  # decisions are taken on the store's thread
        self.is_filled = False

    def fill(self, places: Iterable[tuple[int, int]]) -> None:
        """These starts are planned already: `(second, count)`."""
        with self._lock:
            for second, count in places:
                self._take(second, count)
        self.is_filled = True

    def share_among(self, nodes: int) -> None:
        """So many nodes give out places now, each its part of the rate; at least one a second."""
        with self._lock:
            self._per_s = max(self._all_per_s // nodes, 1)

    def begin(self, *, now: int) -> Places:
        """A new transaction. There may be several at once."""
        with self._lock:
            if len(self._taken) > SECONDS_REMEMBERED:
                self._forget_before(now // SECOND_US - SECONDS_REMEMBERED)
        return Places(self)

    def next_place(self, *, earliest: int) -> int:
        """When one more run may start: not before `earliest`."""
        with self._lock:
            return self._first_place(earliest)

    def _first_place(self, earliest: int) -> int:
        second = self._first_free(earliest // SECOND_US)
        used = self._taken.get(second, 0)
        self._take(second, 1)
        return max(earliest, second * SECOND_US + used * SECOND_US // self._per_s)

    def _forget_before(self, oldest: int) -> None:
        for second in [second for second in self._taken if second < oldest]:
            del self._taken[second]
            self._next_free.pop(second, None)

    def _take(self, second: int, count: int) -> None:
        self._taken[second] = self._taken.get(second, 0) + count
        if self._taken[second] >= self._per_s:
            self._next_free[second] = second + 1

    def _first_free(self, second: int) -> int:
        passed: list[int] = []
        while second in self._next_free or self._taken.get(second, 0) >= self._per_s:
            passed.append(second)
            second = self._next_free.get(second, second + 1)
        for full in passed:
            self._next_free[full] = second
        return second


class Places:
    """Those of one transaction: asked again for the same run, as when the transaction is tried again, it gives the same
    place.
    """

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._given: dict[RunKey, int] = {}

    def place(self, key: RunKey, *, earliest: int) -> int:
        """When this caught-up run may start: not before `earliest`."""
        given = self._given.get(key)
        if given is None:
            given = self._given[key] = self._recovery.next_place(earliest=earliest)
        return given
