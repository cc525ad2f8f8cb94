"""What the last look into each slot found, and for how long that is believed: where to look next.

Where statements name one slot, nobody can ask the database for the first of all that is due. So this process keeps, for
each slot, the instant before which there is nothing to do in it, and looks

1. into slots in which something was written since: by a transaction of this process, or one that hinted at it;
2. into those of which what is known is no longer believed, the one that was looked into longest ago first;
3. and works in those of which it knows that something is due, beginning with what is due longest.

Of 1 and 2 no more than MOST_LOOKS slots at a time: a claim on a quiet database must not walk over all of them. What
nobody hinted at is found once the slot's turn comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from onbeat.store.hints import Hint

BELIEVED_S: Final = 1.0
"""For so long nothing was written into a slot by a process that did not hint at it, as far as is believed here."""

MOST_LOOKS: Final = 64
"""Slots that one call looks into without knowing that there is something."""

MOST_QUEUES: Final = 1_000
"""Of which looks are remembered."""


class SlotLooks:
    """Looks for one kind of thing."""

    def __init__(self, slots: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._all = range(slots)
        self._monotonic = monotonic
        self._earliest: list[int | None] = [None] * slots
        self._looked_at = [float("-inf")] * slots
        self._is_changed = [True] * slots
        self._changes = [0] * slots

    def due(self, *, now: int, among: Sequence[int] | None = None) -> list[int]:
        """Where something is known to be due."""
        found = [(at, slot) for slot in self._among(among) if (at := self._earliest[slot]) is not None and at <= now]
        return [slot for _at, slot in sorted(found)]

    def unknown(self, *, among: Sequence[int] | None = None) -> list[int]:
        """Of which nothing is known any more, no more than may be looked into at once."""
        old = self._monotonic() - BELIEVED_S
        found = [slot for slot in self._among(among) if self._is_changed[slot] or self._looked_at[slot] <= old]
        found.sort(key=lambda slot: (not self._is_changed[slot], self._looked_at[slot]))
        return found[:MOST_LOOKS]

    def look(self, slot: int) -> Look:
        """One look, which begins now."""
        return Look(self, slot, changes=self._changes[slot])

    def is_unchanged(self, slot: int, *, since: int) -> bool:
        """Was nothing written into the slot since a look began?"""
        return self._changes[slot] == since

    def note(self, slot: int, earliest: int | None, *, is_believed: bool) -> None:
        """What a look into the slot has found. Not believed, it is still where to go, but not all that there is: into a
        slot that many write to, somebody has always written meanwhile.
        """
        self._looked_at[slot] = self._monotonic()
        self._earliest[slot] = earliest
        if is_believed:
            self._is_changed[slot] = False

    def has_changed(self, *, among: Sequence[int] | None = None) -> bool:
        """Is there a slot into which something was written and nobody has looked since?"""
        return any(self._is_changed[slot] for slot in self._among(among))

    def forget(self, slots: Iterable[int] | None) -> None:
        """Something was written into these; None: into any."""
        for slot in self._all if slots is None else slots:
            self._changes[slot] += 1
            self._is_changed[slot] = True

    def earliest(self, *, among: Sequence[int] | None = None) -> int | None:
        """The first instant at which there is something to do, as far as is known."""
        return min((at for slot in self._among(among) if (at := self._earliest[slot]) is not None), default=None)

    def _among(self, slots: Sequence[int] | None) -> Sequence[int]:
        return self._all if slots is None else slots


class Look:
    """One look into one slot: a transaction that finds out what is first there, once it has done what it has to do."""

    def __init__(self, looks: SlotLooks, slot: int, *, changes: int) -> None:
        self.slot = slot
        self._looks = looks
        self._changes = changes
        self._earliest: int | None = None

    def found(self, earliest: int | None) -> None:
        """The first instant at which there is something to do in the slot; None: there is nothing."""
        self._earliest = earliest

    def is_clean(self) -> bool:
        """Was nothing written into the slot meanwhile by anybody else? To be asked before own writes are noted."""
        return self._looks.is_unchanged(self.slot, since=self._changes)

    def end(self, *, is_believed: bool) -> None:
        """Note what was found."""
        self._looks.note(self.slot, self._earliest, is_believed=is_believed)


class Looks:
    """All looks of a process into one database."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.clocks = SlotLooks(slots)
        self._queues: dict[str | None, SlotLooks] = {}

    def ready(self, queue: str | None) -> SlotLooks:
        """For runs of a queue."""
        found = self._queues.get(queue)
        if found is None:
            if len(self._queues) >= MOST_QUEUES:
                self._queues.clear()
            found = self._queues[queue] = SlotLooks(self._slots)
        return found

    def heed(self, hint: Hint) -> None:
        """Another process tells of what it wrote."""
        if hint.due:
            self.clocks.forget(hint.due)
        if hint.ready_at is not None:
            self.forget_ready(hint.ready_in or None)

    def forget_ready(self, slots: Iterable[int] | None) -> None:
        """Runs may have become ready in these; None: in any."""
        changed = None if slots is None else tuple(slots)
        for looks in self._queues.values():
            looks.forget(changed)
