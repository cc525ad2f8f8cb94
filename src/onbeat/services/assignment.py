"""What a worker gets for one attempt, and the five calls it makes. In process or over HTTP, the same protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from onbeat.domain.ids import RunKey
from onbeat.domain.model import Target
from onbeat.domain.overlap import RECOVERY
from onbeat.domain.states import Trigger
from onbeat.store.values import Finish, Finished, LeaseStatus

Held = tuple[RunKey, bytes]
"""A run and the token of the lease under which it is held."""

LARGEST_CALL: Final = 1_000
"""Attempts that one claim, heartbeat, permit or release names over HTTP; a worker with more makes several calls."""


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """One attempt in a worker's hands. The signing secrets come along because the signature is made at send time."""

    key: RunKey
    token: bytes
    attempt: int
    trigger: Trigger
    job_name: str
    job_key: str | None
    job_version: int
    namespace: str
    target: Target
    timeout_s: float
    at_most_once: bool
    payload: str | None
    queue: str | None
    lease_until: int
    granted_at: int
    deadline_at: int | None
    late_after: int
    secrets: tuple[str, ...]
    connect_timeout_s: float | None
    callback_url: str | None  # where the handler reports; None: its answer is the end
    granted_boottime: float  # this host's boot clock when the lease was granted, or earlier
    starts_at: int | None = None  # when the run was to start; None: at its planned instant

    def start_lag_us(self, *, now: int) -> int | None:
        """How much later than it was to start the run starts, if it does now. None for further attempts and for what
        makes up for the past: they come late on purpose.
        """
        if self.attempt > 1 or self.trigger in RECOVERY:
            return None
        return max(now - (self.key.scheduled_at if self.starts_at is None else self.starts_at), 0)


class WorkerLink(Protocol):
    """How a worker reaches the scheduler. Implemented by services.leasing.Leasing and client.link.HttpLink."""

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        """Up to `limit` attempts; waits up to `wait_s` for the first one."""
        ...

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """Heartbeat."""
        ...

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """May these attempts begin, though their grant is older than 2 s?"""
        ...

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        """Report the end of attempts."""
        ...

    async def release(self, held: Sequence[Held]) -> int:
        """Give attempts back that were not begun, or not finished, by a worker that stops."""
        ...
