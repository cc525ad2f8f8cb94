"""A worker's link to the real API, at the sizes that receivers can make of what they answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fastapi import FastAPI

from onbeat.app.api_server import ApiServer
from onbeat.client.link import HttpLink
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind, Response
from onbeat.loops.worker import REPORT_BATCH
from onbeat.store.values import Finish, FinishResult

LARGEST = Response(headers=(("x", "\xff" * 16_000),), body=b"x" * 16_384, truncated=True)
"""What is kept at most of an answer: its head in letters that take two bytes in JSON, and as much of its body."""


@pytest.fixture
async def link(app: FastAPI) -> AsyncIterator[HttpLink]:
    server = ApiServer("127.0.0.1", 0)
    url = await server.serve(app)
    try:
        async with HttpLink(url, key=None, worker="worker") as link:
            yield link
    finally:
        await server.stop()


async def test_a_full_report_of_the_largest_answers_is_taken(link: HttpLink) -> None:
    outcome = Outcome(OutcomeKind.HTTP_STATUS, 1_800_000_000_000_000, 1, status=500, error="busy", response=LARGEST)
    items = [Finish(RunKey(number + 1, 1_800_000_000_000_000), bytes(16), outcome) for number in range(REPORT_BATCH)]
    answers = await link.finish(items)
    assert [answer.key for answer in answers] == [item.key for item in items]
    assert {answer.result for answer in answers} == {FinishResult.LEASE_LOST}


async def test_a_report_of_nothing_is_one_call(link: HttpLink) -> None:
    assert await link.finish([]) == []
