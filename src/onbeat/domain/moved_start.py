"""`spread_s` and `jitter_s`: how far the start of a fire is moved from its planned instant. Never the identity.

Both are drawn by hashing, not by chance, so a restart, another node or a restore moves the same fire by as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from onbeat.domain.model import SECOND_US, Definition


@dataclass(frozen=True, slots=True)
class MovedStart:
    """By how much the fires of one job are moved."""

    job_id: int
    spread_us: int  # of the job: the same for all of its fires
    jitter_us: int  # each fire is moved by less than this on top

    @property
    def longest_us(self) -> int:
        """No fire is moved by more."""
        return self.spread_us + self.jitter_us

    def start_of(self, scheduled_at: int) -> int:
        """When a fire is to start. Lateness and grace count from here."""
        if not self.jitter_us:
            return scheduled_at + self.spread_us
        return scheduled_at + self.spread_us + _share(self.jitter_us, b"jitter", self.job_id, scheduled_at)


def moved_start(definition: Definition, *, job_id: int) -> MovedStart:
    """How a job's fires are moved; by nothing where it has neither field."""
    spread_us = _share(definition.spread_s * SECOND_US, b"spread", job_id) if definition.spread_s else 0
    return MovedStart(job_id, spread_us, definition.jitter_s * SECOND_US)


def _share(size: int, use: bytes, *numbers: int) -> int:
    """A number in `0 <= share < size`, evenly drawn from the others."""
    digest = blake2b(b"".join(number.to_bytes(8, "big") for number in numbers), digest_size=8, person=use)
    return size * int.from_bytes(digest.digest(), "big") >> 64
