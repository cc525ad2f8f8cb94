"""Below which instant nothing lies in an index that is read from its beginning, as far as this process knows.

A row that leaves such an index leaves an entry that only VACUUM takes away, and not while any transaction of the server
is older: during a backup of an hour all of them stay, at the very end where the next row is looked for. So looks begin
at a floor: at what the last look found, and no later than `SLACK_US` before its `now`.

A floor is a hint, and never hides a row for good. What comes to lie below it is found
- by the next look, where this process wrote it or has heard of it (`lower`);
- by the next full look otherwise: there is one every `FULL_LOOK_AFTER_US`, and whenever the clock was set back.
The slack is for what other processes write without a word: they decide from a `now` that was current a moment before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

SLACK_US: Final = 500_000
"""How far behind a look's `now` a row may lie that is being written meanwhile: what its transaction lasts, and what two
nodes' clocks differ by.
"""

FULL_LOOK_AFTER_US: Final = 5_000_000
"""How long a row below the floor may stay unseen: no longer than a clock of a node that died."""

MOST_KEYS: Final = 1_000
"""Callers name queues, and there may be any number of them: beyond so many, all is looked for from the beginning."""


@dataclass(slots=True)
class Look:
    """A look under way, of all lines of one key."""

    now: int
    floors: tuple[int, ...]  # where it begins, in each line
    found: Sequence[int | None] | None = None  # the first that it leaves in each line; None: nothing was learned
    lowest: int | None = None  # of what has come to lie below a floor meanwhile


@dataclass(frozen=True, slots=True)
class _Known:
    now: int
    full_at: int
    floors: tuple[int, ...]


class Floors:
    """What past looks tell the next ones, for each key that was asked for."""

    def __init__(self, *, lines: int) -> None:
        """`lines`: into how many the entries of one key are ordered, each with a floor of its own."""
        self._from_the_beginning = (0,) * lines
        self._known: dict[Hashable, _Known] = {}
        self._under_way: list[Look] = []

    def of(self, key: Hashable, *, now: int) -> tuple[int, ...]:
        """Where to begin in each line; 0: at the beginning."""
        known = self._known.get(key)
        if known is None or not known.now - SLACK_US <= now < known.full_at + FULL_LOOK_AFTER_US:
            return self._from_the_beginning
        return known.floors

    @contextmanager
    def looking(self, key: Hashable, *, now: int) -> Iterator[Look]:
        """A look whose `found` is what a committed transaction has left."""
        look = Look(now, self.of(key, now=now))
        self._under_way.append(look)
        try:
            yield look
        finally:
            self._under_way.remove(look)
        if look.found is not None:
            self._note(key, look, look.found)

    def lower(self, at: int) -> None:
        """Something came to lie at that instant, whichever key and line it is of."""
        for look in self._under_way:
            look.lowest = at if look.lowest is None else min(look.lowest, at)
        for key, known in self._known.items():
            if at < max(known.floors):
                floors = tuple(min(floor, at) for floor in known.floors)
                self._known[key] = _Known(known.now, known.full_at, floors)

    def _note(self, key: Hashable, look: Look, found: Sequence[int | None]) -> None:
        highest = look.now - SLACK_US
        if look.lowest is not None:
            highest = min(highest, look.lowest)
        before = self._known.get(key)
        is_full = before is None or look.floors == self._from_the_beginning
        floors = tuple(max(highest if first is None else min(first, highest), 0) for first in found)
        if not is_full and before is not None and before.full_at >= look.now:
            # Another look has begun at the beginning meanwhile, and may have left what this one has not seen.
            floors = tuple(map(min, floors, before.floors))
        if before is None and len(self._known) >= MOST_KEYS:
            self._known.clear()
        self._known[key] = _Known(look.now, look.now if is_full or before is None else before.full_at, floors)
