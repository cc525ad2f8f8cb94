"""What counts and what does not, whatever the receiver sends. Each row of this file was once somebody's bug report."""

from __future__ import annotations

import asyncio

import pytest
from tests.delivery.receivers import (
    OK,
    Behaviour,
    Receiver,
    Sending,
    delivery,
    in_turn,
    never_ends,
    resets,
    says,
    stays_silent,
)

from onbeat.delivery.response import MAX_BODY_KEPT
from onbeat.domain.outcome import Outcome, OutcomeKind

SUCCEEDED, BAD, NO_ANSWER = OutcomeKind.SUCCEEDED, OutcomeKind.BAD_RESPONSE, OutcomeKind.NO_ANSWER
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"


async def answer_of(behaviour: Behaviour, *, timeout_s: float = 10.0, method: str = "POST") -> tuple[Outcome, Receiver]:
    async with Receiver(behaviour) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        outcome = await sending.outcome_of(delivery(url, timeout_s=timeout_s, method=method))
    assert len(receiver.seen) == 1, "sent more than once"
    return outcome, receiver


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-16\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=klingon\r\ncontent-length: 4\r\n\r\n\x00\xff\xfe\x80",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\n\r\nplain text",
        b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 299 Whatever\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"error":"x"}',
        b"HTTP/1.1 200 \xff\xfe\x00\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        EARLY_HINTS * 10 + OK,
        b"HTTP/1.1 200 OK\r\n" + b"x-filler: aaaaaaaaaaaaaaaaa\r\n" * 2_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
        OK + OK,
        OK + b"\x00garbage",
    ],
)
async def test_a_2xx_status_line_is_success_whatever_follows(answer: bytes) -> None:
    outcome, _ = await answer_of(says(answer, then_closes=True))
    assert outcome.kind is SUCCEEDED
    assert outcome.error is None
    assert outcome.response is not None


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>hello</html>",
        b"HTTP/1.1 099 Low\r\n\r\n",
        b"HTTP/1.1 600 High\r\n\r\n",
        b"HTTP/1.1 999 High\r\n\r\n",
        b"HTTP/1.1 20 Short\r\n\r\n",
        b"HTTP/1.1 2000 Long\r\n\r\n",
        b"HTTP/1.1 2OO OK\r\n\r\n",
        b"HTTP/1.1200 OK\r\n\r\n",
        b"HTTP/1.1 20",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"\x00\xff",
        b"\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        EARLY_HINTS * 100 + OK,
        b"HTTP/1.1 103 Early Hints\r\nx: " + b"a" * 20_000 + b"\r\n\r\n" + OK,
        b"HTTP/1.1 " + b"2" * 20_000,
    ],
)
async def test_what_is_no_http_answer_is_a_bad_response(answer: bytes) -> None:
    outcome, _ = await answer_of(says(answer, then_closes=True))
    assert outcome.kind is BAD
    assert outcome.status is None
    assert outcome.error


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    location = f"HTTP/1.1 {status} Moved\r\nlocation: /else\x1b[31m\r\ncontent-length: 0\r\n\r\n".encode()
    outcome, _ = await answer_of(says(location, then_closes=True))
    assert (outcome.kind, outcome.status) == (OutcomeKind.REDIRECT, status)
    assert outcome.error is not None
    assert str(status) in outcome.error
    assert "\x1b" not in outcome.error


async def test_a_redirect_names_status_and_location() -> None:
    outcome, _ = await answer_of(
        says(b"HTTP/1.1 302 F\r\nLocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n")
    )
    assert outcome.error == (
        "the receiver answered 302 with Location http://169.254.169.254/; redirects are not followed"
    )


@pytest.mark.parametrize("status", [101, 400, 404, 408, 410, 425, 429, 500, 503, 599])
async def test_other_statuses_are_reported_as_they_are(status: int) -> None:
    outcome, _ = await answer_of(
        says(f"HTTP/1.1 {status} X\r\ncontent-length: 3\r\n\r\nwhy".encode(), then_closes=True)
    )
    assert (outcome.kind, outcome.status) == (OutcomeKind.HTTP_STATUS, status)


async def test_retry_after_is_resolved_against_the_databases_time() -> None:
    answer = b"HTTP/1.1 429 Slow\r\nRetry-After: Fri, 15 Jan 2027 08:01:00 GMT\r\ncontent-length: 0\r\n\r\n"
    assert (await answer_of(says(answer)))[0].retry_after_s == 60.0
    assert (await answer_of(says(answer.replace(b"429", b"200"))))[0].retry_after_s is None
    assert (await answer_of(says(b"HTTP/1.1 503 X\r\nretry-after: -1\r\n\r\n", then_closes=True)))[
        0
    ].retry_after_s is None


@pytest.mark.parametrize(
    ("beginning", "repeated"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n", b"x" * 65_536),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65_536 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"\x1f\x8b" * 1_000),
        (b"HTTP/1.1 200 OK\r\n", b"x-more: headers\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-more: trailers\r\n" * 100),
    ],
)
async def test_an_endless_answer_is_cut_and_its_status_counts(beginning: bytes, repeated: bytes) -> None:
    outcome, _ = await answer_of(never_ends(beginning, repeated))
    assert (outcome.kind, outcome.status) == (SUCCEEDED, 200)
    assert outcome.response is not None
    assert outcome.response.truncated
    assert len(outcome.response.body) <= MAX_BODY_KEPT
    assert len(outcome.response.headers) <= 100


async def test_endless_interim_answers_are_no_answer() -> None:
    outcome, _ = await answer_of(never_ends(b"", EARLY_HINTS * 50))
    assert outcome.kind is BAD


async def test_a_body_is_kept_up_to_16_kib_and_says_when_there_was_more() -> None:
    exact = b"HTTP/1.1 500 X\r\ncontent-length: 16384\r\n\r\n" + b"x" * 16_384
    more = b"HTTP/1.1 500 X\r\ncontent-length: 16385\r\n\r\n" + b"x" * 16_385
    for answer, truncated in ((exact, False), (more, True)):
        outcome, _ = await answer_of(says(answer))
        assert outcome.response is not None
        assert (len(outcome.response.body), outcome.response.truncated) == (16_384, truncated)


@pytest.mark.parametrize("behaviour", [stays_silent, says(b"HTTP/1.1 2")])
async def test_no_status_line_in_time_leaves_the_effect_unknown(behaviour: Behaviour) -> None:
    outcome, _ = await answer_of(behaviour, timeout_s=0.5)
    assert outcome.kind is NO_ANSWER


@pytest.mark.parametrize("behaviour", [resets, says(b"", then_closes=True)])
async def test_a_connection_that_ends_without_a_byte_leaves_the_effect_unknown(behaviour: Behaviour) -> None:
    outcome, _ = await answer_of(behaviour)
    assert outcome.kind is NO_ANSWER


@pytest.mark.parametrize(
    ("status_line", "kind"), [(b"HTTP/1.1 200 OK\r\n", SUCCEEDED), (b"HTTP/1.1 503 X\r\n", OutcomeKind.HTTP_STATUS)]
)
async def test_a_slow_body_ends_with_the_deadline_and_the_status_counts(status_line: bytes, kind: OutcomeKind) -> None:
    outcome, _ = await answer_of(says(status_line + b"content-length: 1000\r\n\r\nx"), timeout_s=0.5)
    assert outcome.kind is kind
    assert outcome.response is not None
    assert outcome.response.truncated
    assert outcome.response.body == b"x"


async def test_one_byte_at_a_time_is_read_like_any_other_answer() -> None:
    async def drips(_: object, writer: asyncio.StreamWriter) -> bool:
        for byte in EARLY_HINTS + b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        return True

    async with Receiver(drips) as receiver, Sending() as sending:
        for number in range(2):
            outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/", number=number))
            assert (outcome.kind, outcome.response and outcome.response.body) == (SUCCEEDED, b"ok")
    assert receiver.connections == 1


async def test_the_length_in_an_answer_to_head_is_not_waited_for() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"
    async with Receiver(says(answer)) as receiver, Sending() as sending:
        for number in range(2):
            one = delivery(f"http://127.0.0.1:{receiver.port}/", method="HEAD", number=number)
            assert (await sending.outcome_of(one)).kind is SUCCEEDED
    assert receiver.connections == 1


@pytest.mark.parametrize(
    "doubtful",
    [
        OK + OK,
        OK + b"x",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_with_any_doubt_about_its_end_is_not_used_again(doubtful: bytes) -> None:
    async with Receiver(in_turn(says(doubtful), says(OK))) as receiver, Sending() as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        assert (await sending.outcome_of(delivery(url, number=1))).kind is SUCCEEDED
        assert (await sending.outcome_of(delivery(url, number=2))).kind is SUCCEEDED
    assert [seen.connection for seen in receiver.seen] == [1, 2]
