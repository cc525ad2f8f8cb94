"""The attempts that run in this process, so that a cancel reaches them at once instead of with the next heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onbeat.domain.ids import RunKey


class RunningHere:
    """Lets the in-process worker hear of cancellations. Remote workers hear with their next heartbeat."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[RunKey], None]] = []

    def listen(self, listener: Callable[[RunKey], None]) -> None:
        """Call `listener` for every run that is asked to stop."""
        self._listeners.append(listener)

    def cancel(self, keys: Iterable[RunKey]) -> None:
        """These runs were asked to stop."""
        for key in keys:
            for listener in self._listeners:
                listener(key)
