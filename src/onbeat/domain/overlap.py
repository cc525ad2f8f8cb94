"""What a fire does when its job is still busy. Design §3, "Overlap".

A job has `max_running` lanes. A run holds a lane from the moment it may start until it ends, also while it waits for
its next attempt: a retrying run counts as running. The fence is the unique key on (job, lane) in the database; what
is decided here is only which lane to ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from onbeat.domain.model import MAX_RUNNING
from onbeat.domain.states import RunState, Trigger

OverlapPolicy = Literal["queue", "skip", "allow", "replace"]

RECOVERY = frozenset({Trigger.CATCH_UP, Trigger.BACKFILL})
"""Triggers of runs that make up for the past. They stand behind live work."""


FIRST_FORCED_LANE: Final = 1_000
"""Forced runs stand beside the job's own lanes, in lanes from here on, so that the fence holds for them too."""


class Hold(Protocol):
    """A live run that holds a lane."""

    @property
    def lane(self) -> int: ...
    @property
    def scheduled_at(self) -> int: ...
    @property
    def state(self) -> RunState: ...
    @property
    def trigger(self) -> Trigger: ...
    @property
    def attempt(self) -> int: ...
    @property
    def ready_at(self) -> int: ...
    @property
    def is_brought_back(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Admitted:
    """The fire gets a lane. `replaces` names an unstarted run whose lane and place in the line it takes, `displaces`
    one that goes back to waiting for a lane."""

    lane: int
    ready_at: int | None = None  # None: at once
    replaces: int | None = None
    displaces: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """The fire waits for a lane. `replaces` is the fire that waited before; `cancels` is asked to stop."""

    blocked_by: int
    replaces: int | None = None
    cancels: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The fire will not run."""

    blocked_by: int


Admission = Admitted | Waits | Skipped


class Lanes:
    """The lanes of one job while fires are admitted to them, one after the other."""

    def __init__(self, *, max_running: int, policy: OverlapPolicy, holds: Sequence[Hold], waiting: int | None) -> None:
        self._max_running = max_running
        self._policy = policy
        self._waiting = waiting
        self._holders: dict[int, int] = {}
        self._unstarted: dict[int, Hold] = {}
        self._recovering: dict[int, Hold] = {}
        if holds:  # most jobs have no live run when they fire
            self._note(holds)

    def _note(self, holds: Sequence[Hold]) -> None:
        holds = [hold for hold in holds if hold.lane < FIRST_FORCED_LANE]
        self._holders = {hold.lane: hold.scheduled_at for hold in holds}
        waiting_to_start = [hold for hold in holds if hold.state == RunState.PENDING]
        unstarted = [hold for hold in waiting_to_start if hold.attempt == 0]
        self._unstarted = {hold.scheduled_at: hold for hold in unstarted if hold.trigger == Trigger.SCHEDULE}
        self._recovering = {hold.scheduled_at: hold for hold in unstarted if hold.trigger in RECOVERY}
        self._recovering |= {hold.scheduled_at: hold for hold in waiting_to_start if hold.is_brought_back}

    def admit(self, scheduled_at: int, trigger: Trigger) -> Admission:
        """Decide for one fire and remember the decision.

        - A free lane is taken.
        - Runs that make up for the past and have not begun make room, also those that a person brought back: their
          place may lie far in the future, and live work goes first. The newest of them waits again.
        - `queue`: at most one scheduled fire waits and the newest wins. A fire that holds a lane but has not started
          (no worker was free) waits too; the newer one takes over its lane and its place, so that it cannot starve.
        - `skip`, and `allow` when even its lanes are full: skipped.
        - `replace`: the oldest running one is asked to stop; the fire waits for its lane.
        - Catch-up, backfill and manual runs were asked for one by one: they always wait in line and replace nothing.
        """
        lane = self._free_lane()
        if lane is not None:
            self._holders[lane] = scheduled_at
            return Admitted(lane)
        if trigger not in RECOVERY and self._recovering:
            displaced = self._recovering.pop(max(self._recovering))
            self._holders[displaced.lane] = scheduled_at
            return Admitted(displaced.lane, displaces=displaced.scheduled_at)
        blocked_by = min(self._holders.values())
        if trigger != Trigger.SCHEDULE:
            return Waits(blocked_by)
        if self._policy in ("skip", "allow"):
            return Skipped(blocked_by)
        if self._waiting is None and self._unstarted:
            replaced = self._unstarted.pop(max(self._unstarted))
            self._holders[replaced.lane] = scheduled_at
            return Admitted(replaced.lane, ready_at=replaced.ready_at, replaces=replaced.scheduled_at)
        replaces, self._waiting = self._waiting, scheduled_at
        cancels = blocked_by if self._policy == "replace" else None
        return Waits(blocked_by, replaces=replaces, cancels=cancels)

    def _free_lane(self) -> int | None:
        if not self._holders:
            return 0
        if len(self._holders) >= self._max_running:
            return None
        return next(lane for lane in range(self._max_running) if lane not in self._holders)


def forced_lane(holds: Sequence[Hold]) -> int | None:
    """A lane for a run that is forced past the overlap rule. None: MAX_RUNNING of them are live already."""
    taken = {hold.lane for hold in holds}
    return next((lane for lane in range(FIRST_FORCED_LANE, FIRST_FORCED_LANE + MAX_RUNNING) if lane not in taken), None)


def lowest_free_lane(held: Collection[int], *, max_running: int) -> int | None:
    """The lane that the next run gets. None: the job holds as many lanes as it may, lowered limits included.

    Forced runs have lanes of their own and count for nothing here.
    """
    if sum(lane < FIRST_FORCED_LANE for lane in held) >= max_running:
        return None
    return next(lane for lane in range(max_running) if lane not in held)
