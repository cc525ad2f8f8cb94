"""A live run as both engines read it to decide about it: more than decisions see."""

from __future__ import annotations

from onbeat.store.rows import Row, live_run
from onbeat.store.values import LiveRun


class LiveRow:
    """A live run with the columns that decisions do not see: tokens and what the last attempt came to."""

    __slots__ = ("duration_us", "error", "last_token", "lease_token", "outcome", "run", "slot", "status")

    def __init__(self, row: Row, *, slots: int) -> None:
        self.run: LiveRun = live_run(row)
        self.slot: int = self.run.key.job_id % slots
        self.lease_token: bytes | None = row[18]
        self.last_token: bytes | None = row[19]
        self.outcome: str | None = row[20]
        self.status: int | None = row[21]
        self.error: str | None = row[22]
        self.duration_us: int | None = row[23]

    @property
    def key_columns(self) -> tuple[int, int, int]:
        """The primary key."""
        return self.slot, self.run.key.job_id, self.run.key.scheduled_at
