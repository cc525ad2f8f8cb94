"""Any bytes whatever, in any pieces, end in one outcome, and their connection is used again only where that is certain.

The invariants stand in tests/fuzz/invariants.py; `python -m tests.fuzz.run` looks for longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import socket
import ssl
import sys
import termios
from collections.abc import Sequence

import httptools
import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.delivery.receivers import DEADLINE_S, Receiver, Seen, Sending, delivery, in_turn
from tests.fuzz import pieces
from tests.fuzz.invariants import (
    READABLE,
    UNREADABLE,
    check_response,
    check_retry_after,
    check_signature,
    check_tunnel,
    check_url,
    read_in_pieces,
)
from tests.fuzz.strict_response import response_end

from onbeat.delivery.response import ResponseReader
from onbeat.domain.outcome import Outcome, OutcomeKind

ANSWERS = st.lists(st.sampled_from(pieces.RESPONSE) | st.binary(max_size=20), max_size=12)
CUTS = st.lists(st.integers(0, 65_535), max_size=4)
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # making the real one costs more than an exchange, and none is spoken
_ESTABLISHED = 1  # TCP's state: the other side has neither hung up nor reset the connection
_STEPS_TO_READ = 10  # of the loop: what the kernel has is read by then

WELL_FORMED = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nContent-Length:0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=y\r\n\r\n\r\n000\r\na: b\r\nc:\r\n\r\n",
    b"HTTP/1.1 103 Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 100 Go\r\n\r\nHTTP/1.1 503 No\r\ncontent-length: 1\r\n\r\nx",
]
DOUBTFUL = [
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\r",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nx",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive\r\nconnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\nconnection: keep-alive\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: Keep-Alive, Close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n folded\r\n\r\nok",
    b"HTTP/1.1 100 Go\r\nno colon\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + b"a: b\r\n" * 200 + b"\r\n",
]


@given(ANSWERS, CUTS, st.sampled_from(["POST", "HEAD"]))
@settings(max_examples=600, deadline=None)
def test_any_answer_means_one_thing_however_it_is_cut(answer: list[bytes], cuts: list[int], method: str) -> None:
    check_response(b"".join(answer), method=method, cuts=cuts)


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("answer", WELL_FORMED + DOUBTFUL)
def test_an_answer_cut_at_every_place_means_the_same(answer: bytes, method: str) -> None:
    for cut in range(len(answer) + 1):
        check_response(answer, method=method, cuts=[cut])
    check_response(answer, method=method, cuts=range(len(answer)))


HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"Date", b"x-a", b"Content-Type", b"retry-after", b"Connection", b"Content-Encoding"]),
        st.sampled_from([b"", b"1", b"close", b"keep-alive", b"upgrade", b"caf\xe9", b"a" * 3_000]),
    ),
    max_size=4,
)


@given(
    st.sampled_from([b"200 OK", b"201", b"101 Up", b"204 No", b"304 Not", b"404 Not Found", b"503 "]),
    HEADERS,
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_a_head_that_was_seen_before_means_what_it_meant(
    status: bytes, headers: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    length = data.draw(st.sampled_from([0, 1, 5, 16_384, 16_385, 70_000]))
    lines = [b"HTTP/1.1 " + status, *(b"%b: %b" % header for header in headers), b"content-length: %d" % length]
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    bodies = [b"b" * length, b"b" * (length + 1), b"b" * max(length - 1, 0), b""]
    for body in [*data.draw(st.permutations(bodies)), *bodies]:
        for method in ("POST", "HEAD"):
            check_response(head + body, method=method, cuts=[len(head), len(head) + 1, 20])


def test_answers_leave_nothing_to_the_garbage_collector() -> None:
    """What it has to find it looks for on the event loop: 10,000 readers and their parsers take it half a second."""
    gc.collect()
    before = sum(isinstance(found, ResponseReader | httptools.HttpResponseParser) for found in gc.get_objects())
    for number in range(50):
        for answer in WELL_FORMED + DOUBTFUL:
            head = answer.replace(b"\r\n", b"\r\nx-number: %d\r\n" % (number // 2), 1)  # each is seen twice
            read_in_pieces([head], method="POST")
    after = sum(isinstance(found, ResponseReader | httptools.HttpResponseParser) for found in gc.get_objects())
    assert after == before


def test_the_end_of_an_answer_is_certain_or_the_connection_is_given_up() -> None:
    for answer in WELL_FORMED:
        assert read_in_pieces([answer], method="POST").is_clean, answer
        assert response_end(answer, method="POST") == len(answer), answer
    for answer in DOUBTFUL:
        assert not read_in_pieces([answer], method="POST").is_clean, answer
    for body in (b"0\r\n\r\n", b"\r\n", b"x"):  # HEAD has no body, whatever its head says
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        assert read_in_pieces([head], method="HEAD").is_clean
        assert not read_in_pieces([head + body], method="HEAD").is_clean


@given(st.lists(st.sampled_from(pieces.URL) | st.text(max_size=6), max_size=8))
@settings(max_examples=300, deadline=None)
def test_a_url_means_one_thing_to_everybody(parts: list[str]) -> None:
    check_url("".join(parts))


@given(st.lists(st.sampled_from(pieces.RETRY_AFTER) | st.text(max_size=6), max_size=8))
@settings(max_examples=300, deadline=None)
def test_retry_after_is_seconds_or_nothing(parts: list[str]) -> None:
    check_retry_after("".join(parts))


@given(st.lists(st.sampled_from(pieces.SIGNATURE) | st.binary(max_size=6), max_size=10))
@settings(max_examples=200, deadline=None)
def test_only_what_was_signed_is_accepted(parts: list[bytes]) -> None:
    check_signature(b"".join(parts))


@given(st.lists(st.sampled_from(pieces.TUNNEL) | st.binary(max_size=6), max_size=8))
@settings(max_examples=200, deadline=None)
def test_only_a_whole_2xx_opens_a_tunnel(parts: list[bytes]) -> None:
    check_tunnel(b"".join(parts))


# ---- over real sockets


class TwoAnswers:
    """Says any bytes to the first request, in pieces; to those that follow, 200 and the id that they carried."""

    def __init__(self, answer: Sequence[bytes], *, closes: bool) -> None:
        self.all_there = asyncio.Event()
        self.behave = in_turn(self._first, self._echo)
        self._answer = answer
        self._closes = closes

    async def _first(self, _: Seen, writer: asyncio.StreamWriter) -> bool:
        try:
            for piece in self._answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            await _until_arrived(writer)
        finally:
            self.all_there.set()
        return not self._closes

    @staticmethod
    async def _echo(seen: Seen, writer: asyncio.StreamWriter) -> bool:
        run_id = seen.headers["webhook-id"].encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(run_id), run_id))
        return True


async def _until_arrived(writer: asyncio.StreamWriter) -> None:
    """What is acknowledged has reached the other side's kernel; on a busy machine loopback takes its time as well."""
    with (
        contextlib.suppress(OSError),
        socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as watched,
    ):
        while watched.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED:
            held = int.from_bytes(fcntl.ioctl(watched, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
            if not held and not writer.transport.get_write_buffer_size():
                break
            await asyncio.sleep(0.001)


async def exchange_twice(answer: Sequence[bytes], *, closes: bool, method: str) -> tuple[Outcome, Receiver]:
    """The outcome of the first of two deliveries; the second has to get its own answer, whatever the first one was."""
    answers = TwoAnswers(answer, closes=closes)
    outcomes: list[Outcome] = []
    async with Receiver(answers.behave) as receiver, Sending(tls=NO_TLS) as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        first = delivery(url, number=1, job_id=1, method=method)
        sending.sender.send([first], lambda _, outcome: outcomes.append(outcome))
        async with asyncio.timeout(DEADLINE_S):
            await answers.all_there.wait()
            for _ in range(_STEPS_TO_READ):
                await asyncio.sleep(0)
            if not closes:
                sending.sender.cancel(first)  # many answers promise more than comes
            while not outcomes:
                await asyncio.sleep(0.001)
            if not read_in_pieces([b"".join(answer)], method=method).is_clean:
                while sending.sender._connections._pool_of:  # given up at once, not when the next request finds it
                    await asyncio.sleep(0.001)
        second = await sending.outcome_of(delivery(url, number=2, job_id=2))
        assert second.kind is OutcomeKind.SUCCEEDED
        assert second.response is not None
        assert second.response.body.decode() == receiver.seen[1].headers["webhook-id"] != ""
    (first_outcome,) = outcomes
    assert first_outcome.kind in UNREADABLE | READABLE | {OutcomeKind.CANCELLED}
    assert len(receiver.seen) == 2, "a request was sent twice"
    own = asyncio.current_task()
    async with asyncio.timeout(DEADLINE_S):
        while asyncio.all_tasks() - {own}:
            await asyncio.sleep(0.001)
    return first_outcome, receiver


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
@given(answer=ANSWERS, closes=st.booleans(), method=st.sampled_from(["POST", "HEAD"]))
@settings(max_examples=60, deadline=None)
def test_whatever_was_answered_the_next_request_gets_its_own_answer(
    new_loop: type[asyncio.AbstractEventLoop], answer: list[bytes], closes: bool, method: str
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        outcome, receiver = runner.run(exchange_twice(answer, closes=closes, method=method))
    expected = read_in_pieces([b"".join(answer)], method=method)
    assert outcome.status == expected.status
    if not expected.is_clean:
        assert [seen.connection for seen in receiver.seen] == [1, 2]


@pytest.mark.parametrize("late", [b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", b"\r\n", b"x"])
@pytest.mark.parametrize("answer", WELL_FORMED)
async def test_a_second_answer_is_not_taken_for_the_answer_to_the_next_request(answer: bytes, late: bytes) -> None:
    _, receiver = await exchange_twice([answer, late], closes=False, method="POST")
    assert [seen.connection for seen in receiver.seen] == [1, 2]


@pytest.mark.parametrize("answer", WELL_FORMED)
async def test_a_certain_end_keeps_the_connection(answer: bytes) -> None:
    _, receiver = await exchange_twice([answer], closes=False, method="POST")
    assert [seen.connection for seen in receiver.seen] == [1, 1]
