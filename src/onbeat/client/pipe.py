"""A worker's way to the scheduler when both are processes of one node: the same five calls, over a pair of sockets.

Owns what is said in both directions; the node's end is app/pipe_end.py. Boot time is the host's, so the age of a grant
needs no reckoning here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, TypeAlias, TypeVar

import msgspec

from onbeat.client.frames import Frames
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.ids import RunKey
from onbeat.services.assignment import Assignment, Held
from onbeat.store.values import Finish, Finished, LeaseStatus

# ---- from the worker to the node: calls. Each is answered once, under its number.


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Up to `limit` attempts; waits up to `wait_s` for the first."""

    number: int
    queue: str | None
    limit: int
    wait_s: float


class Extend(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A heartbeat."""

    number: int
    held: list[Held]


class Permit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """May these attempts begin?"""

    number: int
    held: list[Held]


class Report(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """These attempts ended."""

    number: int
    items: list[Finish]


class Release(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """These attempts are given back."""

    number: int
    held: list[Held]


class ReadClock(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What time is it?"""

    number: int


Call: TypeAlias = Claim | Extend | Permit | Report | Release | ReadClock

# ---- from the node to the worker: answers, and what it says by itself.


class Begin(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first message: who the worker is, how much it takes at once, and the node's settings, as JSON."""

    capacity: int
    settings: str


class Granted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To Claim."""

    number: int
    runs: list[Assignment]


class Statuses(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To Extend and Permit."""

    number: int
    statuses: list[LeaseStatus]


class Reported(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To Report."""

    number: int
    answers: list[Finished]


class Counted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To Release: how many were given back. To ReadClock: the database's time, µs UTC."""

    number: int
    count: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """To any call: it failed, and may be made again."""

    number: int
    detail: str


class Cancelled(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This run was asked to stop."""

    key: RunKey


class Doubted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """This run may have been asked to stop: look."""

    key: RunKey


class Drain(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The node stops: let what runs end, and leave."""


Answer: TypeAlias = Granted | Statuses | Reported | Counted | Refused
Word: TypeAlias = Begin | Answer | Cancelled | Doubted | Drain

Expected = TypeVar("Expected", bound=Answer)

GONE: Final = "the node is gone"


class PipeLink:
    """Implements services.assignment.WorkerLink over the worker's end of a pipe.

    `listen` must run for calls to be answered; once the node is gone every call raises StoreUnavailable.
    """

    def __init__(self, frames: Frames[Word]) -> None:
        self._frames = frames
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    async def listen(self, on_word: Callable[[Begin | Cancelled | Doubted | Drain], None]) -> None:
        """Read until the node is gone: answers go to whoever called, all else to `on_word`."""
        async for word in self._frames.read_all():
            if isinstance(word, (Begin, Cancelled, Doubted, Drain)):
                on_word(word)
            elif (waiting := self._waiting.get(word.number)) is not None and not waiting.done():
                waiting.set_result(word)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StoreUnavailable(GONE))

    async def read_clock(self) -> int:
        """The database's time, for a DatabaseClock."""
        return (await self._call(ReadClock(next(self._numbers)), Counted)).count

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        """See WorkerLink."""
        return (await self._call(Claim(next(self._numbers), queue, limit, wait_s), Granted)).runs

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """See WorkerLink."""
        return (await self._call(Extend(next(self._numbers), list(held)), Statuses)).statuses

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """See WorkerLink."""
        return (await self._call(Permit(next(self._numbers), list(held)), Statuses)).statuses

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        """See WorkerLink."""
        return (await self._call(Report(next(self._numbers), list(items)), Reported)).answers

    async def release(self, held: Sequence[Held]) -> int:
        """See WorkerLink."""
        return (await self._call(Release(next(self._numbers), list(held)), Counted)).count

    async def _call(self, call: Call, expected: type[Expected]) -> Expected:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[call.number] = waiting
        try:
            await self._frames.send(call)
            answer = await waiting
        except ConnectionError:
            raise StoreUnavailable(GONE) from None
        finally:
            del self._waiting[call.number]
        if isinstance(answer, Refused):
            raise StoreUnavailable(answer.detail)
        if not isinstance(answer, expected):
            raise TypeError(f"{type(call).__name__} was answered with {type(answer).__name__}")
        return answer
