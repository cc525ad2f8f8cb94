"""The state of one delivery in flight, and what its end is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onbeat.delivery.connection import Connection
from onbeat.delivery.request import Delivery, RequestTemplate
from onbeat.delivery.response import ResponseReader
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.retry_after import parse_retry_after

OnOutcome = Callable[[Delivery, Outcome], None]
_MAX_LOCATION_SHOWN = 200


class Attempt:
    """Mutable, and compared by identity. Ends exactly once."""

    __slots__ = (
        "connection", "delivery", "ended", "granted", "on_outcome", "resent", "started", "started_at", "step",
        "task", "template", "waits_since",
    )  # fmt: skip

    def __init__(
        self,
        delivery: Delivery,
        *,
        template: RequestTemplate,
        on_outcome: OnOutcome,
        started_at: int,
        started: float,
    ) -> None:
        self.delivery = delivery
        self.template = template
        self.on_outcome = on_outcome
        self.started_at = started_at  # µs UTC, for the record
        self.started = started  # loop time, for the duration
        self.granted = delivery.granted
        self.step = 0  # of the deadline in the timer wheel
        self.connection: Connection | None = None  # while an answer is awaited: the receiver may have seen the request
        self.task: asyncio.Task[Connection] | asyncio.Task[bool] | None = None  # while it dials or asks for a permit
        self.waits_since: float | None = None  # loop time: for its host to connect, or to answer; None: for its turn
        self.resent = False  # it is on its second connection
        self.ended = False


def read_outcome(reader: ResponseReader, *, started_at: int, duration_us: int, now: Callable[[], int]) -> Outcome:
    """What an answer, or the lack of one, comes to. Everything after a valid status line is beside the point.

    `now` is asked only where the answer names a time.
    """
    if reader.status is None:
        if not reader.began:
            return Outcome(
                OutcomeKind.NO_ANSWER, started_at, duration_us, error="the request was sent and no answer came"
            )
        return Outcome(
            OutcomeKind.BAD_RESPONSE, started_at, duration_us, error=reader.problem, response=reader.response()
        )
    if 200 <= reader.status < 300:
        return Outcome(OutcomeKind.SUCCEEDED, started_at, duration_us, status=reader.status, response=reader.response())
    asked = reader.find_header("retry-after")
    is_redirect = 300 <= reader.status < 400
    return Outcome(
        OutcomeKind.REDIRECT if is_redirect else OutcomeKind.HTTP_STATUS,
        started_at,
        duration_us,
        status=reader.status,
        error=_describe_redirect(reader) if is_redirect else f"the receiver answered {reader.status}",
        retry_after_s=None if asked is None else parse_retry_after(asked, now=now()),
        response=reader.response(),
    )


def _describe_redirect(reader: ResponseReader) -> str:
    location = reader.find_header("location")
    if location is None:
        return f"the receiver answered {reader.status} without a Location; redirects are not followed"
    shown = ascii(location[:_MAX_LOCATION_SHOWN])[1:-1]
    return f"the receiver answered {reader.status} with Location {shown}; redirects are not followed"
