"""Verifies Standard Webhooks v1 signatures. Source: the Standard Webhooks specification 1.0.0."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_PREFIX = "whsec_"


class SignatureInvalid(Exception):
    """The call cannot be shown to come from onbeat. Answer 401; the text is safe to log."""


@dataclass(frozen=True, slots=True)
class VerifiedCall:
    """What the signature vouches for. Anything else of the call is to be read from the signed body."""

    run_id: str  # the same on every delivery of a run: do the work once per run_id
    timestamp: int  # seconds UTC at which this delivery was signed


def verify(
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes,
    secrets: str | Iterable[str],
    *,
    tolerance_s: int = 300,
    now_s: float | None = None,
) -> VerifiedCall:
    """The call's run id, once one of the signatures fits one of the secrets. Raises SignatureInvalid.

    `body` must be the bytes as they arrived, not JSON that was read and written again. `headers` may be any mapping or
    list of pairs; upper and lower case make no difference. While a secret is rotated pass both: calls are signed with
    both as well. A timestamp more than `tolerance_s` off is refused, so that a recorded call cannot be replayed later.
    Raises ValueError where a secret itself is malformed or there is none: that is the handler's own configuration.
    """
    keys = [_read_secret(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise ValueError("there is no secret to verify with")
    given = _read_headers(headers)
    message_id, timestamp_text, signatures = (
        given.get("webhook-id"), given.get("webhook-timestamp"), given.get("webhook-signature")
    )  # fmt: skip
    if not message_id or not timestamp_text or not signatures:
        raise SignatureInvalid("webhook-id, webhook-timestamp or webhook-signature is missing")
    timestamp = _read_timestamp(timestamp_text)
    message = b"%b.%d.%b" % (message_id.encode("utf-8", "surrogateescape"), timestamp, body)
    expected = [base64.b64encode(hmac.digest(key, message, "sha256")) for key in keys]
    if not _any_matches(signatures, expected):
        raise SignatureInvalid("no signature fits: another secret, or the body was changed on its way")
    # A handler has no clock of onbeat's: it compares with its own host's, as every receiver does.
    now = time.time() if now_s is None else now_s  # noqa: TID251
    if abs(now - timestamp) > tolerance_s:
        raise SignatureInvalid(f"the timestamp is more than {tolerance_s} s away from this host's clock")
    return VerifiedCall(run_id=message_id, timestamp=timestamp)


def _read_secret(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a signing secret is whsec_ followed by base64") from None
    if not key:
        raise ValueError("a signing secret is whsec_ followed by base64")
    return key


def _read_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {name.lower(): value for name, value in pairs}


def _read_timestamp(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise SignatureInvalid("webhook-timestamp is not a number of seconds")
    if text != str(int(text)):
        raise SignatureInvalid("webhook-timestamp is not a number of seconds")
    return int(text)


def _any_matches(signatures: str, expected: list[bytes]) -> bool:
    found = False
    for signature in signatures.split(" "):
        scheme, _, encoded = signature.partition(",")
        if scheme != "v1":
            continue
        given = encoded.encode("utf-8", "surrogateescape")
        for wanted in expected:
            # No early way out: how long this takes must not tell which signature came close.
            found |= hmac.compare_digest(given, wanted)
    return found
