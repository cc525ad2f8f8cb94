"""Through the operator's proxy: what it is asked, what the target sees, and what its refusals are called."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest
from tests.delivery.authority import Authority
from tests.delivery.receivers import (
    OK,
    Receiver,
    Sending,
    StubResolver,
    delivery,
    in_turn,
    says,
)
from tests.delivery.receivers import stays_silent as receiver_stays_silent
from tests.support.connect_proxy import ConnectProxy, Instead, answers, proxying, stays_silent
from tests.support.ports import free_port

from onbeat.delivery.limits import DialLimits, SenderLimits
from onbeat.delivery.tls import create_tls_context
from onbeat.domain.egress import EgressRules
from onbeat.domain.egress_proxy import EgressProxy, parse_proxy_url
from onbeat.domain.outcome import SENT_NOTHING, OutcomeKind

PASSWORD = "s3cret/@:"
CREDENTIALS = "Basic " + base64.b64encode(f"onbeat:{PASSWORD}".encode()).decode()


def through(proxy: ConnectProxy, *, credentials: str = "", resolves: bool = False) -> EgressProxy:
    return parse_proxy_url(f"http://{credentials}127.0.0.1:{proxy.port}", resolves=resolves)


# ---- what passes


async def test_webhooks_reach_the_target_through_a_tunnel_that_is_used_again() -> None:
    async with proxying() as proxy, Receiver(says(OK)) as receiver, Sending(proxy=through(proxy)) as sending:
        for number in range(3):
            outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/x", number=number))
            assert outcome.kind is OutcomeKind.SUCCEEDED
    assert [asked.line for asked in proxy.asked] == [f"CONNECT 127.0.0.1:{receiver.port} HTTP/1.1"]
    assert proxy.asked[0].headers == {"host": f"127.0.0.1:{receiver.port}"}
    assert (proxy.tunnels, receiver.connections, len(receiver.seen)) == (1, 1, 3)
    assert receiver.seen[0].line == "POST /x HTTP/1.1"


async def test_each_target_has_tunnels_of_its_own() -> None:
    async with (
        proxying() as proxy,
        Receiver(says(OK)) as one,
        Receiver(says(OK)) as other,
        Sending(proxy=through(proxy)) as sending,
    ):
        for number, receiver in enumerate((one, other, one, other)):
            await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/", number=number))
    assert [asked.target for asked in proxy.asked] == [f"127.0.0.1:{one.port}", f"127.0.0.1:{other.port}"]
    assert (len(one.seen), len(other.seen)) == (2, 2)


async def test_credentials_are_for_the_proxy_and_never_reach_the_target() -> None:
    async with proxying(authorization=CREDENTIALS) as proxy, Receiver(says(OK)) as receiver:
        with_credentials = through(proxy, credentials="onbeat:s3cret%2F%40%3A@")
        async with Sending(proxy=with_credentials) as sending:
            outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert proxy.asked[0].headers["proxy-authorization"] == CREDENTIALS
    sent = b"".join(proxy.through).lower()
    assert b"webhook-id" in sent
    assert b"proxy-" not in sent
    assert CREDENTIALS.split()[1].lower().encode() not in sent
    assert PASSWORD not in repr(with_credentials)
    assert CREDENTIALS not in repr(with_credentials)


async def test_tls_inside_the_tunnel_is_named_after_and_verified_for_the_target(authority: Authority) -> None:
    names: list[str | None] = []
    tls = authority.serve("good.test")
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    resolver = StubResolver({"good.test": ("127.0.0.1",)})
    context = create_tls_context(ca_file=authority.file)
    async with (
        proxying() as proxy,
        Receiver(says(OK), tls=tls) as receiver,
        Sending(proxy=through(proxy), resolver=resolver, tls=context) as sending,
    ):
        for number in range(2):
            outcome = await sending.outcome_of(delivery(f"https://good.test:{receiver.port}/", number=number))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert names == ["good.test"]
    assert (proxy.tunnels, len(receiver.seen)) == (1, 2)
    assert b"webhook-id" not in b"".join(proxy.through)


async def test_a_certificate_of_another_name_is_refused_through_a_tunnel_too(authority: Authority) -> None:
    resolver = StubResolver({"good.test": ("127.0.0.1",)})
    context = create_tls_context(ca_file=authority.file)
    async with (
        proxying() as proxy,
        Receiver(says(OK), tls=authority.serve("other.test")) as receiver,
        Sending(proxy=through(proxy), resolver=resolver, tls=context) as sending,
    ):
        outcome = await sending.outcome_of(delivery(f"https://good.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.TLS
    assert (proxy.tunnels, receiver.seen) == (1, [])


async def test_a_proxy_is_found_by_name_and_its_own_private_address_is_not_judged() -> None:
    resolver = StubResolver({"proxy.corp": ("127.0.0.1",), "host.test": ("93.184.216.34",)})
    rules = EgressRules(allow_http=True, ports=None)
    async with proxying(names={"93.184.216.34": "127.0.0.1"}) as proxy, Receiver(says(OK)) as receiver:
        named = parse_proxy_url(f"http://proxy.corp:{proxy.port}")
        async with Sending(proxy=named, resolver=resolver, rules=rules) as sending:
            outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert sorted(resolver.asked) == ["host.test", "proxy.corp"]
    assert receiver.seen[0].headers["host"] == f"host.test:{receiver.port}"


# ---- who judges addresses


async def test_the_proxy_is_asked_for_the_judged_address_and_not_for_the_name() -> None:
    resolver = StubResolver({"host.test": ("127.0.0.1",)})
    async with (
        proxying(names={"host.test": "10.0.0.1"}) as proxy,
        Receiver(says(OK)) as receiver,
        Sending(proxy=through(proxy), resolver=resolver) as sending,
    ):
        outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert proxy.asked[0].target == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("93.184.216.34", "169.254.169.254"), ("::ffff:10.0.0.1",)])
async def test_a_denied_address_is_denied_before_the_proxy_hears_of_it(addresses: Sequence[str]) -> None:
    resolver = StubResolver({"host.test": addresses})
    async with proxying() as proxy, Sending(proxy=through(proxy), resolver=resolver) as sending:
        outcome = await sending.outcome_of(delivery("http://host.test/"))
    assert outcome.kind is OutcomeKind.BLOCKED
    assert proxy.asked == []


async def test_a_proxy_that_resolves_is_given_the_name_and_nobody_else_is_asked() -> None:
    resolver = StubResolver({})
    async with (
        proxying(names={"host.test": "127.0.0.1"}) as proxy,
        Receiver(says(OK)) as receiver,
        Sending(proxy=through(proxy, resolves=True), resolver=resolver) as sending,
    ):
        outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert proxy.asked[0].target == f"host.test:{receiver.port}"
    assert resolver.asked == []


async def test_a_literal_address_is_judged_here_even_if_the_proxy_resolves() -> None:
    rules = EgressRules(allow_http=True, ports=None)
    async with proxying() as proxy, Sending(proxy=through(proxy, resolves=True), rules=rules) as sending:
        for number, host in enumerate(("10.0.0.1", "[::ffff:10.0.0.1]", "169.254.169.254")):
            outcome = await sending.outcome_of(delivery(f"http://{host}/", number=number))
            assert outcome.kind in (OutcomeKind.BLOCKED, OutcomeKind.UNSENDABLE)
    assert proxy.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "proxy.test"])
async def test_the_proxy_itself_is_no_target(host: str) -> None:
    resolver = StubResolver({"proxy.test": ("127.0.0.1",)})
    async with proxying() as proxy, Sending(proxy=through(proxy), resolver=resolver) as sending:
        outcome = await sending.outcome_of(delivery(f"http://{host}:{proxy.port}/"))
    assert outcome.kind is OutcomeKind.BLOCKED
    assert proxy.asked == []


async def test_the_next_address_is_tried_where_the_proxy_does_not_reach_the_first() -> None:
    resolver = StubResolver({"host.test": ("127.0.0.9", "127.0.0.1")})
    async with (
        proxying() as proxy,
        Receiver(says(OK)) as receiver,
        Sending(proxy=through(proxy), resolver=resolver) as sending,
    ):
        outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert [asked.target for asked in proxy.asked] == [f"127.0.0.9:{receiver.port}", f"127.0.0.1:{receiver.port}"]


# ---- what its refusals are called


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        (answers(b"HTTP/1.1 407 Who\r\n\r\n"), "does not accept our user and password (407)"),
        (
            answers(b"HTTP/1.1 401 Who\r\n\r\n"),
            "does not accept our user and password (401)",
        ),
        (
            answers(b"HTTP/1.1 403 No db.corp\r\nx-host: db.corp\r\n\r\nnot db.corp"),
            "answered 403 and opened no tunnel",
        ),
        (answers(b"HTTP/1.1 502 Bad\r\ncontent-length: 3\r\n\r\nwhy"), "answered 502 and opened no tunnel"),
        (answers(b"HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1/\r\n\r\n"), "answered 301 and opened no tunnel"),
        (answers(b"HTTP/1.1 100 Continue\r\n\r\n"), "answered 100 and opened no tunnel"),
        (answers(b"HTTP/1.1 999 Odd\r\n\r\n"), "is not HTTP"),
        (answers(b"<html>200</html>\r\n\r\n"), "is not HTTP"),
        (answers(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"), "more than its answer"),
        (answers(b"HTTP/1.1 200 OK\r\nx: " + b"a" * 20_000), "has no end"),
        (answers(b"HTTP/1.1 200 OK\r\n"), "closed the connection"),
        (answers(b""), "closed the connection"),
        (stays_silent, "did not open a tunnel in time"),
        (answers(b"HTTP/1.1 200 O", then_closes=False), "did not open a tunnel in time"),
    ],
)
async def test_a_proxy_that_opens_no_tunnel_is_a_proxy_error_and_nothing_is_sent(instead: Instead, words: str) -> None:
    limits = SenderLimits(dial=DialLimits(tunnel_s=0.3 if "in time" in words else 10.0))
    async with proxying(instead=instead) as proxy, Sending(proxy=through(proxy), limits=limits) as sending:
        outcome = await sending.outcome_of(delivery("http://127.0.0.1:9/"))
    assert outcome.kind is OutcomeKind.PROXY
    assert outcome.kind in SENT_NOTHING
    assert outcome.error is not None
    assert words in outcome.error
    assert "corp" not in outcome.error
    assert outcome.status is None
    assert outcome.response is None
    assert len(proxy.asked) == 1


async def test_an_answer_in_single_bytes_opens_the_tunnel_as_well() -> None:
    opening = [bytes([byte]) for byte in b"HTTP/1.0 200 yes\r\nvia: x\r\n\r\n"]
    async with (
        proxying(opening=opening) as proxy,
        Receiver(says(OK)) as receiver,
        Sending(proxy=through(proxy)) as sending,
    ):
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED


async def test_a_proxy_that_is_not_there_is_a_proxy_error() -> None:
    port = free_port()
    resolver = StubResolver({"empty.test": ("127.0.0.1",)})
    for number, (place, words) in enumerate(
        (
            (f"127.0.0.1:{port}", "was not reached: the host refused the connection"),
            (f"gone.test:{port}", "name did not resolve"),
        )
    ):
        async with Sending(proxy=parse_proxy_url(f"http://{place}"), resolver=resolver) as sending:
            outcome = await sending.outcome_of(delivery("http://127.0.0.1:9/", number=number))
        assert (outcome.kind, words in (outcome.error or "")) == (OutcomeKind.PROXY, True)


async def test_the_attempts_time_covers_the_tunnel() -> None:
    limits = SenderLimits(dial=DialLimits(tunnel_s=60), timer_step_s=0.005)
    async with proxying(instead=stays_silent) as proxy, Sending(proxy=through(proxy), limits=limits) as sending:
        whole = await sending.outcome_of(delivery("http://127.0.0.1:9/", number=1, timeout_s=0.2))
        connecting = await sending.outcome_of(
            delivery("http://127.0.0.1:9/", number=2, timeout_s=60, connect_timeout_s=0.2)
        )
    assert (whole.kind, connecting.kind) == (OutcomeKind.TIMEOUT_BEFORE_SEND, OutcomeKind.TIMEOUT_BEFORE_SEND)
    assert connecting.error == "there was no connection in time"


async def test_a_target_that_stays_silent_behind_a_tunnel_is_no_answer() -> None:
    async with (
        proxying() as proxy,
        Receiver(in_turn(says(OK), receiver_stays_silent)) as receiver,
        Sending(proxy=through(proxy)) as sending,
    ):
        url = f"http://127.0.0.1:{receiver.port}/"
        await sending.outcome_of(delivery(url, number=1))  # opens the tunnel, which may take its time
        outcome = await sending.outcome_of(delivery(url, number=2, timeout_s=0.5))
    assert outcome.kind is OutcomeKind.NO_ANSWER


async def test_a_tunnel_that_is_cut_under_a_request_is_no_answer_and_is_not_sent_again() -> None:
    async with (
        proxying() as proxy,
        Receiver(in_turn(says(OK), receiver_stays_silent)) as receiver,
        Sending(proxy=through(proxy)) as sending,
    ):
        url = f"http://127.0.0.1:{receiver.port}/"
        await sending.outcome_of(delivery(url, number=1))
        receiver.arrived.clear()
        second = sending.begin(delivery(url, number=2))
        await receiver.arrived.wait()
        await proxy.hang_up()
        assert (await second).kind is OutcomeKind.NO_ANSWER
    assert len(receiver.seen) == 2


# ---- the setting


@pytest.mark.parametrize(
    "text",
    [
        "", "proxy:3128", "https://proxy:3128", "socks5://proxy:1080", "http://proxy", "http://proxy:80/x",
        "http://proxy:3128//", "http://proxy:3128?x", "http://proxy:0", "http://user:hunter2@", "http://:hunter2@proxy:1",
        "http://user:hunter2/@proxy:1", "http://user:hunter2@x@proxy:1", "http://us%3Aer:hunter2@proxy:1",
        "http://user:hunter2%0A@proxy:1", "http://user:hunter2\r\n@proxy:1", "http://hunter2\u00e9:x@proxy:1",
        "http://127.1:3128", "http://user:hunter2@proxy:port",
    ],
)  # fmt: skip
def test_what_is_no_proxy_is_refused_without_repeating_its_secret(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_proxy_url(text)
    assert "hunter2" not in str(raised.value)


def test_a_proxy_url_is_read_whole() -> None:
    plain = parse_proxy_url("http://Proxy.Example:3128/")
    assert (plain.host, plain.port, plain.authorization, plain.resolves) == ("proxy.example", 3128, None, False)
    six = parse_proxy_url("http://u:@[::1]:80", resolves=True)
    assert (six.host, six.port, str(six.address), six.resolves) == ("::1", 80, "::1", True)
    assert six.authorization == "Basic " + base64.b64encode(b"u:").decode()
