"""Any bytes whatever end in an outcome, never in an exception, and leave nothing behind."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.delivery.receivers import NOW, Receiver, Sending, delivery, says

from onbeat.delivery.attempt import read_outcome
from onbeat.delivery.response import MAX_BODY_KEPT, MAX_HEADER_LINES, ResponseReader
from onbeat.domain.outcome import OutcomeKind

PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 C\r\n", b"HTTP/1.0 404\r\n", b"HTTP/1.1 101 S\r\n", b"HTTP/1.1 ",
        b"\r\n", b"\n", b"content-length: 5\r\n", b"content-length: 0\r\n", b"transfer-encoding: chunked\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n", b"zz\r\n", b"hello", b"connection: upgrade\r\nupgrade: h2c\r\n", b"\x00", b": ", b" folded\r\n",
        b"x" * 20_000, b"a: b\r\n" * 150,
    ]
)  # fmt: skip
ANSWERS = st.lists(PIECES | st.binary(max_size=20), max_size=12)
READABLE = {OutcomeKind.SUCCEEDED, OutcomeKind.HTTP_STATUS, OutcomeKind.REDIRECT}
UNREADABLE = {OutcomeKind.BAD_RESPONSE, OutcomeKind.NO_ANSWER}


@given(ANSWERS, st.sampled_from(["POST", "HEAD"]))
@settings(max_examples=400)
def test_any_bytes_end_in_an_outcome(pieces: list[bytes], method: str) -> None:
    reader = ResponseReader(method=method)
    for piece in pieces:
        if reader.feed(piece):
            break
    reader.end()
    outcome = read_outcome(reader, started_at=NOW, duration_us=1, now=NOW)
    assert reader.finished
    assert outcome.kind in (UNREADABLE if outcome.status is None else READABLE)
    if outcome.response is not None:
        assert len(outcome.response.body) <= MAX_BODY_KEPT
        assert len(outcome.response.headers) <= MAX_HEADER_LINES


@given(ANSWERS)
@settings(max_examples=200)
def test_how_bytes_are_cut_does_not_change_what_they_mean(pieces: list[bytes]) -> None:
    answer = b"".join(pieces)[:2_000]
    whole, single = ResponseReader(method="POST"), ResponseReader(method="POST")
    whole.feed(answer)
    for at in range(len(answer)):
        if single.feed(answer[at : at + 1]):
            break
    for reader in (whole, single):
        reader.end()
    assert (whole.status, whole.problem is None) == (single.status, single.problem is None)


@given(ANSWERS)
@settings(max_examples=60)
def test_any_bytes_on_a_socket_free_their_connection(pieces: list[bytes]) -> None:
    async def exchange() -> None:
        async with Receiver(says(b"".join(pieces), then_closes=True)) as receiver, Sending() as sending:
            outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/"))
            assert outcome.kind in UNREADABLE | READABLE

    asyncio.run(exchange())
