"""Asks for permits in batches: while a worker is behind, many attempts need one at a time, and asked one by one they
would cost the scheduler a transaction each, just when it has least to spare.
"""

from __future__ import annotations

import asyncio

from onbeat.services.assignment import Held, WorkerLink
from onbeat.store.values import LeaseStatus

LARGEST_BATCH = 500


class Permits:
    """Everybody who asks while one question is under way shares the next one."""

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._asked: list[tuple[Held, asyncio.Future[bool]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, held: Held) -> bool:
        """May this attempt begin? Raises what the link raises."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.append((held, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="permits")
        return await answer

    async def _ask_all(self) -> None:
        try:
            while self._asked:
                batch, self._asked = self._asked[:LARGEST_BATCH], self._asked[LARGEST_BATCH:]
                await self._ask_batch(batch)
        finally:
            self._asking = None

    async def _ask_batch(self, batch: list[tuple[Held, asyncio.Future[bool]]]) -> None:
        wanted = [(held, answer) for held, answer in batch if not answer.done()]  # whoever gave up meanwhile is done
        try:
            statuses = await self._link.permit([held for held, _answer in wanted])
        except Exception as error:
            for _held, answer in wanted:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_held, answer), status in zip(wanted, statuses, strict=True):
            if not answer.done():
                answer.set_result(status == LeaseStatus.LIVE)
