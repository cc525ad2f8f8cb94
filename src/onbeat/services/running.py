"""The attempts that run in this process, so that a cancel reaches them at once instead of with the next heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onbeat.domain.ids import RunKey


class RunningHere:
    """Lets the in-process worker hear of cancellations. Remote workers hear with their next heartbeat."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[RunKey], None]] = []
        self._doubters: list[Callable[[RunKey], None]] = []

    def listen(self, listener: Callable[[RunKey], None]) -> None:
        """Call `listener` for every run that is asked to stop."""
        self._listeners.append(listener)

    def listen_for_doubt(self, listener: Callable[[RunKey], None]) -> None:
        """Call `listener` for every run of which another process says that it was asked to stop."""
        self._doubters.append(listener)

    def doubt(self, keys: Iterable[RunKey]) -> None:
        """These runs may have been asked to stop: look at once."""
        for key in keys:
            for listener in self._doubters:
                listener(key)

    def cancel(self, keys: Iterable[RunKey]) -> None:
        """These runs were asked to stop."""
        for key in keys:
            for listener in self._listeners:
                listener(key)
