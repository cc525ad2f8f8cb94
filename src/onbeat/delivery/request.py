"""What is put on the wire for one attempt: `Delivery` in, the request's exact bytes out.

Owns the header block of design §4. The bytes are built once per attempt, signed and sent as they are.
What does not change between the runs for a target is validated and built once, as a `RequestTemplate`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.metadata import version
from typing import Final, NamedTuple

import msgspec

from onbeat.delivery.envelope import check_json, describe_callback, describe_job, format_instant, wrap
from onbeat.delivery.signing import sign
from onbeat.domain.callback import callback_token
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.ids import RunKey, format_job_id, format_run_id
from onbeat.domain.model import SECOND_US, WebhookTarget
from onbeat.domain.states import Trigger
from onbeat.domain.webhook import BODILESS_METHODS, check_text, check_webhook
from onbeat.domain.webhook_url import WebhookUrl

USER_AGENT: Final = f"onbeat/{version('onbeat')}"
MAX_TIMEOUT_S: Final = 86_400
_MOST_KEPT: Final = 16_384
_LONG: Final = 2_048
_MOST_LONG_KEPT: Final = 64
"""Templates: few of those whose texts take more than so many bytes of memory, which could be half a megabyte each."""
_memory_of: Final = str.__sizeof__  # as quick as `len`, and a hundred short headers are long by it

_NO_ENVELOPE: Final = BODILESS_METHODS | {"DELETE"}  # these get a body only where the job brings one


class Delivery(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One attempt that a worker holds a lease for. Compared by identity: it is the handle for `Sender.cancel`."""

    key: RunKey
    token: bytes  # the lease's, for the caller's finish; never sent itself
    attempt: int
    trigger: Trigger
    job_key: str | None
    job_name: str
    target: WebhookTarget
    keys: tuple[bytes, ...]  # signing keys that are valid now, newest first; at least one
    timeout_s: float  # from name resolution to the last byte
    granted: float  # boot time, read BEFORE the lease or permit was asked for
    payload: str | None = None  # the run's own JSON, instead of the target's
    callback_url: str | None = None  # where the handler reports the end of its work; None: its answer is the end
    connect_timeout_s: float | None = None  # until the connection stands, TLS included; None: the sender's own budgets
    deadline: float | None = None  # boot time at which the run's max_run_time is over; shortens the timeout
    starts_at: int | None = None  # when the run was to start, which lateness counts from; None: as planned

    def __repr__(self) -> str:
        return f"Delivery({format_run_id(self.key)}, attempt {self.attempt})"  # no keys, no token


class Origin(NamedTuple):
    """What a connection is good for."""

    scheme: str
    host: str
    port: int


class RequestTemplate(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What the requests to a target share, whichever job and run they are for."""

    url: WebhookUrl
    origin: Origin
    method: str
    head: bytes  # request line and headers that do not change, up to the first that does
    body: bytes | None  # the target's own body; None: the envelope
    payload: bytes  # JSON for the envelope, unless the run has its own


def prepare(target: WebhookTarget, *, rules: EgressRules) -> RequestTemplate:
    """The template for a target. Raises DefinitionError: the stored row cannot be sent."""
    try:
        headers = tuple(target.headers.items())
        texts = (target.url, target.body or "", target.payload or "", *target.headers, *target.headers.values())
        make = _make if sum(map(_memory_of, texts)) <= _LONG else _make_long
        return make(target.url, target.method, headers, target.body, target.payload, rules)
    except (TypeError, AttributeError):
        check_webhook(target, rules)  # says which field it is, where a row written by hand has one of another type
        raise


def _build(
    url_text: str,
    method: str,
    headers: tuple[tuple[str, str], ...],
    own_body: str | None,
    payload: str | None,
    rules: EgressRules,
) -> RequestTemplate:
    url = check_webhook(WebhookTarget(url_text, method, dict(headers), own_body, payload), rules)
    body: bytes | None = None
    if own_body is not None:
        body = own_body.encode("utf-8")
    elif method in _NO_ENVELOPE:
        body = b""
    memory = sum(_memory_of(text) for header in headers for text in header)
    write = _fixed_head if memory <= _LONG else _write_fixed_head
    return RequestTemplate(
        url=url,
        origin=Origin(url.scheme, url.host, url.port),
        method=method,
        head=write(url, method, headers, has_content=body != b""),
        body=body,
        payload=b"null" if payload is None else check_json(payload, field="target.payload"),
    )


_make, _make_long = lru_cache(_MOST_KEPT)(_build), lru_cache(_MOST_LONG_KEPT)(_build)


def check_delivery(delivery: Delivery) -> None:
    """Raises DefinitionError where what the target does not share cannot be sent: name, time, payload, keys."""
    try:
        format_instant(delivery.key.scheduled_at)
    except OverflowError:
        raise DefinitionError("instant_invalid", "the planned instant is no date", field="scheduled_at") from None
    for field, text in (("job_name", delivery.job_name), ("job_key", delivery.job_key)):
        if text is not None and not text.isascii() and text.encode("utf-8", "replace").decode() != text:
            raise DefinitionError("name_invalid", "half of a surrogate pair cannot be sent", field=field)
    if not delivery.keys:
        raise DefinitionError("secret_missing", "there is no signing secret", field="target.secret")
    if not 0 < delivery.timeout_s <= MAX_TIMEOUT_S:
        raise DefinitionError(
            "timeout_invalid", f"a timeout is more than 0 and at most {MAX_TIMEOUT_S} s", field="timeout_s"
        )
    if delivery.payload is not None:
        check_text(delivery.payload, field="payload")
        check_json(delivery.payload, field="payload")


def build_request(delivery: Delivery, template: RequestTemplate, *, now: int) -> bytes:
    """The bytes of a checked delivery, with timestamp and signature of `now` (µs UTC, by the database's clock)."""
    scheduled_us = delivery.key.scheduled_at
    run_id = format_run_id(delivery.key)
    job_id = format_job_id(delivery.key.job_id)
    scheduled_at = format_instant(scheduled_us)
    body = template.body
    if body is None:
        body = _wrap(delivery, template, run_id=run_id, job_id=job_id, scheduled_at=scheduled_at)
    timestamp_s = now // SECOND_US
    lateness_ms = max(0, now - (scheduled_us if delivery.starts_at is None else delivery.starts_at)) // 1_000
    length = "" if template.method in BODILESS_METHODS else f"content-length: {len(body)}\r\n"
    head = (
        f"webhook-id: {run_id}\r\n"
        f"webhook-timestamp: {timestamp_s}\r\n"
        f"webhook-signature: {sign(delivery.keys, run_id, timestamp_s, body)}\r\n"
        f'idempotency-key: "{run_id}"\r\n'
        f"onbeat-job: {job_id}\r\n"
        f"onbeat-attempt: {delivery.attempt}\r\n"
        f"onbeat-trigger: {delivery.trigger}\r\n"
        f"onbeat-scheduled-at: {scheduled_at}\r\n"
        f"onbeat-lateness-ms: {lateness_ms}\r\n"
        f"traceparent: {_trace_parent(run_id, delivery.attempt)}\r\n"
        f"{_callback_headers(delivery)}"
        f"{length}\r\n"
    )
    return template.head + head.encode("ascii") + body


def _wrap(delivery: Delivery, template: RequestTemplate, *, run_id: str, job_id: str, scheduled_at: str) -> bytes:
    return wrap(
        template.payload if delivery.payload is None else delivery.payload.encode("utf-8"),
        run_id=run_id,
        job=describe_job(job_id, job_key=delivery.job_key, job_name=delivery.job_name),
        scheduled_at=scheduled_at,
        attempt=delivery.attempt,
        trigger=delivery.trigger,
        callback=b"" if delivery.callback_url is None else describe_callback(delivery.callback_url, _token(delivery)),
    )


def _callback_headers(delivery: Delivery) -> str:
    if delivery.callback_url is None:
        return ""
    return f"onbeat-callback-url: {delivery.callback_url}\r\nonbeat-callback-token: {_token(delivery)}\r\n"


def _token(delivery: Delivery) -> str:
    return base64.urlsafe_b64encode(callback_token(delivery.token)).rstrip(b"=").decode("ascii")


def _write_fixed_head(
    url: WebhookUrl, method: str, headers: tuple[tuple[str, str], ...], *, has_content: bool
) -> bytes:
    given = {name.lower() for name, _value in headers}
    lines = [f"{method} {url.request_target.decode('ascii')} HTTP/1.1", f"host: {url.authority}"]
    if "user-agent" not in given:
        lines.append(f"user-agent: {USER_AGENT}")
    if has_content and "content-type" not in given:
        lines.append("content-type: application/json")
    lines.append("accept-encoding: identity")  # an answer is kept as it came, never unpacked
    lines += [f"{name}: {value}" for name, value in headers]
    return "".join(f"{line}\r\n" for line in lines).encode("ascii")


_fixed_head = lru_cache(maxsize=1_024)(_write_fixed_head)  # jobs of one tenant call the same endpoint in the same way


def _trace_parent(run_id: str, attempt: int) -> str:
    # The trace is the run and the span the attempt, so both can be found from a run's page without being stored.
    digest = hashlib.blake2b(run_id.encode("ascii"), digest_size=24).hexdigest()
    return f"00-{digest[:32]}-{digest[32:44]}{attempt & 0xFFFF:04x}-01"
