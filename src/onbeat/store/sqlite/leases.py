"""Who may deliver what, until when, on SQLite. Implements the contract's Leases; the steps are in `claims`,
`finishes`, `callbacks` and `interventions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onbeat.domain.ids import RunKey
from onbeat.domain.model import DEFAULT_PRIORITY
from onbeat.domain.states import RunState
from onbeat.store.sqlite.callbacks import complete, report
from onbeat.store.sqlite.claims import claim, extend, permit, release
from onbeat.store.sqlite.finishes import expire, finish
from onbeat.store.sqlite.interventions import cancel, revive
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import (
    Completion,
    Finish,
    Finished,
    Lease,
    LeasedRun,
    LeaseStatus,
    LiveRun,
    Progress,
    Verdict,
)

_QUERIES = load_queries("leases")


class SqliteLeases:
    """Leases of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots

    async def next_ready_at(self, *, queue: str | None, now: int) -> int | None:
        return await self._readers.read(lambda connection: connection.execute(_QUERIES["next_ready_at"], (queue,)).get)

    async def claim(self, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
        return await self._writer.submit(lambda connection: claim(connection, leases, now=now, queue=queue))

    async def extend(self, held: Sequence[tuple[RunKey, bytes]], *, now: int, until: int) -> list[LeaseStatus]:
        return await self._writer.submit(
            lambda connection: extend(connection, held, now=now, until=until, slots=self._slots)
        )

    async def permit(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> list[LeaseStatus]:
        return await self._writer.submit(lambda connection: permit(connection, held, now=now, slots=self._slots))

    async def finish(
        self, items: Sequence[Finish], *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> list[Finished]:
        return await self._writer.submit_batch(
            lambda connection, one_by_one: finish(
                connection, items, now=now, decide=decide, slots=self._slots, one_by_one=one_by_one
            )
        )

    async def complete(
        self, item: Completion, *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> Finished:
        return await self._writer.submit(
            lambda connection: complete(connection, item, now=now, decide=decide, slots=self._slots)
        )

    async def report(self, item: Progress, *, now: int, decide: Callable[[LiveRun, str], int | None]) -> LeaseStatus:
        return await self._writer.submit(
            lambda connection: report(connection, item, now=now, decide=decide, slots=self._slots)
        )

    async def release(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> int:
        return await self._writer.submit(lambda connection: release(connection, held, now=now, slots=self._slots))

    async def expire(self, *, now: int, limit: int, decide: Callable[[LiveRun, str], Verdict]) -> list[Finished]:
        return await self._writer.submit(
            lambda connection: expire(connection, now=now, limit=limit, decide=decide, slots=self._slots)
        )

    async def count_overdue(self, *, now: int) -> int:
        return await self._readers.read(
            lambda connection: int(connection.execute(_QUERIES["count_overdue"], (now,)).get)
        )

    async def cancel(self, key: RunKey, *, now: int) -> RunState | None:
        return await self._writer.submit(lambda connection: cancel(connection, key, now=now, slots=self._slots))

    async def revive(
        self,
        key: RunKey,
        *,
        now: int,
        late_after: int,
        ready_at: int | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> RunState | None:
        return await self._writer.submit(
            lambda connection: revive(
                connection,
                key,
                now=now,
                ready_at=now if ready_at is None else ready_at,
                late_after=late_after,
                priority=priority,
                slots=self._slots,
            )
        )
