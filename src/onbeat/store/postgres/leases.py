"""Who may deliver what, until when, on PostgreSQL. Implements the contract's Leases; the steps are in `claims`,
`finishes`, `callbacks` and `interventions`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from onbeat.domain.ids import RunKey
from onbeat.domain.model import DEFAULT_PRIORITY
from onbeat.domain.priority import STANDINGS
from onbeat.domain.states import RunState
from onbeat.store.hints import Hint, hint_of_runs
from onbeat.store.postgres.callbacks import complete, report
from onbeat.store.postgres.claims import claim, extend, first_ready, permit, release
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.finishes import LockedJobs, expire, finish, first_overdue, write_locking
from onbeat.store.postgres.floors import Floors
from onbeat.store.postgres.interventions import cancel, revive
from onbeat.store.postgres.leases_by_slot import LeasesBySlot
from onbeat.store.postgres.looks import Looks
from onbeat.store.postgres.one_slot import Answer, Item, in_each_slot
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

    def __init__(self, *, database: Database, slots: int, looks: Looks | None = None) -> None:
        """`looks`: one slot at a time (`leases_by_slot.py`). None: each call is one transaction."""
        self._database = database
        self._slots = slots
        self._by_slot = None if looks is None else LeasesBySlot(database=database, slots=slots, looks=looks)
        self.ready_floors = Floors(lines=len(STANDINGS))
        self.overdue_floors = Floors(lines=2)  # leases, retries
        database.hints.watch(self._heed)

    async def next_ready_at(self, *, queue: str | None, now: int) -> int | None:
        if self._by_slot is not None:
            return await self._by_slot.next_ready_at(queue)
        with self.ready_floors.looking(queue, now=now) as look:
            look.found = await self._database.prompt.read(
                lambda connection: first_ready(connection, look.floors, queue=queue)
            )
        return min((ready_at for ready_at in look.found if ready_at is not None), default=None)

    async def claim(self, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
        if not leases:
            return []
        if self._by_slot is not None:
            return await self._by_slot.claim(leases, now=now, queue=queue)
        floors = self.ready_floors.of(queue, now=now)
        return await self._database.prompt.write(
            lambda connection: claim(connection, leases, floors, now=now, queue=queue)
        )

    async def extend(self, held: Sequence[tuple[RunKey, bytes]], *, now: int, until: int) -> list[LeaseStatus]:
        async def work(part: Sequence[tuple[RunKey, bytes]], slot: int | None) -> list[LeaseStatus]:
            return await self._database.prompt.write(
                lambda connection: extend(connection, part, now=now, until=until, slots=self._slots), slot=slot
            )

        return await self._in_parts(held, slot_of=self._slot_of_lease, work=work)

    async def permit(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> list[LeaseStatus]:
        async def work(part: Sequence[tuple[RunKey, bytes]], slot: int | None) -> list[LeaseStatus]:
            return await self._database.prompt.write(
                lambda connection: permit(connection, part, now=now, slots=self._slots), slot=slot
            )

        return await self._in_parts(held, slot_of=self._slot_of_lease, work=work)

    async def finish(
        self, items: Sequence[Finish], *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> list[Finished]:
        async def work(part: Sequence[Finish], slot: int | None) -> list[Finished]:
            async def write(connection: Connection, locked: LockedJobs) -> list[Finished]:
                return await finish(connection, part, now=now, decide=decide, slots=self._slots, locked=locked)

            return await write_locking(self._database.prompt, write, slots=self._slots, slot=slot)

        finished = await self._in_parts(items, slot_of=lambda item: item.key.job_id % self._slots, work=work)
        self.ready_floors.lower(now)  # a lane that was passed on; others are not told, they look often enough
        return finished

    async def complete(
        self, item: Completion, *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> Finished:
        async def write(connection: Connection, locked: LockedJobs) -> Finished:
            return await complete(connection, item, now=now, decide=decide, slots=self._slots, locked=locked)

        finished = await write_locking(
            self._database.prompt, write, slots=self._slots, slot=item.key.job_id % self._slots
        )
        self.ready_floors.lower(now)
        return finished

    async def report(self, item: Progress, *, now: int, decide: Callable[[LiveRun, str], int | None]) -> LeaseStatus:
        return await self._database.prompt.write(
            lambda connection: report(connection, item, now=now, decide=decide, slots=self._slots),
            slot=item.key.job_id % self._slots,
        )

    async def release(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> int:
        async def work(part: Sequence[tuple[RunKey, bytes]], slot: int | None) -> list[bool]:
            released = await self._database.prompt.write(
                lambda connection: release(connection, part, now=now, slots=self._slots),
                hint=lambda released: hint_of_runs(ready_at=now if released else None),
                slot=slot,
            )
            return [number < released for number in range(len(part))]

        return sum(await self._in_parts(held, slot_of=self._slot_of_lease, work=work))

    async def expire(self, *, now: int, limit: int, decide: Callable[[LiveRun, str], Verdict]) -> list[Finished]:
        if self._by_slot is None:
            return await self._expire_all(now=now, limit=limit, decide=decide)

        async def work(most: int, slot: int) -> list[Finished]:
            async def write(connection: Connection, locked: LockedJobs) -> list[Finished]:
                return await expire(connection, now=now, limit=most, decide=decide, slots=self._slots, locked=locked)

            return await write_locking(
                self._database.prompt,
                write,
                slots=self._slots,
                hint=lambda expired: _hint_of_expired(expired, now=now),
                slot=slot,
            )

        return await self._by_slot.expire(limit, work)

    async def _expire_all(self, *, now: int, limit: int, decide: Callable[[LiveRun, str], Verdict]) -> list[Finished]:
        """Of all slots, in one transaction."""

        async def write(connection: Connection, locked: LockedJobs) -> tuple[list[Finished], list[int | None]]:
            expired = await expire(
                connection, look.floors, now=now, limit=limit, decide=decide, slots=self._slots, locked=locked
            )
            return expired, await first_overdue(connection, look.floors, now=now)

        with self.overdue_floors.looking(None, now=now) as look:
            expired, look.found = await write_locking(
                self._database.prompt,
                write,
                slots=self._slots,
                hint=lambda written: _hint_of_expired(written[0], now=now),
            )
        return expired

    async def count_overdue(self, *, now: int) -> int:
        leases_from, _retries_from = self.overdue_floors.of(None, now=now)

        async def read(connection: Connection) -> int:
            return int(await connection.fetchval(_QUERIES["count_overdue"], leases_from, now))

        return await self._database.read(read)

    async def cancel(self, key: RunKey, *, now: int) -> RunState | None:
        state = await self._database.write(
            lambda connection: cancel(connection, key, now=now, slots=self._slots),
            hint=lambda state: hint_of_runs(stopped=[key] if state is RunState.RUNNING else ()),
            slot=key.job_id % self._slots,
        )
        self.ready_floors.lower(now)
        return state

    async def revive(
        self,
        key: RunKey,
        *,
        now: int,
        late_after: int,
        ready_at: int | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> RunState | None:
        ready_at = now if ready_at is None else ready_at
        return await self._database.write(
            lambda connection: revive(
                connection,
                key,
                now=now,
                ready_at=ready_at,
                late_after=late_after,
                priority=priority,
                slots=self._slots,
            ),
            hint=lambda state: hint_of_runs(ready_at=ready_at if state is RunState.PENDING else None),
            slot=key.job_id % self._slots,
        )

    def _heed(self, hint: Hint) -> None:
        """Of this process or another: look where runs became claimable, however long ago they were ready."""
        if hint.ready_at is not None:
            self.ready_floors.lower(hint.ready_at)

    def _slot_of_lease(self, lease: tuple[RunKey, bytes]) -> int:
        return lease[0].job_id % self._slots

    async def _in_parts(
        self,
        items: Sequence[Item],
        *,
        slot_of: Callable[[Item], int],
        work: Callable[[Sequence[Item], int | None], Awaitable[Sequence[Answer]]],
    ) -> list[Answer]:
        """All in one transaction, or in one for each slot where the database wants that."""
        if not items:
            return []
        if self._by_slot is None:
            return list(await work(items, None))
        return await in_each_slot(items, slot_of=slot_of, work=work)


def _hint_of_expired(expired: Sequence[Finished], *, now: int) -> Hint | None:
    """A lane that was passed on is ready at `now` or later; an attempt that comes next, when its verdict says."""
    ready_ats = [answer.ready_at for answer in expired if answer.ready_at is not None]
    return hint_of_runs(ready_at=min([now, *ready_ats]) if expired else None)
