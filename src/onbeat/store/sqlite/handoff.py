"""Hands work from event loops to the engine's threads and answers back.

A future belongs to its loop and is only touched there; one wake-up carries all answers of a group.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import apsw


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """A piece of work, and the future that waits for its answer."""

    work: Callable[[apsw.Connection], Any]
    future: asyncio.Future[Any]

    @property
    def is_abandoned(self) -> bool:
        """True once nobody waits any more. May be seen late, never wrongly."""
        return self.future.cancelled()


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What became of a submission: `error` if there is one, else `value`."""

    submission: Submission
    value: Any = None
    error: BaseException | None = None


def deliver(answers: Iterable[Answer]) -> None:
    """Resolve futures on their own loops. Waiters that were cancelled, and loops that have ended, are passed over."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Answer]] = {}
    for answer in answers:
        by_loop.setdefault(answer.submission.future.get_loop(), []).append(answer)
    for loop, group in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(answers: list[Answer]) -> None:
    for answer in answers:
        future = answer.submission.future
        if future.done():
            continue
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)
