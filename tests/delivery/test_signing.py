"""Standard Webhooks signatures: known answers, the independent library, rotation, malformed secrets."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from onbeat.delivery.signing import new_secret, parse_secret, sign
from onbeat.domain.errors import DefinitionError


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ('{"name":"café","n":1.0}', "v1,TQf6tutoxrgRJRbbWvUQayZxSTwqL4rqXDLU7XA6iX8="),
        ('{"name":"caf\\u00e9","n":1.0}', "v1,klY7h9Ux0jyaJmM6gldDqfdK9O3Isq5pSm64Z0c/if0="),
        ('{"name": "café", "n": 1.0}', "v1,FOOjJgR4iIwXevIRhJpF27VTGQGAgBLx/ud8ZRAhU1M="),
    ],
)
def test_reported_vectors(body: str, signature: str) -> None:
    key = parse_secret("C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    assert sign([key], "run_01", 1_767_225_600, body.encode()) == signature


def test_vector_of_the_specification() -> None:
    key = parse_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = sign([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(max_size=200))
def test_the_independent_library_makes_the_same_signature(body: bytes) -> None:
    secret = new_secret()
    at = datetime(2027, 1, 15, 8, tzinfo=UTC)
    text = body.decode("latin-1")
    theirs = Webhook(secret).sign("run_1", at, text)
    assert sign([parse_secret(secret)], "run_1", int(at.timestamp()), text.encode()) == theirs


@given(st.binary(min_size=1, max_size=150), st.binary(max_size=200))
def test_it_is_the_hmac_of_the_standard_library_whatever_the_length_of_the_key(key: bytes, body: bytes) -> None:
    theirs = hmac.digest(key, b"run_1.17." + body, "sha256")
    assert sign([key], "run_1", 17, body) == "v1," + base64.b64encode(theirs).decode()


def test_every_key_signs_while_one_is_rotated() -> None:
    keys = [parse_secret(new_secret()) for _ in range(2)]
    both = sign(keys, "run_1", 1, b"x")
    assert both.split(" ") == [sign([key], "run_1", 1, b"x") for key in keys]


def test_new_secrets_are_32_random_bytes() -> None:
    assert len(parse_secret(new_secret())) == 32
    assert new_secret() != new_secret()


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "whsec_short", "whsec_!!!!", "whsec_" + "A" * 31, "whsec_é", base64.b64encode(b"x" * 65).decode()],
)
def test_malformed_secrets_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_secret(text)
    assert caught.value.reason_code == "secret_invalid"
    assert not text or text not in caught.value.detail
