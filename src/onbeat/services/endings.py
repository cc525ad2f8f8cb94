"""Tells whoever counts, and the log, how attempts and runs ended in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from onbeat.domain.ids import format_job_id, format_run_id
from onbeat.store.values import Finished

log = structlog.get_logger(__name__)


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
        for answer in answers:
            if answer.paused_job is not None:
                log.warning(
                    "job_paused",
                    job_id=format_job_id(answer.key.job_id),
                    run_id=format_run_id(answer.key),
                    reason=answer.paused_job,
                )
        for listener in self._listeners:
            listener(answers, lost=lost)
