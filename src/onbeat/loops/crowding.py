"""Which hosts keep a worker waiting, so that they do not keep everybody else waiting too (reliability P22).

A worker's capacity is spent on attempts, and an attempt at a host that hangs is spent for its whole timeout: a host
with many jobs would soon hold all of it. So a worker that is full, with slow attempts among them, goes on claiming for
the other hosts, within limits. What it finds for slow hosts it puts off, and each putting off costs a lease and its
end. A backlog that came back all at once would be put off all at once, again and again: the cost would grow with its
square, just when there is overload. So it comes back in a line, at a rate: twice as fast as the host ends attempts, so
that none of its room stays empty, and at least so fast that a host that is well again is soon through.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from onbeat.domain.model import Target, WebhookTarget

SLOW_AFTER_S = 0.25
"""A host that lets an attempt wait for so long is a slow one until that has ended. Half of what P22 allows."""

EXTRA_SHARE = 5
"""Of the capacity's worth of extra attempts a single host gets one part in five: the next one may hang as well."""

PUT_OFF_S = 5.0
"""The first that is put off comes back when an attempt that begins now would end, but no later than this."""

RETURNS_PER_END = 2
"""What was put off comes back so many times as fast as the host ends attempts: a run that comes too early costs two
writes, one that comes too late leaves room empty.
"""

MOST_HOSTS = 1_000
"""Hosts of which it is remembered when the last run comes back."""

_AUTHORITY = re.compile(r"//([^/?#]*)")


def host_of(target: Target) -> str:
    """What is slow together: the host and port of a webhook."""
    return _host_of_url(target.url) if isinstance(target, WebhookTarget) else ""


@lru_cache(maxsize=4_096)  # jobs of one tenant call the same endpoint
def _host_of_url(url: str) -> str:
    found = _AUTHORITY.search(url)
    return "" if found is None else found[1].lower()


class Crowding:
    """The attempts in flight of one worker, by host. Moments are seconds of the boot clock."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._begun: dict[bytes, tuple[float, str]] = {}  # oldest first
        self._in_flight: Counter[str] = Counter()
        self._lasted: dict[str, float] = {}  # the last attempt at each host that has others in flight
        self._returns_at: dict[str, float] = {}  # when the last that was put off comes back

    def begin(self, token: bytes, host: str, *, at: float) -> None:
        """An attempt begins, or is certain to. Said again, it began the first time."""
        if token in self._begun:
            return
        self._begun[token] = (at, host)
        self._in_flight[host] += 1

    def end(self, token: bytes, *, at: float) -> None:
        """It has ended. Unknown tokens are passed over."""
        begun = self._begun.pop(token, None)
        if begun is None:
            return
        began_at, host = begun
        self._lasted[host] = at - began_at
        self._in_flight[host] -= 1
        if not self._in_flight[host]:
            del self._in_flight[host], self._lasted[host]

    @property
    def extra_room(self) -> int:
        """How many attempts beyond the capacity there is room for: as many again."""
        return max(2 * self._capacity - len(self._begun), 0)

    def slow_hosts(self, kept_waiting: Iterable[bytes]) -> frozenset[str]:
        """The hosts of those attempts in flight that have waited for SLOW_AFTER_S. Others may be older than that, too:
        a worker that has as much to do as it can takes so long itself.
        """
        return frozenset([self._begun[token][1] for token in kept_waiting if token in self._begun])

    def may_have_extra(self, host: str, *, slow_hosts: frozenset[str]) -> bool:
        """May one more attempt at this host begin beyond the capacity?"""
        share = max(self._capacity // EXTRA_SHARE, 1)
        return bool(self.extra_room) and host not in slow_hosts and self._in_flight[host] < share

    def put_off(self, host: str, *, now: float) -> float:
        """Give one more run of a slow host a place in the line of those that come back: in how many seconds."""
        lasts_s = self._lasts_s(host, now=now)
        per_s = self._capacity / EXTRA_SHARE
        if lasts_s > 0:
            per_s = max(per_s, RETURNS_PER_END * self._in_flight[host] / lasts_s)
        last = self._returns_at.get(host, 0.0)
        if host not in self._returns_at and len(self._returns_at) >= MOST_HOSTS:
            self._returns_at = {name: at for name, at in self._returns_at.items() if at > now}
        returns_at = self._returns_at[host] = max(last + 1 / per_s, now + min(max(lasts_s, SLOW_AFTER_S), PUT_OFF_S))
        return returns_at - now

    def _lasts_s(self, host: str, *, now: float) -> float:
        """How long an attempt at that host takes: as long as the last one, or as the oldest in flight so far."""
        oldest = next((at for at, name in self._begun.values() if name == host), now)
        return max(self._lasted.get(host, 0.0), now - oldest)
