"""The invariants, each a function of bytes that raises AssertionError where one does not hold."""

from __future__ import annotations

import math
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from tests.fuzz.strict_response import response_end

from onbeat.delivery.attempt import read_outcome
from onbeat.delivery.failure import DialFailed
from onbeat.delivery.response import MAX_BODY_KEPT, MAX_HEAD_BYTES, MAX_HEADER_LINES, MAX_INTERIM, ResponseReader
from onbeat.delivery.signing import sign
from onbeat.delivery.tunnel import judge_answer
from onbeat.domain.egress_proxy import parse_proxy_url
from onbeat.domain.errors import DefinitionError
from onbeat.domain.outcome import OutcomeKind, Response
from onbeat.domain.retry_after import parse_retry_after
from onbeat.domain.webhook_url import parse_url
from onbeat.receiver import SignatureInvalid, verify

NOW = 1_800_000_000_000_000  # µs UTC
READABLE = {OutcomeKind.SUCCEEDED, OutcomeKind.HTTP_STATUS, OutcomeKind.REDIRECT}
UNREADABLE = {OutcomeKind.BAD_RESPONSE, OutcomeKind.NO_ANSWER}

_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_KEY = b"1\xf2\x90\xf6\xbf\x06)\x8a\xabO\x08\xd4<?\x08,\xf6H\xa3b\xda-\xa4\xb0"
_HOST = re.compile(r"[a-z0-9_.:-]+")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)[0-9]{2}(?: [^\r\n]*)?\r?\n")
_FINAL = re.compile(rb"HTTP/1\.[01] (101|[2-5][0-9]{2})(?: [^\r\n]*)?\r?\n")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader made of an answer."""

    status: int | None
    is_clean: bool  # the connection could be used again: a certain end, and nothing after it
    response: Response | None


def read_in_pieces(pieces: Sequence[bytes], *, method: str) -> Reading:
    """As a connection does: what comes after the end is not read, and spoils the connection."""
    reader, rest = ResponseReader(method=method), list(pieces)
    while rest:
        if reader.feed(rest.pop(0)):
            break
    is_clean = reader.reusable and not any(rest)
    reader.end()
    assert reader.finished
    outcome = read_outcome(reader, started_at=NOW, duration_us=1, now=lambda: NOW)
    assert outcome.kind in (UNREADABLE if outcome.status is None else READABLE)
    assert (outcome.kind is OutcomeKind.SUCCEEDED) == (outcome.status is not None and 200 <= outcome.status < 300)
    if outcome.response is not None:
        assert len(outcome.response.body) <= MAX_BODY_KEPT
        assert len(outcome.response.headers) <= MAX_HEADER_LINES
        assert sum(len(name) + len(value) for name, value in outcome.response.headers) <= MAX_HEAD_BYTES
    return Reading(outcome.status, is_clean, outcome.response)


def check_response(data: bytes, *, method: str = "POST", cuts: Sequence[int] = ()) -> None:
    """An answer means the same however it is cut; its status is the first final one; its end is certain or not used."""
    whole = read_in_pieces([data], method=method)
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    assert read_in_pieces(pieces, method=method) == whole
    assert read_in_pieces([data], method=method) == whole, "a head that is remembered means something else"
    assert whole.status in (None, _status_of(data))
    certain = response_end(data, method=method)
    if whole.is_clean:
        assert certain == len(data)
    elif certain == len(data):
        assert _is_large(data), "a connection is given up for nothing"


def check_url(text: str) -> None:
    """A URL that is accepted means one thing to everybody: to us, read again, and to the resolver."""
    try:
        url = parse_url(text)
    except DefinitionError:
        return
    assert parse_url(url.text) == url
    assert _HOST.fullmatch(url.host), url.host
    assert 0 < url.port < 65_536
    assert url.request_target.startswith(b"/")
    assert all(0x20 < byte < 0x7F for byte in url.request_target)
    if url.address is not None:
        assert str(ip_address(url.host)) == url.host
        return
    for read in (ip_address, socket.inet_aton):
        try:
            read(url.host)
        except (ValueError, OSError):
            continue
        raise AssertionError(f"{url.host} is an address in disguise")


def check_retry_after(text: str) -> None:
    """No text makes a wait that is not a number of seconds from 0 on."""
    waits_s = parse_retry_after(text, now=NOW)
    assert waits_s is None or (math.isfinite(waits_s) and waits_s >= 0)


def check_signature(data: bytes) -> None:
    """What was not signed is never accepted, and what was signed is not accepted with one bit changed."""
    fields = (data.split(b"\n", 3) + [b""] * 4)[:4]
    run_id, timestamp, signatures = (part.decode("latin-1") for part in fields[:3])
    body = fields[3]
    headers = {"webhook-id": run_id, "webhook-timestamp": timestamp, "webhook-signature": signatures}
    try:
        call = verify(headers, body, _SECRET, now_s=NOW / 1e6)
    except SignatureInvalid:
        pass
    else:
        assert sign([_KEY], call.run_id, call.timestamp, body) in signatures
    signed_at = NOW // 1_000_000
    headers = {
        "Webhook-Id": "run_1",
        "webhook-timestamp": str(signed_at),
        "webhook-signature": sign([_KEY], "run_1", signed_at, data),
    }
    assert verify(headers, data, _SECRET, now_s=signed_at).run_id == "run_1"
    if data:
        at = data[0] % len(data)
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            verify(headers, changed, _SECRET, now_s=signed_at)
        except SignatureInvalid:
            return
        raise AssertionError("a changed body was accepted")


def check_tunnel(data: bytes) -> None:
    """Nothing but a whole 2xx head with no byte after it opens a tunnel; a proxy's URL is a place and nothing else."""
    if b"\r\n\r\n" in data:
        try:
            judge_answer(data)
        except DialFailed:
            pass
        else:
            assert re.match(rb"HTTP/1\.[01] 2[0-9]{2}[ \r]", data)
            assert data.index(b"\r\n\r\n") + 4 == len(data)
    try:
        proxy = parse_proxy_url("http://" + data.decode("latin-1"))
    except ValueError:
        return
    assert proxy.authorization is None or re.fullmatch(r"Basic [A-Za-z0-9+/=]+", proxy.authorization)
    assert _HOST.fullmatch(proxy.host)


def _is_large(data: bytes) -> bool:
    """Beyond what is read of an answer."""
    return len(data) > MAX_HEAD_BYTES or data.count(b"\n") > MAX_HEADER_LINES or data.count(b"HTTP/1.") > MAX_INTERIM


def _status_of(data: bytes) -> int | None:
    """The status of the first final answer; interim ones are passed over to the end of their head."""
    for _ in range(MAX_INTERIM + 1):
        final = _FINAL.match(data)
        if final is not None:
            return int(final[1])
        if _INTERIM.match(data) is None or b"\r\n\r\n" not in data:
            return None
        data = data.partition(b"\r\n\r\n")[2]
    return None
