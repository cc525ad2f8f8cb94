"""The worker protocol's JSON, as both ends of it write and read it: the API on one side, HttpLink on the other.

Moments are integer µs UTC and ids are texts; tokens are base64url without padding, binary bodies base64.
"""

from __future__ import annotations

import base64

import msgspec

from onbeat.domain.errors import RequestError
from onbeat.domain.ids import RunKey, format_run_id, parse_run_id
from onbeat.domain.model import Target
from onbeat.domain.outcome import Outcome, OutcomeKind, Response
from onbeat.domain.states import RunState, Trigger
from onbeat.services.assignment import Assignment, Held
from onbeat.store.values import Finish, Finished, FinishResult, LeaseStatus


class WireHeld(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run and the token of the lease under which it is held."""

    run_id: str
    token: str


class WireAssignment(msgspec.Struct, frozen=True):
    """One attempt for a worker. Fields may be added: a worker of an older version ignores them."""

    run_id: str
    token: str
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
    connect_timeout_s: float | None = None
    callback_url: str | None = None
    starts_at: int | None = None


class WireClaimed(msgspec.Struct, frozen=True):
    """The answer to a claim. `now` and `waited_s` let the worker tell how old its grants are without a common clock."""

    runs: tuple[WireAssignment, ...]
    now: int
    waited_s: float


class WireResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the receiver answered, bounded."""

    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    truncated: bool = False


class WireFinish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's word about one attempt."""

    run_id: str
    token: str
    outcome: OutcomeKind
    started_at: int
    duration_us: int
    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None
    response: WireResponse | None = None


class WireFinished(msgspec.Struct, frozen=True):
    """What became of it."""

    run_id: str
    result: FinishResult
    state: RunState | None = None
    ready_at: int | None = None


class WireStatus(msgspec.Struct, frozen=True):
    """What a heartbeat or permit found."""

    run_id: str
    status: LeaseStatus


def encode_token(token: bytes) -> str:
    """base64url without padding."""
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def decode_token(text: str) -> bytes:
    """The token's bytes. Raises RequestError for anything that is none."""
    try:
        token = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        token = b""
    if len(token) != 16:
        raise RequestError("a lease token is 16 bytes in base64url", field="token", remedy="send it as claim gave it")
    return token


def to_wire(assignment: Assignment) -> WireAssignment:
    """What travels of an assignment."""
    return WireAssignment(
        run_id=format_run_id(assignment.key),
        token=encode_token(assignment.token),
        attempt=assignment.attempt,
        trigger=assignment.trigger,
        job_name=assignment.job_name,
        job_key=assignment.job_key,
        job_version=assignment.job_version,
        namespace=assignment.namespace,
        target=assignment.target,
        timeout_s=assignment.timeout_s,
        at_most_once=assignment.at_most_once,
        payload=assignment.payload,
        queue=assignment.queue,
        lease_until=assignment.lease_until,
        granted_at=assignment.granted_at,
        deadline_at=assignment.deadline_at,
        late_after=assignment.late_after,
        secrets=assignment.secrets,
        connect_timeout_s=assignment.connect_timeout_s,
        callback_url=assignment.callback_url,
        starts_at=assignment.starts_at,
    )


def from_wire(wire: WireAssignment, *, granted_boottime: float) -> Assignment:
    """The assignment, with its grant on this host's boot clock."""
    return Assignment(
        key=parse_run_id(wire.run_id),
        token=decode_token(wire.token),
        attempt=wire.attempt,
        trigger=wire.trigger,
        job_name=wire.job_name,
        job_key=wire.job_key,
        job_version=wire.job_version,
        namespace=wire.namespace,
        target=wire.target,
        timeout_s=wire.timeout_s,
        at_most_once=wire.at_most_once,
        payload=wire.payload,
        queue=wire.queue,
        lease_until=wire.lease_until,
        granted_at=wire.granted_at,
        deadline_at=wire.deadline_at,
        late_after=wire.late_after,
        secrets=wire.secrets,
        connect_timeout_s=wire.connect_timeout_s,
        callback_url=wire.callback_url,
        granted_boottime=granted_boottime,
        starts_at=wire.starts_at,
    )


def held_to_wire(held: Held) -> WireHeld:
    """A lease, as it is named on the wire."""
    key, token = held
    return WireHeld(format_run_id(key), encode_token(token))


def held_from_wire(wire: WireHeld) -> tuple[RunKey, bytes]:
    """Raises IdInvalid, RequestError."""
    return parse_run_id(wire.run_id), decode_token(wire.token)


def finish_to_wire(finish: Finish) -> WireFinish:
    """A report, as it travels."""
    outcome, response = finish.outcome, finish.outcome.response
    return WireFinish(
        run_id=format_run_id(finish.key),
        token=encode_token(finish.token),
        outcome=outcome.kind,
        started_at=outcome.started_at,
        duration_us=outcome.duration_us,
        status=outcome.status,
        error=outcome.error,
        retry_after_s=outcome.retry_after_s,
        response=None if response is None else WireResponse(response.headers, response.body, response.truncated),
    )


def finish_from_wire(wire: WireFinish) -> Finish:
    """A report that came over the wire. Raises IdInvalid, RequestError."""
    response = wire.response
    return Finish(
        key=parse_run_id(wire.run_id),
        token=decode_token(wire.token),
        outcome=Outcome(
            kind=wire.outcome,
            started_at=wire.started_at,
            duration_us=wire.duration_us,
            status=wire.status,
            error=wire.error,
            retry_after_s=wire.retry_after_s,
            response=None if response is None else Response(response.headers, response.body, response.truncated),
        ),
    )


def finished_to_wire(finished: Finished) -> WireFinished:
    """The answer to a report."""
    return WireFinished(format_run_id(finished.key), finished.result, finished.state, finished.ready_at)


def finished_from_wire(wire: WireFinished) -> Finished:
    """The answer to a report, read."""
    return Finished(parse_run_id(wire.run_id), wire.result, wire.state, wire.ready_at)
