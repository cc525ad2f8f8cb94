"""Jobs that pause by themselves: what counts as a failed run, and when a job has been failing for too long."""

from __future__ import annotations

from typing import Final

import msgspec

from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, AutoPausePolicy
from onbeat.domain.states import RunState

FAILURES: Final = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.UNKNOWN})
"""Ends that lengthen a streak. A success ends it; runs that were cancelled, skipped or missed tell nothing about it."""


class Streak(msgspec.Struct, frozen=True, gc=False):
    """Failed runs of a job since its last success or its last resumption, in the order in which they ended."""

    failures: int
    failing_since: int  # when the first of them ended


def lengthened(streak: Streak | None, *, now: int) -> Streak:
    """The streak with one more failed run, which ends now."""
    return Streak(1, now) if streak is None else Streak(streak.failures + 1, streak.failing_since)


def reason_to_pause(policy: AutoPausePolicy, streak: Streak, *, now: int) -> str | None:
    """Why the job pauses with this end of a run. None: it goes on."""
    if policy.failures is not None and streak.failures >= policy.failures:
        return f"auto_pause: {_runs(streak)} in a row"
    if policy.failing_s is not None and now - streak.failing_since >= policy.failing_s * SECOND_US:
        length_s = (now - streak.failing_since) // SECOND_US
        return f"auto_pause: failing for {length_s} s, {_runs(streak)} in a row"
    return None


def check_auto_pause(policy: AutoPausePolicy | None) -> None:
    """Raises DefinitionError(`auto_pause_invalid`)."""
    if policy is not None and policy.failures is None and policy.failing_s is None:
        raise DefinitionError(
            "auto_pause_invalid",
            "auto_pause says neither after how many failed runs nor after how long",
            field="auto_pause",
            remedy="give failures, failing_s or both; null turns it off",
        )


def _runs(streak: Streak) -> str:
    return "1 failed run" if streak.failures == 1 else f"{streak.failures} failed runs"
