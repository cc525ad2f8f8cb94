"""What of a target besides its URL is refused when it is saved: method, headers, body."""

from __future__ import annotations

from typing import Any

import pytest

from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import WebhookTarget
from onbeat.domain.webhook import check_webhook

RESERVED = """
    Host Content-Length Transfer-Encoding Connection Expect Upgrade TE Trailer Keep-Alive Proxy-Authorization
    proxy-connection webhook-signature WEBHOOK-ID Idempotency-Key Signature Signature-Input Content-Digest
    traceparent onbeat-attempt Accept-Encoding
""".split()  # noqa: SIM905  read as a table


def refusal(**fields: Any) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        check_webhook(WebhookTarget(url="https://example.com/", **fields), EgressRules())
    return caught.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-Injected: 1"),
        ("X-A", "a\nb"),
        ("X-A", "a\x00b"),
        ("X-A", "a\x7f"),
        ("X-A\r\nB", "c"),
        ("X A", "b"),
        ("X:Y", "b"),
        ("", "x"),
        ("Ü", "x"),
        ("X-A", "café"),
        ("X-A", "東京"),
        ("X-A", " a"),
        ("X-A", "a\t"),
        ("X-A", 1),
        ("X-A", None),
        ("X-A", b"a"),
        (1, "a"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused(name: object, value: object) -> None:
    error = refusal(headers={name: value})
    assert error.reason_code == "header_invalid"
    assert error.field is not None
    assert error.field.startswith("target.headers.")
    assert "\n" not in error.field


@pytest.mark.parametrize("name", RESERVED)
def test_headers_that_are_ours_are_refused(name: str) -> None:
    error = refusal(headers={name: "x"})
    assert (error.reason_code, error.field) == ("header_reserved", f"target.headers.{name}")


def test_headers_are_bounded_in_number_and_size() -> None:
    assert refusal(headers={f"X-{number}": "" for number in range(101)}).reason_code == "header_invalid"
    assert refusal(headers={"X-A": "a" * 1_000_000}).reason_code == "header_invalid"
    check_webhook(
        WebhookTarget(url="https://example.com/", headers={f"X-{number}": "" for number in range(100)}), EgressRules()
    )


def test_one_header_in_two_spellings_is_refused() -> None:
    assert refusal(headers={"x-a": "1", "X-A": "2"}).reason_code == "header_invalid"


@pytest.mark.parametrize("method", ["GET\r\n", "get", "", "CONNECT", "TRACE", "POST ", 1])
def test_methods_outside_the_list_are_refused(method: object) -> None:
    assert refusal(method=method).reason_code == "method_invalid"


def test_a_get_with_a_body_is_refused() -> None:
    assert refusal(method="GET", body="x").field == "target.body"


@pytest.mark.parametrize("field", ["body", "payload"])
def test_bodies_are_bounded_in_bytes(field: str) -> None:
    assert refusal(**{field: "é" * 131_073}).reason_code == "body_too_large"
    assert refusal(**{field: "\ud800"}).reason_code == "body_invalid"
    check_webhook(WebhookTarget(url="https://example.com/", body="😱" * 65_536), EgressRules())
