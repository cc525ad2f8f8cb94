"""TLS with real certificates: what is accepted, what is refused, and that the refusal says why."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from tests.delivery.authority import LONG_AGO, Authority
from tests.delivery.receivers import OK, Receiver, Sending, StubResolver, delivery, says

from onbeat.delivery.tls import create_tls_context
from onbeat.domain.outcome import Outcome, OutcomeKind


async def deliver_to(tls: ssl.SSLContext, *, ca_file: Path | None, host: str = "good.test") -> tuple[Outcome, Receiver]:
    resolver = StubResolver({"good.test": ("127.0.0.1",)})
    context = create_tls_context(ca_file=ca_file)
    async with Receiver(says(OK), tls=tls) as receiver, Sending(resolver=resolver, tls=context) as sending:
        for number in range(2):
            outcome = await sending.outcome_of(delivery(f"https://{host}:{receiver.port}/", number=number))
    return outcome, receiver


@pytest.mark.parametrize("host", ["good.test", "127.0.0.1"])
async def test_a_private_authority_is_accepted_when_its_file_is_given(authority: Authority, host: str) -> None:
    outcome, receiver = await deliver_to(authority.serve(host), ca_file=authority.file, host=host)
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert receiver.connections == 1
    assert len(receiver.seen) == 2


async def test_the_url_s_name_goes_into_the_handshake_not_the_dialled_address(authority: Authority) -> None:
    names: list[str | None] = []
    tls = authority.serve("good.test")
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    outcome, _ = await deliver_to(tls, ca_file=authority.file)
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert names == ["good.test"]


async def test_certificates_that_do_not_hold_are_refused_with_the_reason(authority: Authority) -> None:
    expired = authority.serve("good.test", until=LONG_AGO + timedelta(days=1))
    wrong_name = authority.serve("other.test")
    self_signed = authority.serve("good.test", self_signed=True)
    for tls, ca_file, reason in (
        (expired, authority.file, "certificate has expired"),
        (wrong_name, authority.file, "good.test"),
        (self_signed, authority.file, "self-signed certificate"),
        (authority.serve("good.test"), None, "unable to get local issuer certificate"),
    ):
        outcome, receiver = await deliver_to(tls, ca_file=ca_file)
        assert outcome.kind is OutcomeKind.TLS
        assert outcome.error is not None
        assert reason in outcome.error
        assert receiver.seen == []


async def test_old_protocol_versions_are_refused(authority: Authority) -> None:
    tls = authority.serve("good.test")
    tls.set_ciphers("ALL:@SECLEVEL=0")
    tls.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLS"):
        tls.maximum_version = ssl.TLSVersion.TLSv1
    outcome, receiver = await deliver_to(tls, ca_file=authority.file)
    assert outcome.kind is OutcomeKind.TLS
    assert receiver.seen == []


async def test_a_host_that_does_not_speak_tls_is_a_tls_error() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, Sending() as sending:
        port = server.sockets[0].getsockname()[1]
        outcome = await sending.outcome_of(delivery(f"https://127.0.0.1:{port}/"))
    assert outcome.kind is OutcomeKind.TLS
    assert outcome.error is not None
    assert "220" not in outcome.error


async def test_a_broken_body_over_tls_still_counts(authority: Authority) -> None:
    answer = says(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", then_closes=True)
    resolver = StubResolver({"good.test": ("127.0.0.1",)})
    context = create_tls_context(ca_file=authority.file)
    tls = authority.serve("good.test")
    async with Receiver(answer, tls=tls) as receiver, Sending(resolver=resolver, tls=context) as sending:
        outcome = await sending.outcome_of(delivery(f"https://good.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert len(receiver.seen) == 1
