"""Reading stored definitions: decoded once per text, however many jobs say the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from msgspec.structs import astuple

from onbeat.domain.model import AfterFinishSchedule, Definition, QueueTarget, decode_definition
from onbeat.domain.timetable import Timetable, after_finish_of, calendar_names, compile_timetable, depends_on_job

CACHED_DEFINITIONS: Final = 8_192
"""About 4 KiB each: some 30 MiB, and the jobs that fire most stay in."""

LONG: Final = 4_096
CACHED_LONG: Final = 64
"""Of those with more letters, which are jobs with large bodies, few: as many as of the others would take gigabytes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A definition, and of its schedules what every fire asks."""

    definition: Definition
    calendar_names: tuple[str, ...]
    after_finish: AfterFinishSchedule | None
    timetable: Timetable | None  # None: it depends on the job's id or on calendars too
    queue: str | None
    """Where its runs go. None: to onbeat's own workers."""
    rules: tuple[object, ...]
    """All that else decides what becomes of an instant, as plain values: definitions that differ in what is sent, and
    where, are decided alike."""


class DefinitionCache:
    """Decoded definitions by their JSON text, so that nothing is ever invalidated, also where an operator has mended a
    row by hand.

    Used from the event loop and, inside `decide` callbacks, from the store's writer thread.
    """

    def __init__(
        self, *, size: int = CACHED_DEFINITIONS, decode: Callable[[str], Definition] = decode_definition
    ) -> None:
        self._decoded, self._decoded_long = lru_cache(size)(decode), lru_cache(CACHED_LONG)(decode)
        self._planned, self._planned_long = lru_cache(size)(self._plan), lru_cache(CACHED_LONG)(self._plan)

    def get(self, text: str) -> Definition:
        """The definition behind `text`. Raises DefinitionError where it cannot be read."""
        return self._decoded(text) if len(text) <= LONG else self._decoded_long(text)

    def planned(self, text: str) -> Planned:
        """The same with its schedules. Raises DefinitionError also where those cannot be honoured."""
        return self._planned(text) if len(text) <= LONG else self._planned_long(text)

    def _plan(self, text: str) -> Planned:
        definition = self.get(text)
        schedules = definition.schedules
        names = calendar_names(schedules)
        after_finish = after_finish_of(schedules)
        is_shared = not names and not depends_on_job(schedules)
        queue = definition.target.queue if isinstance(definition.target, QueueTarget) else None
        return Planned(
            definition=definition,
            calendar_names=names,
            after_finish=after_finish,
            timetable=compile_timetable(schedules, job_id=None) if is_shared else None,
            queue=queue,
            rules=(
                queue, definition.grace_s, definition.overlap, definition.max_running, definition.max_run_time_s,
                definition.priority, after_finish is None, *astuple(definition.misfire),
            ),
        )  # fmt: skip
