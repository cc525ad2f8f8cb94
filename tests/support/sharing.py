"""Several nodes on one database, in one process: each has its own memory, and the store says that it is shared."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

from tests.support.scheduler import START, Scheduler

from onbeat.clock import ManualClock
from onbeat.store.contract import Store
from onbeat.store.open import open_store


class SharedStore:
    """The real store of one data file, as seen by one of several nodes."""

    is_shared = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@contextlib.asynccontextmanager
async def sharing(data: Path, *, nodes: int) -> AsyncIterator[list[Scheduler]]:
    """Schedulers over one database, under one clock."""
    clock = ManualClock(START)
    store = await open_store(str(data), read_time=clock.now)
    try:
        yield [Scheduler(cast(Store, SharedStore(store)), clock) for _ in range(nodes)]
    finally:
        await store.close()
