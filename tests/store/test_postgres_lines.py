"""Calls for one job form a line: they go together, fail alone, and do not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onbeat.domain.errors import StateConflict, StoreUnavailable
from onbeat.store.postgres import lines as lines_module
from onbeat.store.postgres.lines import MOST_TOGETHER, Lines

JOB = 1


async def double(_job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
    await asyncio.sleep(0)
    return [2 * number for number in numbers]


async def test_those_who_came_meanwhile_go_together_and_in_order() -> None:
    went: list[tuple[int, ...]] = []

    async def work(job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        went.append(tuple(numbers))
        return await double(job_id, numbers)

    lines = Lines(work)
    answers = await asyncio.gather(*(lines.call(JOB, number) for number in range(500)))
    assert answers == [2 * number for number in range(500)]
    assert [number for group in went for number in group] == list(range(500))
    assert max(len(group) for group in went) == MOST_TOGETHER
    assert len(went) <= 500 // MOST_TOGETHER + 2
    assert not lines._lines


async def test_jobs_do_not_wait_for_each_other() -> None:
    both = asyncio.Barrier(2)

    async def work(job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        await both.wait()
        return await double(job_id, numbers)

    lines = Lines(work)
    async with asyncio.timeout(10):
        assert await asyncio.gather(*(lines.call(job_id, job_id) for job_id in (1, 2))) == [2, 4]


async def test_an_answer_that_is_an_error_is_one_callers_own() -> None:
    async def work(_job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        return [StateConflict(str(number)) if number % 2 else number for number in numbers]

    lines = Lines(work)
    answers = await asyncio.gather(*(lines.call(JOB, number) for number in range(4)), return_exceptions=True)
    assert [repr(answer) for answer in answers] == ["0", "StateConflict('1')", "2", "StateConflict('3')"]


async def test_a_failure_is_everybodys_and_the_line_goes_on() -> None:
    fails = True

    async def work(job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        await asyncio.sleep(0)
        if fails:
            raise StoreUnavailable("gone")
        return await double(job_id, numbers)

    lines = Lines(work)
    answers = await asyncio.gather(*(lines.call(JOB, number) for number in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    fails = False
    assert await lines.call(JOB, 1) == 2


async def test_who_is_told_to_stop_leaves_the_line_and_those_taken_along_are_told() -> None:
    may_pass, begun, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        if 0 in numbers:
            await may_pass.wait()
            return await double(job_id, numbers)
        begun.set()
        await never.wait()
        return []

    lines = Lines(work)
    ahead, leading, along, leaving = (asyncio.create_task(lines.call(JOB, number)) for number in range(4))
    await asyncio.sleep(0)
    leaving.cancel()
    may_pass.set()
    await begun.wait()
    leading.cancel()
    answers = await asyncio.gather(ahead, leading, along, leaving, return_exceptions=True)
    assert answers[0] == 0
    assert [type(answer) for answer in answers[1:]] == [
        asyncio.CancelledError,
        StoreUnavailable,
        asyncio.CancelledError,
    ]
    assert await lines.call(JOB, 0) == 0


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "WAITS_S", 0.02)
    may_end = asyncio.Event()

    async def work(job_id: int, numbers: Sequence[int]) -> Sequence[int | Exception]:
        await may_end.wait()
        return await double(job_id, numbers)

    lines = Lines(work)
    first = asyncio.create_task(lines.call(JOB, 1))
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="at once"):
        await lines.call(JOB, 2)
    may_end.set()
    assert await first == 2
