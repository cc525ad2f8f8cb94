"""The worker protocol at the edge. The JSON itself is defined once, in client/wire.py; these models describe it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from onbeat.api.schemas.base import Body, QueueName, Text, View
from onbeat.services.assignment import LARGEST_CALL

RunId = Annotated[str, Field(max_length=64)]
Token = Annotated[str, Field(max_length=64)]
Moment = Annotated[int, Field(ge=0, le=253_402_300_799_999_999, description="µs UTC")]


class ClaimBody(Body):
    """A worker asks for work."""

    worker: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    queue: QueueName | None = None
    limit: int = Field(1, ge=1, le=LARGEST_CALL)
    wait_s: float = Field(0.0, ge=0, le=30)


class HeldBody(Body):
    """A run, and the token of the lease under which it is held."""

    run_id: RunId
    token: Token


class HeldList(Body):
    """Several of them."""

    runs: list[HeldBody] = Field(min_length=0, max_length=LARGEST_CALL)


class TokenBody(Body):
    """The token of the lease under which the run is held."""

    token: Token


class ResponseBody(Body):
    """What the receiver answered: the body as base64, 16 KiB of it at most."""

    headers: list[Annotated[list[Text], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, max_length=200, description="Pairs of name and value"
    )
    body: str = Field("", max_length=22_000)
    truncated: bool = False


class OutcomeBody(Body):
    """How an attempt ended."""

    token: Token
    outcome: Literal[
        "succeeded",
        "accepted",
        "http_status",
        "redirect",
        "refused",
        "dns_error",
        "tls_error",
        "blocked_address",
        "proxy_error",
        "timeout_before_send",
        "no_answer",
        "bad_response",
        "unsendable",
        "handler_error",
        "cancelled",
        "interrupted",
    ]
    started_at: Moment
    duration_us: int = Field(ge=0, le=10**13)
    status: int | None = Field(None, ge=100, le=599)
    error: Annotated[Text | None, Field(max_length=2_000)] = None
    retry_after_s: float | None = Field(None, ge=0, le=10**9)
    response: ResponseBody | None = None


class FinishBody(OutcomeBody):
    """How the attempt of a run ended."""

    run_id: RunId


class FinishList(Body):
    """Several of them."""

    runs: list[FinishBody] = Field(min_length=0, max_length=500)


class ClaimedView(View):
    """Attempts for the worker; `now` and `waited_s` tell how old their grants are."""

    runs: list[dict[str, Any]]
    now: int
    waited_s: float


class StatusView(View):
    """What a heartbeat or permit found."""

    run_id: str
    status: Literal["live", "lease_lost", "cancel", "held_back"]


class StatusList(View):
    """In the order of the request."""

    runs: list[StatusView]


class FinishedView(View):
    """What a report changed. `lease_lost`, `run_terminal`, `repeated`: nothing."""

    run_id: str
    result: Literal["ended", "will_retry", "accepted", "repeated", "lease_lost", "run_terminal"]
    state: str | None = None
    ready_at: int | None = None


class FinishedList(View):
    """In the order of the request."""

    runs: list[FinishedView]


class ReleasedView(View):
    """How many leases were given back."""

    released: int


class TimeView(View):
    """The database's time, µs UTC."""

    now: int
