"""What became of fires, for people, on PostgreSQL. Implements the contract's Runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onbeat.domain.ids import RunKey
from onbeat.domain.states import ENDED, REVIVABLE, RunState
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.lookups import read_run
from onbeat.store.postgres.partitions import drop_partitions, make_partitions
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import LARGEST, attempt_view, run_view
from onbeat.store.values import AttemptView, Page, RunFilter, RunView

_QUERIES = load_queries("runs")

_ALL_STATES: Final = tuple(state.value for state in RunState)
_ENDED_STATES: Final = tuple(state.value for state in RunState if state in ENDED)

# A page comes straight from an index in its order. Without statistics the planner would rather collect all and sort.
_IN_ORDER: Final = "SET LOCAL enable_sort = off"


class PostgresRuns:
    """Runs of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def get(self, key: RunKey) -> RunView | None:
        return await self._database.read(lambda connection: read_run(connection, key, slots=self._slots))

    async def find(self, where: RunFilter, page: Page) -> list[RunView]:
        return await self._database.read(lambda connection: self._find(connection, where, page))

    async def find_revivable(self, where: RunFilter, page: Page) -> list[RunView]:
        return await self._database.read(lambda connection: self._find_revivable(connection, where, page))

    async def last_responses(self, keys: Sequence[RunKey]) -> dict[RunKey, bytes]:
        asked = columns([(key.job_id % self._slots, *key) for key in keys], count=3)

        async def read(connection: Connection) -> dict[RunKey, bytes]:
            rows = await connection.fetch(_QUERIES["last_responses"], *asked)
            return {RunKey(row[0], row[1]): row[2] for row in rows if row[2] is not None}

        return await self._database.read(read) if keys else {}

    async def attempts(self, key: RunKey) -> list[AttemptView]:
        key_columns = (key.job_id % self._slots, key.job_id, key.scheduled_at)

        async def read(connection: Connection) -> list[AttemptView]:
            rows = await connection.fetch(_QUERIES["failed_attempts"], *key_columns)
            rows += await connection.fetch(_QUERIES["succeeded_attempt"], *key_columns)
            return [attempt_view(tuple(row)) for row in rows]

        return await self._database.read(read)

    async def prune(self, *, ended_before: int, limit: int) -> int:
        await make_partitions(self._database)
        dropped = await drop_partitions(self._database, ended_before=ended_before, limit=limit)

        async def prune_rows(connection: Connection) -> int:
            rows = int(await connection.fetchval(_QUERIES["prune_default"], ended_before, limit - dropped))
            await connection.execute(_QUERIES["prune_versions"], limit)
            return rows

        async def prune_jobs(connection: Connection) -> None:
            await connection.execute(_QUERIES["prune_jobs"], ended_before, limit)
            await connection.execute(_QUERIES["compact_job_counts"])

        rows = await self._database.write(prune_rows)
        await self._database.write(prune_jobs)
        return dropped + rows

    async def _find(self, connection: Connection, where: RunFilter, page: Page) -> list[RunView]:
        """The newest live and the newest ended runs, merged: each half is asked for a whole page."""
        end = (LARGEST, LARGEST) if where.scheduled_to is None else (where.scheduled_to, -1)
        before = end if page.after is None else min((page.after[0], page.after[1]), end)
        lates = [False, True] if where.late is None else [where.late]
        live_states = [state.value for state in where.states] or _ALL_STATES
        ended_states = [state.value for state in where.states if state in ENDED] if where.states else _ENDED_STATES
        is_notable = where.late is True or RunState.SUCCEEDED.value not in ended_states
        if where.job_id is None:
            place: tuple[int, ...] = before
            live, ended = "find_live", "find_notable" if is_notable else "find_ended"
        else:
            # Within a job planned instants are distinct, so the cursor's second half only matters for another job.
            ceiling = before[0] + 1 if where.job_id < before[1] and before[0] < LARGEST else before[0]
            place = (where.job_id % self._slots, where.job_id, ceiling)
            live, ended = "find_live_of_job", "find_notable_of_job" if is_notable else "find_ended_of_job"
        scheduled_from = where.scheduled_from or 0
        await connection.execute(_IN_ORDER)
        rows = await connection.fetch(_QUERIES[live], live_states, lates, *place, scheduled_from, page.limit)
        # Who asks for live states only must not wait for a walk over all of history that finds nothing.
        if ended_states:
            rows += await connection.fetch(_QUERIES[ended], ended_states, lates, *place, scheduled_from, page.limit)
        rows.sort(key=lambda row: (row[1], row[0]), reverse=True)
        return [run_view(tuple(row)) for row in rows[: page.limit]]

    async def _find_revivable(self, connection: Connection, where: RunFilter, page: Page) -> list[RunView]:
        after = (-1, -1) if page.after is None else (page.after[0], page.after[1])
        states = [state.value for state in (where.states or REVIVABLE) & REVIVABLE]
        lates = [False, True] if where.late is None else [where.late]
        scheduled_to = LARGEST if where.scheduled_to is None else where.scheduled_to
        place: tuple[int, ...] = after
        query = "find_revivable"
        if where.job_id is not None:
            floor = after[0] - 1 if where.job_id > after[1] else after[0]
            query, place = "find_revivable_of_job", (where.job_id % self._slots, where.job_id, floor)
        await connection.execute(_IN_ORDER)
        bounds = (where.scheduled_from or 0, scheduled_to, page.limit)
        rows = await connection.fetch(_QUERIES[query], states, lates, *place, *bounds)
        return [run_view(tuple(row)) for row in rows]
