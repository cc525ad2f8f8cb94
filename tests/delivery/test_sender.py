"""Connections, permits, deadlines, cancelling and closing, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading

import pytest
from tests.delivery.receivers import (
    DEADLINE_S,
    OK,
    Receiver,
    Seen,
    Sending,
    StubResolver,
    delivery,
    in_three_places,
    in_turn,
    says,
    stays_silent,
)
from tests.support.ports import free_port

from onbeat.delivery.connection import Connection
from onbeat.delivery.limits import DialLimits, SenderLimits
from onbeat.delivery.request import Delivery
from onbeat.delivery.response import ResponseReader
from onbeat.domain.egress import EgressRules
from onbeat.domain.outcome import Outcome, OutcomeKind

# ---- connections


async def test_one_connection_carries_deliveries_one_after_the_other() -> None:
    async with Receiver(says(OK)) as receiver, Sending() as sending:
        for number in range(5):
            await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/{number}"))
    assert receiver.connections == 1
    assert [seen.line.split()[1] for seen in receiver.seen] == ["/0", "/1", "/2", "/3", "/4"]


async def test_a_batch_beyond_the_connection_limit_waits_its_turn() -> None:
    limits = SenderLimits(connections_per_origin=3)
    async with Receiver(says(OK)) as receiver, Sending(limits=limits) as sending:
        batch = [delivery(f"http://127.0.0.1:{receiver.port}/", number=number) for number in range(50)]
        outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        sending.sender.send(batch, lambda _, outcome: outcomes.put_nowait(outcome))
        assert sending.sender.in_flight == 50
        kinds = {(await outcomes.get()).kind for _ in batch}
    assert kinds == {OutcomeKind.SUCCEEDED}
    assert receiver.connections <= 3
    assert len({seen.headers["webhook-id"] for seen in receiver.seen}) == 50


async def test_a_refused_connection_lets_the_next_in_line_try() -> None:
    port = free_port()
    async with Sending(limits=SenderLimits(connections_per_origin=1)) as sending:
        begun = [sending.begin(delivery(f"http://127.0.0.1:{port}/", number=number)) for number in range(5)]
        outcomes = await asyncio.gather(*begun)
    assert {outcome.kind for outcome in outcomes} == {OutcomeKind.REFUSED}
    assert outcomes[0].error == "the host refused the connection"


async def test_a_silent_receiver_does_not_hold_up_another_origin() -> None:
    async with Receiver(stays_silent) as silent, Receiver(says(OK)) as healthy, Sending() as sending:
        waiting = sending.begin(delivery(f"http://127.0.0.1:{silent.port}/"))
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{healthy.port}/"))
        assert outcome.kind is OutcomeKind.SUCCEEDED
        assert not waiting.done()


async def test_idle_connections_are_closed_after_a_while() -> None:
    gone = asyncio.Event()

    async def read_until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read()
        gone.set()
        writer.close()

    server = await asyncio.start_server(read_until_closed, "127.0.0.1", 0)
    async with server, Sending(limits=SenderLimits(idle_s=0.05)) as sending:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await sending.outcome_of(delivery(url, method="GET"))
        async with asyncio.timeout(DEADLINE_S):
            await gone.wait()


class BlockingServer:
    """A server whose closing is in the test's hand, not in the loop's."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(DEADLINE_S)
        self.port = self.listening.getsockname()[1]

    def serve_one(self) -> tuple[socket.socket, threading.Thread]:
        """Accept on a thread and answer one request there."""
        accepted, _ = self.listening.accept()
        thread = threading.Thread(target=self._answer, args=(accepted,))
        thread.start()
        return accepted, thread

    async def serve_first(self, sending: Sending, first: Delivery) -> socket.socket:
        """Answer a first delivery; its connection is kept by both sides."""
        outcome = sending.begin(first)
        connection, thread = await asyncio.to_thread(self.serve_one)
        await outcome
        await asyncio.to_thread(thread.join)
        return connection

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(OK)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_request_that_crossed_the_servers_goodbye_is_sent_once_more(
    is_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_seen:  # it arrives between the look and the write
        monkeypatch.setattr(
            "onbeat.delivery.sender.find_unusable", lambda connections: {one for one in connections if not one.is_open}
        )
    server = BlockingServer()
    with server.listening:
        async with Sending() as sending:
            url = f"http://127.0.0.1:{server.port}/"
            connection = await server.serve_first(sending, delivery(url, number=1))
            connection.close()  # and the loop does not get to see it before the next request is written
            second = sending.begin(delivery(url, number=2))
            again, thread = await asyncio.to_thread(server.serve_one)
            async with asyncio.timeout(DEADLINE_S):
                outcome = await second
            await asyncio.to_thread(thread.join)
            again.close()
    assert outcome.kind is OutcomeKind.SUCCEEDED


async def test_a_request_that_was_read_is_never_sent_twice() -> None:
    async with Receiver(in_turn(says(OK), says(b"", then_closes=True), says(OK))) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        assert (await sending.outcome_of(delivery(url, number=1))).kind is OutcomeKind.SUCCEEDED
        assert (await sending.outcome_of(delivery(url, number=2))).kind is OutcomeKind.NO_ANSWER
        assert len(receiver.seen) == 2


@pytest.mark.parametrize("speaks", [False, True])
async def test_a_connection_that_is_given_up_before_the_request_is_not_opened_again_and_again(speaks: bool) -> None:
    connections: list[asyncio.StreamWriter] = []
    gone = asyncio.Event()

    async def give_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.write(b"220 mail.example ESMTP\r\n" * speaks)
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def ask(_: Delivery) -> bool:  # the request waits for this, so that the host is quicker
        await gone.wait()
        return True

    server = await asyncio.start_server(give_up, "127.0.0.1", 0)
    async with server, Sending(ask_permit=ask) as sending:
        sending.clock.advance(3.0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        outcome = await sending.outcome_of(delivery(url, timeout_s=5.0))
    assert (outcome.kind, len(connections)) == (OutcomeKind.REFUSED, 1)


async def test_an_answer_before_the_whole_request_counts_and_costs_the_connection() -> None:
    body = "x" * 200_000
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # a part of the request has no room there
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(DEADLINE_S)
        port = listening.getsockname()[1]

        accepted: list[socket.socket] = []  # and kept: nobody hangs up

        def answer_unread(answer: bytes) -> None:
            connection, _ = listening.accept()
            accepted.append(connection)
            connection.recv(10)
            connection.sendall(answer)

        async with Sending() as sending:
            url = f"http://127.0.0.1:{port}/"
            for number, kind in enumerate((OutcomeKind.HTTP_STATUS, OutcomeKind.SUCCEEDED)):
                answer = OK if kind is OutcomeKind.SUCCEEDED else OK.replace(b"200", b"413")
                answering = asyncio.create_task(asyncio.to_thread(answer_unread, answer))
                outcome = await sending.outcome_of(delivery(url, number=number, body=body))
                assert outcome.kind is kind
                await answering
        assert len(accepted) == 2
        for connection in accepted:
            connection.close()


async def test_an_answer_that_nobody_asked_for_is_not_the_next_requests() -> None:
    server = BlockingServer()
    with server.listening:
        async with Sending() as sending:
            url = f"http://127.0.0.1:{server.port}/"
            connection = await server.serve_first(sending, delivery(url, number=1))
            connection.sendall(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")  # and the loop has not read it when
            second = sending.begin(delivery(url, number=2))  # the next request is written
            again, thread = await asyncio.to_thread(server.serve_one)
            async with asyncio.timeout(DEADLINE_S):
                outcome = await second
            await asyncio.to_thread(thread.join)
            again.close()
            connection.close()
    assert outcome.kind is OutcomeKind.SUCCEEDED


class _Told:
    """An owner of one exchange."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[tuple[ResponseReader, bool]] = asyncio.get_running_loop().create_future()

    def exchange_ended(self, connection: Connection, reader: ResponseReader, *, unread: bool) -> None:
        self.ended.set_result((reader, unread))

    def connection_closed(self, connection: Connection) -> None:
        """Not of interest."""


@pytest.mark.parametrize("ending", [b"", OK])
async def test_what_comes_before_one_byte_of_the_request_has_arrived_is_no_answer_to_it(ending: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # the server reads nothing, so from here on nothing arrives
            while client.send(b"x" * 65_536):
                pass
        told = _Told()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(owner=told, holder=told, connected=client), sock=client
        )
        connection.exchange(b"POST / HTTP/1.1\r\n\r\n", method="POST")
        server.sendall(ending)
        if not ending:
            server.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(DEADLINE_S):
            reader, unread = await told.ended
        assert (reader.status, reader.reusable, unread) == (None, False, not ending)
        assert not connection.is_open
        server.close()


async def test_a_reset_after_the_request_is_no_proof_that_it_was_not_read() -> None:
    server = BlockingServer()
    with server.listening:
        async with Sending() as sending:
            url = f"http://127.0.0.1:{server.port}/"
            connection = await server.serve_first(sending, delivery(url, number=1))
            second = sending.begin(delivery(url, number=2))
            await asyncio.to_thread(connection.recv, 10)  # a part of the request is read
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            async with asyncio.timeout(DEADLINE_S):
                outcome = await second
    assert outcome.kind is OutcomeKind.NO_ANSWER


# ---- permits


async def test_a_fresh_lease_needs_no_permit() -> None:
    async def refuse(_: Delivery) -> bool:
        raise AssertionError("asked")

    async with Receiver(says(OK)) as receiver, Sending(ask_permit=refuse) as sending:
        sending.clock.advance(2.0)
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/", granted=0.0))
    assert outcome.kind is OutcomeKind.SUCCEEDED


async def test_an_old_lease_is_asked_about_after_connect_and_before_the_first_byte() -> None:
    async with Receiver(says(OK)) as receiver:
        seen_when_asked: list[tuple[int, int]] = []

        async def grant(_: Delivery) -> bool:
            seen_when_asked.append((receiver.connections, len(receiver.seen)))
            return True

        async with Sending(ask_permit=grant) as sending:
            url = f"http://127.0.0.1:{receiver.port}/"
            await sending.outcome_of(delivery(url, number=1, granted=0.0))
            sending.clock.advance(2.001)
            outcome = await sending.outcome_of(delivery(url, number=2, granted=0.0))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert seen_when_asked == [(1, 1)]


@pytest.mark.parametrize("answer", [False, RuntimeError("no database")])
async def test_a_permit_that_is_refused_or_not_to_be_had_sends_nothing(answer: bool | Exception) -> None:
    async def ask(_: Delivery) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Receiver(says(OK)) as receiver, Sending(ask_permit=ask) as sending:
        sending.clock.advance(3.0)
        url = f"http://127.0.0.1:{receiver.port}/"
        assert (await sending.outcome_of(delivery(url, number=1))).kind is OutcomeKind.INTERRUPTED
        fresh = delivery(url, number=2, granted=3.0)
        assert (await sending.outcome_of(fresh)).kind is OutcomeKind.SUCCEEDED
    assert receiver.connections == 1
    assert len(receiver.seen) == 1


async def test_a_permit_that_took_long_is_asked_for_again() -> None:
    sending = Sending()
    asked = 0

    async def grant_slowly(_: Delivery) -> bool:
        nonlocal asked
        asked += 1
        sending.clock.advance(2.5 if asked < 3 else 1.0)
        return True

    sending.ask_permit = grant_slowly
    async with Receiver(says(OK)) as receiver, sending:
        sending.clock.advance(3.0)
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert asked == 3


# ---- deadlines


async def test_a_permit_that_never_comes_times_out_before_sending() -> None:
    async def ask(_: Delivery) -> bool:
        return await asyncio.Event().wait()

    async with Receiver(says(OK)) as receiver, Sending(ask_permit=ask) as sending:
        sending.clock.advance(3.0)
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/", timeout_s=0.5))
    assert outcome.kind is OutcomeKind.TIMEOUT_BEFORE_SEND
    assert receiver.seen == []


async def test_waiting_for_a_connection_counts_against_the_timeout() -> None:
    limits = SenderLimits(connections_per_origin=1, timer_step_s=0.005)
    async with Receiver(stays_silent) as receiver, Sending(limits=limits) as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        sending.begin(delivery(url, number=1))
        outcome = await sending.outcome_of(delivery(url, number=2, timeout_s=0.05))
        assert outcome.kind is OutcomeKind.TIMEOUT_BEFORE_SEND
        assert outcome.duration_us >= 50_000


@pytest.mark.parametrize("where", ["name", "tls"])
async def test_a_connection_that_does_not_stand_in_its_own_time_ends_the_attempt_long_before_the_timeout(
    where: str,
) -> None:
    async with Receiver(stays_silent) as receiver:
        resolver = StubResolver({"silent.test": None})
        target = "http://silent.test/" if where == "name" else f"https://127.0.0.1:{receiver.port}/"
        limits = SenderLimits(dial=DialLimits(resolve_s=60, connect_s=60, tls_s=60), timer_step_s=0.005)
        async with Sending(resolver=resolver, limits=limits) as sending:
            outcome = await sending.outcome_of(delivery(target, timeout_s=60, connect_timeout_s=0.05))
    assert outcome.kind == OutcomeKind.TIMEOUT_BEFORE_SEND
    assert outcome.error == "there was no connection in time"


async def test_the_time_to_connect_is_no_limit_for_the_answer() -> None:
    async def answers_late(_: Seen, writer: asyncio.StreamWriter) -> bool:
        asyncio.get_running_loop().call_later(3.1, writer.write, OK)
        return True

    async with Receiver(answers_late) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        outcome = await sending.outcome_of(delivery(url, connect_timeout_s=3.0))
    assert outcome.kind == OutcomeKind.SUCCEEDED


async def test_a_runs_own_deadline_shortens_the_timeout() -> None:
    async with Receiver(in_turn(says(OK), stays_silent)) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        await sending.outcome_of(delivery(url, number=0))  # so that the next one need not connect
        short = delivery(url, number=1, timeout_s=60, deadline=0.1)
        assert (await sending.outcome_of(short)).kind is OutcomeKind.NO_ANSWER
        over = delivery(url, number=2, timeout_s=60, deadline=0.0)
        assert (await sending.outcome_of(over)).kind is OutcomeKind.TIMEOUT_BEFORE_SEND
    assert len(receiver.seen) == 2


# ---- cancelling and closing


async def test_cancelling_ends_a_delivery_at_once_wherever_it_is() -> None:
    async with in_three_places() as places:
        sender = places.sending.sender
        for one in (places.sent, places.in_line, places.resolving):
            assert sender.cancel(one)
            assert not sender.cancel(one)
        assert {outcome.result().kind for outcome in places.outcomes} == {OutcomeKind.CANCELLED}
    assert len(places.receiver.seen) == 1


async def test_a_status_line_that_came_before_the_cancel_counts() -> None:
    async with Receiver(says(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx")) as receiver, Sending() as sending:
        one = delivery(f"http://127.0.0.1:{receiver.port}/")
        outcome = sending.begin(one)
        await receiver.arrived.wait()
        async with asyncio.timeout(DEADLINE_S):
            while not _has_status(sending, one):
                await asyncio.sleep(0)
        sending.sender.cancel(one)
        assert outcome.result().kind is OutcomeKind.SUCCEEDED


def _has_status(sending: Sending, one: Delivery) -> bool:
    connection = sending.sender._attempts[one].connection
    reader = connection._reader if connection is not None else None
    return reader is not None and reader.status is not None


async def test_closing_tells_sent_from_unsent() -> None:
    limits = SenderLimits(connections_per_origin=1)
    async with Receiver(stays_silent) as receiver:
        async with Sending(limits=limits) as sending:
            url = f"http://127.0.0.1:{receiver.port}/"
            sent = sending.begin(delivery(url, number=1))
            unsent = sending.begin(delivery(url, number=2))
            await receiver.arrived.wait()
        assert sent.result().kind is OutcomeKind.NO_ANSWER
        assert unsent.result().kind is OutcomeKind.INTERRUPTED
        after = sending.begin(delivery(url, number=3))
        assert after.result().kind is OutcomeKind.INTERRUPTED
    assert len(receiver.seen) == 1


async def test_closing_right_after_sending_begins_nothing() -> None:
    async with Receiver(says(OK)) as receiver:
        async with Sending() as sending:
            outcome = sending.begin(delivery(f"http://127.0.0.1:{receiver.port}/"))
        assert outcome.result().kind is OutcomeKind.INTERRUPTED
    assert receiver.seen == []


async def test_a_callback_that_raises_does_not_hurt_the_next_delivery() -> None:
    async with Receiver(says(OK)) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        called = asyncio.Event()

        def fail(*_: object) -> None:
            called.set()
            raise RuntimeError("a bug of the caller")

        sending.sender.send([delivery(url, number=1)], fail)
        await called.wait()
        assert (await sending.outcome_of(delivery(url, number=2))).kind is OutcomeKind.SUCCEEDED
    assert receiver.connections == 1


# ---- egress


@pytest.mark.parametrize(
    "answer",
    [
        ("93.184.216.34", "10.0.0.1"),
        ("169.254.169.254",),
        ("::ffff:127.0.0.1",),
        ("fe80::1%eth0",),
        (*(f"93.184.0.{number}" for number in range(200)), "10.0.0.1"),
    ],
)
async def test_one_denied_address_in_the_answer_denies_the_attempt(answer: tuple[str, ...]) -> None:
    async with Sending(resolver=StubResolver({"host.test": answer})) as sending:
        outcome = await sending.outcome_of(delivery("http://host.test/"))
    assert outcome.kind is OutcomeKind.BLOCKED
    assert outcome.error is not None
    assert not any(address in outcome.error for address in answer)


async def test_loopback_is_denied_by_the_default_rules() -> None:
    rules = EgressRules(allow_http=True, ports=None)
    async with Receiver(says(OK)) as receiver:
        resolver = StubResolver({"127.0.0.1.nip.io": ("127.0.0.1",)})
        async with Sending(rules=rules, resolver=resolver) as sending:
            outcome = await sending.outcome_of(delivery(f"http://127.0.0.1.nip.io:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.BLOCKED
    assert receiver.connections == 0


async def test_a_name_is_resolved_once_per_connection() -> None:
    resolver = StubResolver({"host.test": ("127.0.0.1",)})
    async with Receiver(says(OK)) as receiver, Sending(resolver=resolver) as sending:
        for number in range(3):
            await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/", number=number))
    assert resolver.asked == ["host.test"]
    assert receiver.seen[0].headers["host"] == f"host.test:{receiver.port}"


@pytest.mark.parametrize("answers", [{}, {"host.test": ()}, {"host.test": None}])
async def test_names_that_do_not_resolve_are_dns_errors(answers: dict[str, tuple[str, ...] | None]) -> None:
    async with Sending(resolver=StubResolver(dict(answers))) as sending:
        outcome = await sending.outcome_of(delivery("http://host.test/"))
    assert outcome.kind is OutcomeKind.DNS


@pytest.mark.parametrize("first", ["::1", "127.0.0.3"])
async def test_the_next_address_is_tried_when_the_first_does_not_connect(first: str) -> None:
    resolver = StubResolver({"host.test": (first, "127.0.0.1")})
    async with Receiver(says(OK)) as receiver, Sending(resolver=resolver) as sending:
        outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.SUCCEEDED
    assert receiver.connections == 1


async def test_a_black_hole_costs_its_own_budget_only() -> None:
    limits = SenderLimits(dial=DialLimits(connect_s=0.1))
    with socket.socket() as hole:
        hole.bind(("127.0.0.2", 0))
        hole.listen(0)
        port = hole.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:  # a full backlog drops what comes next without a word
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.2", port))
        resolver = StubResolver({"host.test": ("127.0.0.2", "127.0.0.1"), "hole.test": ("127.0.0.2",)})
        async with Receiver(says(OK), port=port) as receiver, Sending(resolver=resolver, limits=limits) as sending:
            assert (await sending.outcome_of(delivery(f"http://host.test:{port}/"))).kind is OutcomeKind.SUCCEEDED
            outcome = await sending.outcome_of(delivery(f"http://hole.test:{port}/"))
        for filler in fillers:
            filler.close()
    assert outcome.kind is OutcomeKind.TIMEOUT_BEFORE_SEND
    assert receiver.connections == 1


async def test_no_other_address_is_tried_once_bytes_were_sent() -> None:
    resolver = StubResolver({"host.test": ("127.0.0.1", "127.0.0.1")})
    async with Receiver(says(b"", then_closes=True)) as receiver, Sending(resolver=resolver) as sending:
        outcome = await sending.outcome_of(delivery(f"http://host.test:{receiver.port}/"))
    assert outcome.kind is OutcomeKind.NO_ANSWER
    assert receiver.connections == 1
