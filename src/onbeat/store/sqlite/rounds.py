"""The order in which a large backlog of due clocks is recorded: a part of the slots after the other.

What came due one after the other lies all over the file, since history and clocks are kept by slot and job. A batch of
the oldest clocks of all slots changes a page or two for each of them, and writing pages is most of what a wake costs.
Of few slots, as many clocks lie on a third of the pages.
"""

from __future__ import annotations

from typing import Final

PARTS: Final = 32
"""More parts would put a batch on fewer pages of history and clocks, but on more of the index of due clocks, through
which it reaches further the fewer slots it is for. With a million jobs the sum is least here.
"""


class Rounds:
    """How far one process has come. Each slot has its turn in each round, however much comes due meanwhile."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.parts = min(PARTS, slots)
        self._part = 0
        self._begun_at: int | None = None
        self.since = 0
        """Where to go on in the part, µs UTC. What it leaves out has its turn in the next round."""

    @property
    def part(self) -> range:
        """The slots whose turn it is."""
        return range(self._slots * self._part // self.parts, self._slots * (self._part + 1) // self.parts)

    def until(self, now: int) -> int:
        """What comes due after the part was begun has its turn in the next round, too."""
        self._begun_at = now if self._begun_at is None else min(self._begun_at, now)
        return self._begun_at

    def next_part(self) -> None:
        """Nothing more of this one is due."""
        self._part = (self._part + 1) % self.parts
        self._begun_at = None
        self.since = 0
