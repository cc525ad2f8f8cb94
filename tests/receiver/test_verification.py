"""What a handler's `verify` accepts and what it refuses."""

from __future__ import annotations

import ast
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook

import onbeat.receiver
from onbeat.delivery.signing import new_secret, parse_secret, sign
from onbeat.receiver import SignatureInvalid, verify

NOW = 1_800_000_000
SECRET = new_secret()
BODY = '{"a":"é"}'.encode()


def headers(*secrets: str, at: int = NOW, message_id: str = "run_1", body: bytes = BODY) -> dict[str, str]:
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(at),
        "Webhook-Signature": sign([parse_secret(secret) for secret in secrets], message_id, at, body),
    }


def test_a_signed_call_is_accepted() -> None:
    call = verify(headers(SECRET), BODY, SECRET, now_s=NOW)
    assert (call.run_id, call.timestamp) == ("run_1", NOW)
    pairs = list(headers(SECRET).items())
    assert verify(pairs, BODY, [SECRET.removeprefix("whsec_")], now_s=NOW) == call


def test_the_independent_library_s_signature_is_accepted() -> None:
    at = datetime.fromtimestamp(NOW, tz=UTC)
    signature = Webhook(SECRET).sign("run_1", at, BODY.decode())
    given = {"webhook-id": "run_1", "webhook-timestamp": str(NOW), "webhook-signature": signature}
    assert verify(given, BODY, SECRET, now_s=NOW).run_id == "run_1"


def test_either_secret_verifies_while_one_is_rotated() -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    for secret in (old, new, [other, old]):
        verify(headers(new, old), BODY, secret, now_s=NOW)
    verify(headers(old), BODY, [new, old], now_s=NOW)
    with pytest.raises(SignatureInvalid):
        verify(headers(new), BODY, old, now_s=NOW)


@pytest.mark.parametrize("offset", [-300, 300])
def test_the_tolerance_is_inclusive(offset: int) -> None:
    verify(headers(SECRET, at=NOW + offset), BODY, SECRET, now_s=NOW)


@pytest.mark.parametrize("offset", [-301, 301])
def test_old_and_future_timestamps_are_refused(offset: int) -> None:
    with pytest.raises(SignatureInvalid):
        verify(headers(SECRET, at=NOW + offset), BODY, SECRET, now_s=NOW)


def test_the_host_s_clock_is_used_when_none_is_given() -> None:
    with pytest.raises(SignatureInvalid):
        verify(headers(SECRET, at=1_000_000_000), BODY, SECRET)


@pytest.mark.parametrize(
    "changed",
    [
        {"Webhook-Id": "run_2"},
        {"Webhook-Id": ""},
        {"Webhook-Timestamp": str(NOW + 1)},
        {"Webhook-Timestamp": "soon"},
        {"Webhook-Timestamp": f"+{NOW}"},
        {"Webhook-Timestamp": f"0{NOW}"},
        {"Webhook-Timestamp": f"{NOW}.0"},
        {"Webhook-Timestamp": "9" * 5_000},
        {"Webhook-Timestamp": "١٢٣"},
        {"Webhook-Signature": ""},
        {"Webhook-Signature": "v1,"},
        {"Webhook-Signature": "v2,AAAA"},
        {"Webhook-Signature": "v1,é\udcff"},
        {"Webhook-Signature": "v1a," + "A" * 44},
    ],
)
def test_a_changed_call_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(SignatureInvalid):
        verify(headers(SECRET) | changed, BODY, SECRET, now_s=NOW)


def test_a_changed_body_or_a_missing_header_is_refused() -> None:
    with pytest.raises(SignatureInvalid):
        verify(headers(SECRET), BODY + b" ", SECRET, now_s=NOW)
    for name in headers(SECRET):
        with pytest.raises(SignatureInvalid):
            verify({key: value for key, value in headers(SECRET).items() if key != name}, BODY, SECRET, now_s=NOW)


@pytest.mark.parametrize("secrets", [[], "", "whsec_", "whsec_!", ["whsec_é"]])
def test_a_malformed_secret_is_the_handler_s_mistake(secrets: str | list[str]) -> None:
    with pytest.raises(ValueError):
        verify(headers(SECRET), BODY, secrets, now_s=NOW)


def test_the_package_needs_the_standard_library_only() -> None:
    folder = Path(onbeat.receiver.__file__).parent
    imported: set[str] = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    ours = {name for name in imported if name.startswith("onbeat.receiver.")}
    assert {name.split(".")[0] for name in imported - ours} <= set(sys.stdlib_module_names)
