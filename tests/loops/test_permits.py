"""Permits: whoever asks while one question is under way shares the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.ids import RunKey
from onbeat.loops.permits import Permits
from onbeat.services.assignment import Assignment, Held
from onbeat.store.values import Finish, Finished, LeaseStatus


class Link:
    """Answers once it may: cancelled for odd jobs, or with an error."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.is_down = False

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        self.asked.append([key.job_id for key, _token in held])
        await self.may_answer.wait()
        if self.is_down:
            raise StoreUnavailable
        return [LeaseStatus.CANCEL if key.job_id % 2 else LeaseStatus.LIVE for key, _token in held]

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        raise NotImplementedError

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        raise NotImplementedError

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        raise NotImplementedError

    async def release(self, held: Sequence[Held]) -> int:
        raise NotImplementedError


def asking(permits: Permits, numbers: Sequence[int]) -> list[asyncio.Task[bool]]:
    return [asyncio.create_task(permits.ask((RunKey(number, 0), b""))) for number in numbers]


async def test_those_who_ask_meanwhile_share_the_next_question() -> None:
    link = Link()
    permits = Permits(link)
    first = asking(permits, [0, 1])
    while not link.asked:
        await asyncio.sleep(0)
    later = asking(permits, [2, 3, 4])
    await asyncio.sleep(0)
    later.pop().cancel()  # and who gives up is not asked about
    await asyncio.sleep(0)
    link.may_answer.set()
    assert await asyncio.gather(*first, *later) == [True, False, True, False]
    assert link.asked == [[0, 1], [2, 3]]


async def test_everybody_of_a_question_that_fails_hears_it_and_the_next_one_is_asked() -> None:
    link = Link()
    permits = Permits(link)
    link.may_answer.set()
    link.is_down = True
    for task in asking(permits, [0, 2]):
        with pytest.raises(StoreUnavailable):
            await task
    link.is_down = False
    assert await permits.ask((RunKey(4, 0), b""))
