"""History does not grow without end: what is older than the retention is deleted HERE, in small batches."""

from __future__ import annotations

from onbeat.clock import Clock
from onbeat.domain.model import SECOND_US
from onbeat.store.contract import Store

BATCH = 1_000
"""Rows per transaction: a batch stays well under 100 ms, so that no claim waits for it."""

ANSWERS_KEPT_S = 86_400
"""Answers under an Idempotency-Key are kept for 24 h. Source: reliability P25."""

NODES_KEPT_S = 86_400
"""A process that has been silent for a day died: it took no leave, and its row tells nothing any more."""


class Retain:
    """Deletes what is older than its retention."""

    def __init__(self, *, store: Store, clock: Clock, keep_s: int) -> None:
        self._store = store
        self._clock = clock
        self._keep_us = keep_s * SECOND_US

    async def prune(self) -> bool:
        """One batch of each kind. True: there may be more."""
        now = self._clock.now()
        runs = await self._store.runs.prune(ended_before=now - self._keep_us, limit=BATCH)
        answers = await self._store.access.prune_answers(before=now - ANSWERS_KEPT_S * SECOND_US, limit=BATCH)
        await self._store.nodes.prune(seen_before=now - NODES_KEPT_S * SECOND_US)
        return runs >= BATCH or answers >= BATCH
