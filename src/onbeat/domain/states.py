"""Run states and the only ways between them. Source: design §2; drawn in docs/architecture.md, compared by a test."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """What became of a fire."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    MISSED = "missed"
    SKIPPED = "skipped"


class SkipReason(StrEnum):
    """Why a fire was recorded as `skipped`."""

    OVERLAP = "overlap"
    PAUSED = "paused"
    BLACKOUT = "blackout"
    DELETED = "deleted"


class JobState(StrEnum):
    """Whether a job makes fires. Only `active` jobs have a clock."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"  # every planned instant lies in the past
    ERROR = "error"  # the stored definition cannot be honoured; `reason` says why
    DELETED = "deleted"  # kept for its history, hidden from the API


class Trigger(StrEnum):
    """What made a run."""

    SCHEDULE = "schedule"
    CATCH_UP = "catch_up"
    BACKFILL = "backfill"
    MANUAL = "manual"
    TEST = "test"


LIVE = frozenset({RunState.PENDING, RunState.RUNNING})
ENDED = frozenset(RunState) - LIVE

# state -> states that may follow. The empty string is "no row yet".
TRANSITIONS: dict[RunState | str, frozenset[RunState]] = {
    "": frozenset({RunState.PENDING, RunState.RUNNING, RunState.MISSED, RunState.SKIPPED}),
    RunState.PENDING: frozenset(
        {RunState.RUNNING, RunState.CANCELLED, RunState.SKIPPED, RunState.FAILED, RunState.TIMED_OUT}
    ),
    RunState.RUNNING: frozenset(
        {
            RunState.PENDING,
            RunState.SUCCEEDED,
            RunState.FAILED,
            RunState.TIMED_OUT,
            RunState.CANCELLED,
            RunState.UNKNOWN,
        }
    ),
    # A retry asked for by a person brings an ended run back under its own id.
    RunState.FAILED: frozenset({RunState.PENDING}),
    RunState.TIMED_OUT: frozenset({RunState.PENDING}),
    RunState.CANCELLED: frozenset({RunState.PENDING}),
    RunState.UNKNOWN: frozenset({RunState.PENDING}),
    RunState.SUCCEEDED: frozenset(),
    RunState.MISSED: frozenset(),
    RunState.SKIPPED: frozenset(),
}

REVIVABLE = frozenset(state for state in ENDED if RunState.PENDING in TRANSITIONS[state])
"""From these a person may bring a run back."""


def may_follow(before: RunState | str, after: RunState) -> bool:
    """True where the transition table allows `before` → `after`."""
    return after in TRANSITIONS[before]
