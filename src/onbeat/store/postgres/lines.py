"""Calls that need the same job: they wait for each other in this process, and not each on a connection of its own.

One transaction at a time holds a job's row. Hundreds of calls at once for one job would hold every connection to wait
for it, and each would commit by itself. Here the first one goes, and those that came meanwhile go together after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from onbeat.domain.errors import StoreUnavailable

Q = TypeVar("Q")
A = TypeVar("A")

MOST_TOGETHER: Final = 50
"""In one transaction: what others wait for that need the job, too."""

WAITS_S: Final = 20.0
"""How long a call stands in line before it is told so."""


class Lines(Generic[Q, A]):
    """A line per job. `work` does some calls for a job in one transaction; an error that it answers is one call's own,
    and one that it raises is everybody's.
    """

    def __init__(self, work: Callable[[int, Sequence[Q]], Awaitable[Sequence[A | Exception]]]) -> None:
        self._work = work
        self._lines: dict[int, _Line[Q, A]] = {}

    async def call(self, job_id: int, question: Q) -> A:
        """What `work` answers to `question`. Raises what it raises, and StoreUnavailable after too long a wait."""
        line = self._lines.setdefault(job_id, _Line())
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        place = (question, answer)
        line.waiting.append(place)
        try:
            while not answer.done():
                await self._step_forward(job_id, line, answer)
            return answer.result()
        finally:
            if place in line.waiting:
                line.waiting.remove(place)
            if not line.waiting and not line.turn.locked():
                self._lines.pop(job_id, None)

    async def _step_forward(self, job_id: int, line: _Line[Q, A], answer: asyncio.Future[A]) -> None:
        """Wait for the turn; then go, with those who wait, unless another one has taken this call along."""
        try:
            async with asyncio.timeout(WAITS_S):
                await line.turn.acquire()
        except TimeoutError:
            if answer.done():
                return
            raise StoreUnavailable("too many requests for this job at once") from None
        try:
            if not answer.done():
                await self._go(job_id, line)
        finally:
            line.turn.release()

    async def _go(self, job_id: int, line: _Line[Q, A]) -> None:
        going = line.waiting[:MOST_TOGETHER]
        del line.waiting[:MOST_TOGETHER]
        try:
            answers = await self._work(job_id, [question for question, _answer in going])
        except BaseException as error:
            # Where the one who asked is told to stop, the others do not know what became of their part.
            shared = error if isinstance(error, Exception) else StoreUnavailable()
            answers = [shared] * len(going)
            if not isinstance(error, Exception):
                raise
        finally:
            for (_question, waiter), told in zip(going, answers, strict=True):
                _tell(waiter, told)


class _Line(Generic[Q, A]):
    def __init__(self) -> None:
        self.waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self.turn = asyncio.Lock()


def _tell(waiter: asyncio.Future[A], told: A | Exception) -> None:
    if waiter.done():
        return
    if isinstance(told, Exception):
        waiter.set_exception(told)
        waiter.exception()  # whoever asked may have left
    else:
        waiter.set_result(told)
