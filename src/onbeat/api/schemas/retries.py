"""Retry policies at the edge: as they are written, as they read back, and what their ladder looks like."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from onbeat.api.schemas.base import Body, View
from onbeat.domain.backoff import LONGEST_TABLE, Ladder
from onbeat.domain.model import SECOND_US, RetryPolicy

DAY_S = 86_400

Status = Annotated[str, StringConstraints(pattern=r"^[345]([0-9]{2}|xx)$")]


class RetryBody(Body):
    """When a failed attempt is followed by another."""

    max_attempts: int = Field(5, ge=1, le=100)
    backoff: Literal["exponential", "fixed", "table"] = Field(
        "exponential",
        description="exponential: any time up to `initial_s` × `factor`ⁿ, at most `cap_s`; fixed: `initial_s`; "
        "table: `table_s`",
    )
    initial_s: float = Field(1.0, gt=0, le=3_600)
    factor: float = Field(4.0, ge=1, le=100)
    cap_s: int = Field(3_600, ge=1, le=DAY_S)
    table_s: list[Annotated[float, Field(ge=0, le=DAY_S)]] = Field(
        default_factory=list,
        max_length=LONGEST_TABLE,
        examples=[[1, 30, 600]],
        description="The waits one after the other; the last repeats",
    )
    max_age_s: int = Field(DAY_S, ge=1, le=30 * DAY_S, description="No attempt starts later than this after the run")
    statuses: dict[Status, Literal["retry", "fail", "succeed"]] = Field(
        default_factory=dict,
        max_length=100,
        examples=[{"404": "retry", "409": "succeed", "5xx": "fail"}],
        description="What answers outside 2xx mean; an exact status goes before its class",
    )
    expires_before_next: bool = Field(
        False, description="Give up rather than start an attempt at or after the next planned instant"
    )


def read_retry(body: RetryBody) -> RetryPolicy:
    """What the service takes."""
    return RetryPolicy(
        max_attempts=body.max_attempts,
        initial_s=body.initial_s,
        factor=body.factor,
        cap_s=body.cap_s,
        max_age_s=body.max_age_s,
        backoff=body.backoff,
        table_s=tuple(body.table_s),
        statuses=dict(body.statuses),
        expires_before_next=body.expires_before_next,
    )


def view_retry(policy: RetryPolicy) -> dict[str, Any]:
    """The policy as it could be sent to us again."""
    return {
        "max_attempts": policy.max_attempts,
        "backoff": policy.backoff,
        "initial_s": policy.initial_s,
        "factor": policy.factor,
        "cap_s": policy.cap_s,
        "table_s": list(policy.table_s),
        "max_age_s": policy.max_age_s,
        "statuses": dict(policy.statuses),
        "expires_before_next": policy.expires_before_next,
    }


class LadderBody(Body):
    """A retry policy, and how long an attempt may take."""

    retry: RetryBody = RetryBody()
    timeout_s: float = Field(30.0, gt=0, le=3_600)


class RungView(View):
    """When an attempt starts, in seconds from the start of the first."""

    attempt: int
    earliest_s: float
    latest_s: float


class LadderView(View):
    """The attempts of a run that never succeeds and whose receiver names no time to wait."""

    attempts: list[RungView]
    attempts_at_least: int = Field(description="So many even where every attempt and every wait is as long as can be")
    ends_with: Literal["max_attempts", "max_age"]


def view_ladder(ladder: Ladder) -> dict[str, Any]:
    """The ladder, ready to be written as JSON."""
    return {
        "attempts": [
            {
                "attempt": rung.attempt,
                "earliest_s": rung.earliest_us / SECOND_US,
                "latest_s": rung.latest_us / SECOND_US,
            }
            for rung in ladder.rungs
        ],
        "attempts_at_least": ladder.attempts_at_least,
        "ends_with": ladder.ends_with,
    }
