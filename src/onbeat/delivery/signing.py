"""Standard Webhooks v1 signatures: HMAC-SHA256 over `id.timestamp.body`, the very bytes that are sent.

Owns secrets' text form and the signature header. Keeping, encrypting and rotating secrets is the services' affair:
while one is rotated they pass every version that is still valid, and each gives a signature of its own.
Source: the Standard Webhooks specification 1.0.0.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets as randomness
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from onbeat.domain.errors import DefinitionError

PREFIX: Final = "whsec_"
_NEW_KEY_BYTES: Final = 32
_MIN_KEY_BYTES: Final = 24  # 192 bits, the specification's lower bound
_MAX_KEY_BYTES: Final = 64  # longer keys are hashed by HMAC and gain nothing


def new_secret() -> str:
    """A fresh signing secret in the form that receivers store: `whsec_` and base64 of 32 random bytes."""
    return PREFIX + base64.b64encode(randomness.token_bytes(_NEW_KEY_BYTES)).decode("ascii")


def parse_secret(text: str) -> bytes:
    """The key behind a secret's text, with or without `whsec_`. Raises DefinitionError(`secret_invalid`).

    The text itself never appears in the error.
    """
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise _refusal("a signing secret is whsec_ followed by base64") from None
    if not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise _refusal(f"a signing secret holds {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} bytes, this one {len(key)}")
    return key


def sign(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The `webhook-signature` header: one `v1,…` per key, in the order given, separated by blanks."""
    start = f"{message_id}.{timestamp_s}.".encode("ascii")
    return " ".join([f"v1,{_sign(key, start, body)}" for key in keys])


def _sign(key: bytes, start: bytes, body: bytes) -> str:
    begun = _begin(key).copy()
    begun.update(start)
    begun.update(body)
    return binascii.b2a_base64(begun.digest(), newline=False).decode("ascii")


@lru_cache(maxsize=1_024)
def _begin(key: bytes) -> hmac.HMAC:
    """To be copied only. What is the same for all messages under a key takes OpenSSL a third of a short signature."""
    return hmac.new(key, digestmod="sha256")


def _refusal(detail: str) -> DefinitionError:
    return DefinitionError("secret_invalid", detail, field="secret", remedy="let onbeat make one: onbeat secrets new")
