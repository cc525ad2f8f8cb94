"""Tells whoever counts how attempts and runs ended in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onbeat.store.values import Finished


class EndingsListener(Protocol):
    """What is called for each batch. `lost`: nobody reported these, they were taken back."""

    def __call__(self, answers: Sequence[Finished], *, lost: bool) -> None: ...


class Endings:
    """Passes on what finishing and expiring answered."""

    def __init__(self) -> None:
        self._listeners: list[EndingsListener] = []

    def listen(self, listener: EndingsListener) -> None:
        """Call `listener` for every batch of endings."""
        self._listeners.append(listener)

    def tell(self, answers: Sequence[Finished], *, lost: bool = False) -> None:
        """These attempts ended."""
        for listener in self._listeners:
            listener(answers, lost=lost)
