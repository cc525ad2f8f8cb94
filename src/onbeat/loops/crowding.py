"""Which hosts keep a worker waiting, so that they do not keep everybody else waiting too (reliability P22).

A worker's capacity is spent on attempts, and an attempt at a host that hangs is spent for its whole timeout: a host
with many jobs would soon hold all of it. So a worker that is full, with slow attempts among them, goes on claiming for
the other hosts, within limits.
"""

from __future__ import annotations

import re
from collections import Counter

from onbeat.domain.model import Target, WebhookTarget

SLOW_AFTER_S = 0.25
"""An attempt that has not ended by then makes its host a slow one until it has. Half of what P22 allows."""

EXTRA_SHARE = 5
"""Of the capacity's worth of extra attempts a single host gets one part in five: the next one may hang as well."""


_AUTHORITY = re.compile(r"//([^/?#]*)")


def host_of(target: Target) -> str:
    """What is slow together: the host and port of a webhook."""
    found = _AUTHORITY.search(target.url) if isinstance(target, WebhookTarget) else None
    return "" if found is None else found[1].lower()


class Crowding:
    """The attempts in flight of one worker, by host. Moments are seconds of the boot clock."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._begun: dict[bytes, tuple[float, str]] = {}  # oldest first
        self._in_flight: Counter[str] = Counter()

    def begin(self, token: bytes, host: str, *, at: float) -> None:
        """An attempt begins."""
        self._begun[token] = (at, host)
        self._in_flight[host] += 1

    def end(self, token: bytes) -> None:
        """It has ended. Unknown tokens are passed over."""
        begun = self._begun.pop(token, None)
        if begun is None:
            return
        host = begun[1]
        self._in_flight[host] -= 1
        if not self._in_flight[host]:
            del self._in_flight[host]

    @property
    def extra_room(self) -> int:
        """How many attempts beyond the capacity there is room for: as many again."""
        return max(2 * self._capacity - len(self._begun), 0)

    def slow_hosts(self, *, now: float) -> frozenset[str]:
        """Hosts with an attempt in flight that is slow."""
        slow: set[str] = set()
        for at, host in self._begun.values():
            if now - at < SLOW_AFTER_S:
                break
            slow.add(host)
        return frozenset(slow)

    def may_have_extra(self, host: str, *, slow_hosts: frozenset[str]) -> bool:
        """May one more attempt at this host begin beyond the capacity?"""
        share = max(self._capacity // EXTRA_SHARE, 1)
        return bool(self.extra_room) and host not in slow_hosts and self._in_flight[host] < share
