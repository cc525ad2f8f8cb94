"""Where a dispatcher that is behind goes on: in which of its slots, and from which instant.

What came due one after the other lies all over the database: history and clocks are kept by slot and job. A batch of
the oldest clocks of all slots would change a page or two for each of them, and writing pages is most of what a wake
costs. Of few slots, as many clocks lie on a third of the pages: the slots are gone through part by part, each to its
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PARTS: Final = 32
"""More parts would put a batch on fewer pages of history and clocks, but on more of the index of due clocks, through
which it reaches further the fewer slots it is for. With a million jobs the sum is least here.
"""


class Backlog:
    """One dispatcher's way through what is overdue."""

    def __init__(self) -> None:
        self._part = 0
        self.since = 0
        """Before this instant, µs UTC, nothing of the part was left."""

    def slots(self, own: Sequence[int]) -> tuple[int, ...]:
        """Those of the part whose turn it is. `own`: the dispatcher's, which may change on the way."""
        parts = min(PARTS, len(own))
        part = self._part % parts
        return tuple(own[len(own) * part // parts : len(own) * (part + 1) // parts])

    def note(self, *, jobs: int, left_from: int | None) -> None:
        """A batch recorded `jobs` of the part and left what is due from then on. None: nothing is due any more."""
        if jobs and left_from is not None:
            self.since = left_from
        else:  # at its end, or in other hands
            self._part += 1
            self.since = 0
