"""Reading stored definitions: decoded once per job version, with the timetable that belongs to it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from onbeat.domain.model import Definition, decode_definition

CACHED_DEFINITIONS = 8_192
"""About 4 KiB each: at most some 30 MiB, and the jobs that fire most stay in."""


class DefinitionCache:
    """Decoded definitions by `(job_id, version)`. A version never changes, so nothing is ever invalidated.

    Used from the event loop and, inside `decide` callbacks, from the store's writer thread.
    """

    def __init__(
        self, *, size: int = CACHED_DEFINITIONS, decode: Callable[[str], Definition] = decode_definition
    ) -> None:
        self._size = size
        self._decode = decode
        self._entries: OrderedDict[tuple[int, int], tuple[str, Definition]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, job_id: int, version: int, text: str) -> Definition:
        """The definition behind `text`. Raises DefinitionError where it cannot be read.

        The text is compared too: an operator may have mended a row by hand without raising its version.
        """
        key = (job_id, version)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry[0] == text:
                self._entries.move_to_end(key)
                return entry[1]
        definition = self._decode(text)
        with self._lock:
            self._entries[key] = (text, definition)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return definition
