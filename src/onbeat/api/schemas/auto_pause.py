"""Policies of jobs that pause by themselves, at the edge."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from onbeat.api.schemas.base import Body
from onbeat.domain.model import AutoPausePolicy

YEAR_S = 366 * 86_400


class AutoPauseBody(Body):
    """When a job that keeps failing pauses by itself: with the first failed run for which either is true."""

    failures: int | None = Field(
        None, ge=1, le=100_000, examples=[10], description="So many runs failed one after the other"
    )
    failing_s: int | None = Field(
        None, ge=1, le=YEAR_S, examples=[86_400], description="The first of them ended so long ago"
    )


def read_auto_pause(body: AutoPauseBody | None) -> AutoPausePolicy | None:
    """What the service takes."""
    return None if body is None else AutoPausePolicy(failures=body.failures, failing_s=body.failing_s)


def view_auto_pause(policy: AutoPausePolicy | None) -> dict[str, Any] | None:
    """The policy as it could be sent to us again."""
    return None if policy is None else {"failures": policy.failures, "failing_s": policy.failing_s}
