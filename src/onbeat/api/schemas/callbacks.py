"""What handlers report about work that they accepted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from onbeat.api.schemas.base import Body, Text, View
from onbeat.api.schemas.workers import Token

LARGEST_RESULT = 16_384


class CompleteBody(Body):
    """How the work ended."""

    token: Token = Field(description="As it came in `onbeat-callback-token`")
    outcome: Literal["succeeded", "failed"]
    error: Annotated[Text | None, Field(max_length=2_000)] = None
    result: Any = Field(None, description=f"Any JSON, {LARGEST_RESULT} bytes at most; kept with the attempt")


class ProgressBody(Body):
    """How far the work is."""

    token: Token
    percent: float | None = Field(None, ge=0, le=100)
    message: Annotated[Text | None, Field(max_length=500)] = None


class CompletedView(View):
    """What the report changed. `repeated`: nothing, it had come before."""

    run_id: str
    result: Literal["ended", "will_retry", "repeated"]
    state: str | None


class AliveView(View):
    """`cancel`: stop, and report nothing more."""

    run_id: str
    status: Literal["live", "cancel", "lease_lost", "held_back"]
