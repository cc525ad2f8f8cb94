"""What one attempt came to. The seam between delivery and the services: leased runs in, outcomes out."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class OutcomeKind(StrEnum):
    """Failure kinds are never blurred: what is retryable and what is at-most-once-safe depends on them."""

    SUCCEEDED = "succeeded"
    ACCEPTED = "accepted"  # a 2xx of a job whose handler reports the end of its work by a call of its own
    HTTP_STATUS = "http_status"  # an answer outside 2xx
    REDIRECT = "redirect"  # a 3xx answer; never followed
    REFUSED = "refused"  # no connection: refused, unreachable, reset before a byte was sent
    DNS = "dns_error"  # the name did not resolve
    TLS = "tls_error"  # the certificate or the handshake was not acceptable
    BLOCKED = "blocked_address"  # the egress guard refused an address
    PROXY = "proxy_error"  # the operator's egress proxy was not to be had, or opened no tunnel
    TIMEOUT_BEFORE_SEND = "timeout_before_send"  # no byte of the request left in time
    NO_ANSWER = "no_answer"  # bytes were sent and no status line came: the effect is unknown
    BAD_RESPONSE = "bad_response"  # bytes came that are no HTTP response
    UNSENDABLE = "unsendable"  # the stored request is not valid, found again at send time
    HANDLER = "handler_error"  # a queue worker reported failure
    CANCELLED = "cancelled"  # a person cancelled the run while it ran
    LEASE_LOST = "lease_lost"  # the worker stopped talking to us
    INTERRUPTED = "interrupted"  # given back by a worker that stops or is crowded, nothing sent; does not count
    TIMED_OUT = "timed_out"  # max_run_time passed


SENT_NOTHING = frozenset(
    {
        OutcomeKind.REFUSED,
        OutcomeKind.DNS,
        OutcomeKind.TLS,
        OutcomeKind.BLOCKED,
        OutcomeKind.PROXY,
        OutcomeKind.TIMEOUT_BEFORE_SEND,
        OutcomeKind.UNSENDABLE,
        OutcomeKind.INTERRUPTED,
    }
)
"""Kinds after which it is certain that the receiver saw no byte of the request."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """What the receiver answered, bounded: the first 16 KiB of the body, `truncated` where there was more."""

    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    truncated: bool = False


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The end of one attempt, as the worker saw it."""

    kind: OutcomeKind
    started_at: int  # µs UTC, by the database's clock: when the attempt began
    duration_us: int
    status: int | None = None
    error: str | None = None  # one sentence for the run's page; never an internal address
    retry_after_s: float | None = None  # as the receiver asked, already resolved against the response's time
    response: Response | None = None
