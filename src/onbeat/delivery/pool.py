"""The connections to one origin: which are idle, how many there may be, who waits for one."""

from __future__ import annotations

from collections import deque

from onbeat.delivery.attempt import Attempt
from onbeat.delivery.connection import Connection
from onbeat.delivery.request import Origin


class Pool:
    """Counts places: a connection that is open, being opened or closing takes one until it is gone."""

    __slots__ = ("_max_connections", "idle", "origin", "taken", "waiting")

    def __init__(self, origin: Origin, *, max_connections: int) -> None:
        self.origin = origin
        self._max_connections = max_connections
        self.taken = 0
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

    def next_waiting(self) -> Attempt | None:
        """The attempt that has waited longest and has not ended meanwhile."""
        while self.waiting:
            attempt = self.waiting.popleft()
            if not attempt.ended:
                return attempt
        return None
