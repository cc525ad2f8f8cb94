"""Every clock of onbeat. The only module that reads one; tests inject a ManualClock.

The authority is the database's clock. A DatabaseClock keeps it between readings: server time advanced by the
monotonic clock, re-read at least every 10 s, never running backwards. Node wall clocks decide nothing; how far this
host's is off is measured with each reading.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

REREAD_AFTER_S = 10.0
SURE_WITHIN_S = 0.5
REREAD_UNSURE_AFTER_S = 1.0
"""A reading that took longer than that says little: the process may have stood still before the answer or after it. The
next one follows soon.
"""

JUMP_HELD_US = 60_000_000
"""A step of the database's clock larger than this against the monotonic clock waits for a second reading."""

SKEW_WARNED_US = 2_000_000
SKEW_PAGED_US = 30_000_000
"""How far a host's wall clock may be off before it is worth a warning, and before somebody should be woken: nothing
that onbeat does depends on it, but whatever else runs on that host may.
"""

log = structlog.get_logger(__name__)


def host_time_us() -> int:
    """The host's wall clock, µs UTC. On SQLite this is the database's clock: one host, one clock."""
    return time.time_ns() // 1_000


def boottime_s() -> float:
    """Seconds that go on in suspend, for lease deadlines. Falls back to the monotonic clock where there is none."""
    clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock_id)


class Clock(Protocol):
    """What services and loops see of time."""

    def now(self) -> int:
        """The database's time, µs UTC; never runs backwards."""
        ...

    def boottime(self) -> float:
        """Seconds of elapsed time, for waiting and local deadlines."""
        ...

    @property
    def skew_us(self) -> int:
        """How far the host's wall clock was ahead of the database's at the last reading, µs; negative: behind."""
        ...

    async def refresh(self) -> None:
        """Re-read the database's time when the last reading is old."""
        ...


def describe_skew(skew_us: int) -> str | None:
    """A sentence about a wall clock that is further off than is worth a warning. None: it is not."""
    if abs(skew_us) <= SKEW_WARNED_US:
        return None
    direction = "ahead of" if skew_us > 0 else "behind"
    return f"this host's clock is {abs(skew_us) / 1e6:.1f} s {direction} the database's"


@dataclass(slots=True)
class _Anchor:
    server_us: int
    boottime: float
    reread_after_s: float


class DatabaseClock:
    """The database's time between readings.

    1. `now` = last accepted reading + elapsed boot time, and never less than what was given out before.
    2. `refresh` takes a new reading; a small difference is accepted at once. The server's time lies between the
       reading and the reading + what it took: a time kept so far that lies there goes on, any other moves to the
       nearer end. The first one begins with the reading itself. So a process that stood still during a reading is
       never ahead by it.
    3. The host's wall clock before and after the reading says how far it is off; what the reading's own length may
       explain is no skew.
    4. A difference of more than 60 s is held: time goes on by the boot clock until a second reading agrees with the
       first; then it is accepted (forwards) or waited out (backwards: `now` stands still until time catches up).
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[int]],
        *,
        boottime: Callable[[], float] = boottime_s,
        wall: Callable[[], int] = host_time_us,
    ) -> None:
        self._read = read
        self._boottime = boottime
        self._wall = wall
        self._skew_us = 0
        self._anchor: _Anchor | None = None
        self._held_step_us: int | None = None
        self._highest = 0

    @classmethod
    async def start(
        cls,
        read: Callable[[], Awaitable[int]],
        *,
        boottime: Callable[[], float] = boottime_s,
        wall: Callable[[], int] = host_time_us,
    ) -> DatabaseClock:
        """A clock with its first reading taken."""
        clock = cls(read, boottime=boottime, wall=wall)
        await clock.refresh()
        return clock

    def boottime(self) -> float:
        return self._boottime()

    def now(self) -> int:
        if self._anchor is None:
            raise RuntimeError("the clock has not been read yet: await refresh() first")
        self._highest = max(self._highest, self._projected(self._anchor))
        return self._highest

    async def refresh(self) -> None:
        if self._anchor is not None and self._boottime() - self._anchor.boottime < self._anchor.reread_after_s:
            return
        wall_before, asked_at = self._wall(), self._boottime()
        reading, at = await self._read(), self._boottime()
        self._note_skew(reading, wall_before=wall_before, wall_after=self._wall())
        took_s = at - asked_at
        reread_after_s = REREAD_AFTER_S if took_s <= SURE_WITHIN_S else REREAD_UNSURE_AFTER_S
        if self._anchor is None:
            self._anchor = _Anchor(reading, at, reread_after_s)
            return
        kept = self._projected(self._anchor)
        moved = min(max(kept, reading), reading + round(took_s * 1e6))
        step = moved - kept
        if abs(step) <= JUMP_HELD_US:
            self._anchor, self._held_step_us = _Anchor(moved, at, reread_after_s), None
        elif self._held_step_us is None or abs(step - self._held_step_us) > JUMP_HELD_US:
            log.error("clock_jump_held", step_s=step / 1e6)
            self._held_step_us = step
        else:
            log.error("clock_jump_accepted", step_s=step / 1e6)
            self._anchor, self._held_step_us = _Anchor(moved, at, reread_after_s), None

    @property
    def skew_us(self) -> int:
        return self._skew_us

    def _note_skew(self, reading: int, *, wall_before: int, wall_after: int) -> None:
        before = _severity(self._skew_us)
        self._skew_us = min(wall_after - reading, 0) or max(wall_before - reading, 0)
        severity = _severity(self._skew_us)
        if severity != before:  # once for each change, not with each reading
            tell = (log.info, log.warning, log.error)[severity]
            tell("clock_skew", skew_s=self._skew_us / 1e6)

    def _projected(self, anchor: _Anchor) -> int:
        return anchor.server_us + round((self._boottime() - anchor.boottime) * 1e6)


def _severity(skew_us: int) -> int:
    """0: fine; 1: worth a warning; 2: worth waking somebody."""
    return (abs(skew_us) > SKEW_WARNED_US) + (abs(skew_us) > SKEW_PAGED_US)


class ManualClock:
    """A clock that tests and simulations turn by hand."""

    def __init__(self, now: int = 1_800_000_000_000_000, *, skew_us: int = 0) -> None:
        self.skew_us = skew_us
        self._now = now
        self._started = now

    def now(self) -> int:
        return self._now

    def boottime(self) -> float:
        return (self._now - self._started) / 1e6

    async def refresh(self) -> None:
        return

    def set(self, now: int) -> None:
        """Go to an instant."""
        self._now = now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += round(seconds * 1e6)
