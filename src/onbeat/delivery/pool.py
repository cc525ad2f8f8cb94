"""The connections to one origin: which are idle, how many there may be, who waits for one."""

from __future__ import annotations

from collections import deque

from onbeat.delivery.attempt import Attempt
from onbeat.delivery.connection import Connection
from onbeat.delivery.request import Origin

REMEMBERED = 8
"""Of about so many exchanges the length is averaged: one that the worker itself held up says little."""


class Pool:
    """Counts places: a connection that is open, being opened or closing takes one until it is gone."""

    __slots__ = ("_max_connections", "exchange_s", "idle", "origin", "taken", "waiting")

    def __init__(self, origin: Origin, *, max_connections: int) -> None:
        self.origin = origin
        self._max_connections = max_connections
        self.taken = 0
        self.exchange_s: float | None = None  # how long one takes, lately
        self.idle: list[Connection] = []  # used last stands last: few stay warm, the others grow old
        self.waiting: deque[Attempt] = deque()

    @property
    def is_unused(self) -> bool:
        """Nothing would be lost with this pool."""
        return not self.taken and not self.waiting

    @property
    def has_place(self) -> bool:
        """True: one more connection may be opened."""
        return self.taken < self._max_connections

    def note_exchange(self, lasted_s: float) -> None:
        """One has ended."""
        before = self.exchange_s
        self.exchange_s = lasted_s if before is None else before + (lasted_s - before) / REMEMBERED

    def next_waiting(self) -> Attempt | None:
        """The attempt that has waited longest and has not ended meanwhile."""
        while self.waiting:
            attempt = self.waiting.popleft()
            if not attempt.ended:
                return attempt
        return None
