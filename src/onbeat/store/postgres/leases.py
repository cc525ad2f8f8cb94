"""Who may deliver what, until when, on PostgreSQL. Implements the contract's Leases; the steps are in `claims`,
`finishes`, `callbacks` and `interventions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onbeat.domain.ids import RunKey
from onbeat.domain.model import DEFAULT_PRIORITY
from onbeat.domain.states import RunState
from onbeat.store.hints import hint_of_runs
from onbeat.store.postgres.callbacks import complete, report
from onbeat.store.postgres.claims import claim, extend, permit, release
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.finishes import LockedJobs, expire, finish, write_locking
from onbeat.store.postgres.interventions import cancel, revive
from onbeat.store.postgres.queries import load_queries
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


class PostgresLeases:
    """Leases of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def next_ready_at(self, *, queue: str | None) -> int | None:
        async def read(connection: Connection) -> int | None:
            ready_at: int | None = await connection.fetchval(_QUERIES["next_ready_at"], queue or "")
            return ready_at

        return await self._database.prompt.read(read)

    async def claim(self, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
        if not leases:
            return []
        return await self._database.prompt.write(lambda connection: claim(connection, leases, now=now, queue=queue))

    async def extend(self, held: Sequence[tuple[RunKey, bytes]], *, now: int, until: int) -> list[LeaseStatus]:
        if not held:
            return []
        return await self._database.prompt.write(
            lambda connection: extend(connection, held, now=now, until=until, slots=self._slots)
        )

    async def permit(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> list[LeaseStatus]:
        if not held:
            return []
        return await self._database.prompt.write(
            lambda connection: permit(connection, held, now=now, slots=self._slots)
        )

    async def finish(
        self, items: Sequence[Finish], *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> list[Finished]:
        if not items:
            return []

        async def write(connection: Connection, locked: LockedJobs) -> list[Finished]:
            return await finish(connection, items, now=now, decide=decide, slots=self._slots, locked=locked)

        return await write_locking(self._database.prompt, write, slots=self._slots)

    async def complete(
        self, item: Completion, *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> Finished:
        async def write(connection: Connection, locked: LockedJobs) -> Finished:
            return await complete(connection, item, now=now, decide=decide, slots=self._slots, locked=locked)

        return await write_locking(self._database.prompt, write, slots=self._slots)

    async def report(self, item: Progress, *, now: int, decide: Callable[[LiveRun, str], int | None]) -> LeaseStatus:
        return await self._database.prompt.write(
            lambda connection: report(connection, item, now=now, decide=decide, slots=self._slots)
        )

    async def release(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> int:
        if not held:
            return 0
        return await self._database.prompt.write(
            lambda connection: release(connection, held, now=now, slots=self._slots),
            hint=lambda released: hint_of_runs(ready=released > 0),
        )

    async def expire(self, *, now: int, limit: int, decide: Callable[[LiveRun, str], Verdict]) -> list[Finished]:
        async def write(connection: Connection, locked: LockedJobs) -> list[Finished]:
            return await expire(connection, now=now, limit=limit, decide=decide, slots=self._slots, locked=locked)

        return await write_locking(
            self._database.prompt, write, slots=self._slots, hint=lambda expired: hint_of_runs(ready=bool(expired))
        )

    async def count_overdue(self, *, now: int) -> int:
        async def read(connection: Connection) -> int:
            return int(await connection.fetchval(_QUERIES["count_overdue"], now))

        return await self._database.read(read)

    async def cancel(self, key: RunKey, *, now: int) -> RunState | None:
        return await self._database.write(
            lambda connection: cancel(connection, key, now=now, slots=self._slots),
            hint=lambda state: hint_of_runs(ready=False, stopped=[key] if state is RunState.RUNNING else ()),
        )

    async def revive(
        self,
        key: RunKey,
        *,
        now: int,
        late_after: int,
        ready_at: int | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> RunState | None:
        return await self._database.write(
            lambda connection: revive(
                connection,
                key,
                now=now,
                ready_at=now if ready_at is None else ready_at,
                late_after=late_after,
                priority=priority,
                slots=self._slots,
            ),
            hint=lambda state: hint_of_runs(ready=state is RunState.PENDING),
        )
