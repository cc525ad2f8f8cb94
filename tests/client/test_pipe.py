"""The pipe between a node and a delivery process: what is said at one end is heard at the other, field by field."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from onbeat.client.frames import Frames
from onbeat.client.pipe import (
    Begin,
    Call,
    Cancelled,
    Claim,
    Counted,
    Doubted,
    Drain,
    Extend,
    Granted,
    Permit,
    PipeLink,
    ReadClock,
    Refused,
    Release,
    Report,
    Reported,
    Statuses,
    Word,
)
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.ids import RunKey
from onbeat.domain.model import QueueTarget, WebhookTarget
from onbeat.domain.outcome import Outcome, OutcomeKind, Response
from onbeat.domain.states import RunState, Trigger
from onbeat.services.assignment import Assignment
from onbeat.store.values import Finish, Finished, FinishResult, LeaseStatus

KEY = RunKey((1 << 63) - 1, 1_800_000_000_000_000)
TOKEN = bytes(range(16))


def assignment(target: WebhookTarget | QueueTarget, **changed: object) -> Assignment:
    fields: dict[str, object] = {
        "key": KEY,
        "token": TOKEN,
        "attempt": 3,
        "trigger": Trigger.CATCH_UP,
        "job_name": "näme\u2028",
        "job_key": "key",
        "job_version": 7,
        "namespace": "default",
        "target": target,
        "timeout_s": 1.5,
        "at_most_once": True,
        "payload": '{"a": [1, "\\u0000"]}',
        "queue": None,
        "lease_until": 1,
        "granted_at": 2,
        "deadline_at": 3,
        "late_after": 4,
        "secrets": ("whsec_a", "whsec_b"),
        "connect_timeout_s": 0.25,
        "callback_url": "https://example.com/v1/runs/x",
        "granted_boottime": 12345.678901,
        "starts_at": 5,
    }
    return Assignment(**(fields | changed))  # type: ignore[arg-type]


ASSIGNMENTS = [
    assignment(WebhookTarget(url="https://example.com/", method="PUT", headers={"x-a": "b"}, body="é", payload=None)),
    assignment(WebhookTarget(url="https://example.com/")),
    assignment(QueueTarget(queue="mail", payload="[]"), queue="mail"),
    assignment(
        WebhookTarget(url="https://example.com/"), job_key=None, payload=None, deadline_at=None, secrets=(),
        connect_timeout_s=None, callback_url=None, starts_at=None,
    ),
]  # fmt: skip
FINISHES = [
    Finish(
        KEY, TOKEN, Outcome(OutcomeKind.SUCCEEDED, 1, 2, status=200, response=Response((("a", "b"),), b"\xff\0", True))
    ),
    Finish(KEY, TOKEN, Outcome(OutcomeKind.HTTP_STATUS, 1, 2, status=503, error="busy", retry_after_s=0.5)),
]
FINISHED = [
    Finished(KEY, FinishResult.ENDED, RunState.SUCCEEDED),
    Finished(KEY, FinishResult.WILL_RETRY, RunState.PENDING, ready_at=9, paused_job="why"),
]


@contextlib.asynccontextmanager
async def pipe() -> AsyncIterator[tuple[Frames[Call], Frames[Word]]]:
    ours, theirs = socket.socketpair()
    node: Frames[Call] = await Frames.open(ours, reads=Call)
    worker: Frames[Word] = await Frames.open(theirs, reads=Word)
    try:
        yield node, worker
    finally:
        node.close()
        worker.close()


@contextlib.asynccontextmanager
async def answering(answer: Callable[[Call], Word | None]) -> AsyncIterator[tuple[PipeLink, Frames[Call], list[Word]]]:
    """A link whose calls are answered by `answer`, and what the node says by itself."""
    words: list[Word] = []
    async with pipe() as (node, worker):

        async def serve() -> None:
            async for call in node.read_all():
                if (word := answer(call)) is not None:
                    await node.send(word)

        link = PipeLink(worker)
        tasks = [asyncio.create_task(serve()), asyncio.create_task(link.listen(words.append))]
        try:
            yield link, node, words
        finally:
            node.close()
            await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    "call",
    [
        Claim(1, None, 500, 20.0),
        Claim(2, "mail", 1, 0.0),
        Extend(3, [(KEY, TOKEN)]),
        Permit(4, []),
        Report(5, FINISHES),
        Release(6, [(KEY, TOKEN), (RunKey(0, 0), b"")]),
        ReadClock(7),
    ],
)
async def test_calls_arrive_as_they_were_made(call: Call) -> None:
    async with pipe() as (node, worker):
        await worker.send(call)
        async for heard in node.read_all():
            assert heard == call
            break


@pytest.mark.parametrize(
    "word",
    [
        Begin(50, '{"workers": 50}'),
        Granted(1, ASSIGNMENTS),
        Statuses(2, list(LeaseStatus)),
        Reported(3, FINISHED),
        Counted(4, 1 << 62),
        Refused(5, "the database does not answer"),
        Cancelled(KEY),
        Doubted(KEY),
        Drain(),
    ],
)
async def test_words_arrive_as_they_were_said(word: Word) -> None:
    async with pipe() as (node, worker):
        await node.send(word)
        async for heard in worker.read_all():
            assert heard == word
            break


async def test_a_frame_larger_than_every_buffer_arrives_whole() -> None:
    many = [assignment(WebhookTarget(url="https://example.com/", body="x" * 100_000)) for _ in range(100)]
    async with pipe() as (node, worker):
        sending = asyncio.create_task(node.send(Granted(1, many)))
        async for heard in worker.read_all():
            assert heard == Granted(1, many)
            break
        await sending


async def test_answers_find_their_calls_in_whatever_order_they_come() -> None:
    held: list[Word] = []

    def answer(call: Call) -> Word | None:
        if isinstance(call, Claim):
            held.append(Granted(call.number, ASSIGNMENTS[:1]))
            return None
        assert isinstance(call, Extend)
        return Statuses(call.number, [LeaseStatus.LIVE])

    async with answering(answer) as (link, node, _words):
        claiming = asyncio.create_task(link.claim(queue=None, limit=1, wait_s=20))
        assert await link.extend([(KEY, TOKEN)]) == [LeaseStatus.LIVE]
        assert not claiming.done()
        await node.send(held[0])
        assert await claiming == ASSIGNMENTS[:1]


async def test_each_call_is_answered_with_what_it_asks_for() -> None:
    def answer(call: Call) -> Word:
        match call:
            case Claim(number):
                return Granted(number, ASSIGNMENTS)
            case Extend(number) | Permit(number):
                return Statuses(number, [LeaseStatus.CANCEL])
            case Report(number):
                return Reported(number, FINISHED)
            case Release(number):
                return Counted(number, 2)
            case ReadClock(number):
                return Counted(number, 1_800_000_000_000_000)

    async with answering(answer) as (link, _node, _words):
        assert await link.claim(queue=None, limit=4, wait_s=0) == ASSIGNMENTS
        assert await link.extend([(KEY, TOKEN)]) == [LeaseStatus.CANCEL]
        assert await link.permit([(KEY, TOKEN)]) == [LeaseStatus.CANCEL]
        assert await link.finish(FINISHES) == FINISHED
        assert await link.release([(KEY, TOKEN)]) == 2
        assert await link.read_clock() == 1_800_000_000_000_000


async def test_a_call_that_failed_at_the_node_may_be_made_again() -> None:
    async with answering(lambda call: Refused(call.number, "the database does not answer")) as (link, _node, _words):
        with pytest.raises(StoreUnavailable, match="the database does not answer"):
            await link.finish(FINISHES)


async def test_calls_that_wait_fail_when_the_node_is_gone_and_so_do_later_ones() -> None:
    async with answering(lambda _call: None) as (link, node, _words):
        waiting = asyncio.create_task(link.claim(queue=None, limit=1, wait_s=20))
        await asyncio.sleep(0)
        node.close()
        with pytest.raises(StoreUnavailable, match="gone"):
            await waiting
        with pytest.raises(StoreUnavailable, match="gone"):
            await link.extend([(KEY, TOKEN)])


async def test_what_the_node_says_by_itself_reaches_the_listener_in_order() -> None:
    said: list[Word] = [Begin(1, "{}"), Cancelled(KEY), Doubted(KEY), Drain()]
    async with answering(lambda call: Counted(call.number, 1)) as (link, node, words):
        for word in said:
            node.post(word)
        await link.read_clock()  # answered after all of them
        assert words == said
