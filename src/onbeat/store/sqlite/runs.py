"""What became of fires, for people, on SQLite. Implements the contract's Runs."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from onbeat.domain.ids import RunKey
from onbeat.domain.states import ENDED, REVIVABLE, RunState
from onbeat.store.rows import LARGEST, Row, attempt_view, encode_rows, run_view
from onbeat.store.sqlite.lookups import read_run
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import AttemptView, Page, RunFilter, RunView

_QUERIES = load_queries("runs")
_BACKFILLS = load_queries("backfills")


class SqliteRuns:
    """Runs of one data file."""

    def __init__(self, *, writer: Writer, readers: Readers, slots: int) -> None:
        self._writer = writer
        self._readers = readers
        self._slots = slots

    async def get(self, key: RunKey) -> RunView | None:
        return await self._readers.read(lambda connection: read_run(connection, key, slots=self._slots))

    async def find(self, where: RunFilter, page: Page) -> list[RunView]:
        return await self._readers.search(lambda connection: self._find(connection, where, page))

    async def find_revivable(self, where: RunFilter, page: Page) -> list[RunView]:
        return await self._readers.search(lambda connection: self._find_revivable(connection, where, page))

    async def last_responses(self, keys: Sequence[RunKey]) -> dict[RunKey, bytes]:
        def read(connection: apsw.Connection) -> dict[RunKey, bytes]:
            found: dict[RunKey, bytes] = {}
            for key in keys:
                key_columns = (key.job_id % self._slots, key.job_id, key.scheduled_at)
                response = connection.execute(_QUERIES["last_response"], key_columns).get
                if response is not None:
                    found[key] = response
            return found

        return await self._readers.read(read)

    async def attempts(self, key: RunKey) -> list[AttemptView]:
        key_columns = (key.job_id % self._slots, key.job_id, key.scheduled_at)

        def read(connection: apsw.Connection) -> list[AttemptView]:
            rows = connection.execute(_QUERIES["failed_attempts"], key_columns).fetchall()
            rows += connection.execute(_QUERIES["succeeded_attempt"], key_columns).fetchall()
            return [attempt_view(row) for row in rows]

        return await self._readers.read(read)

    async def prune(self, *, ended_before: int, limit: int) -> int:
        return await self._writer.submit(lambda connection: _prune(connection, ended_before=ended_before, limit=limit))

    def _find(self, connection: apsw.Connection, where: RunFilter, page: Page) -> list[RunView]:
        """The newest live and the newest ended runs, merged: each half is asked for a whole page."""
        end = (LARGEST, LARGEST) if where.scheduled_to is None else (where.scheduled_to, -1)
        before = end if page.after is None else min((page.after[0], page.after[1]), end)
        states = msgspec.json.encode(sorted(where.states)).decode() if where.states else None
        narrowed: Row = (where.scheduled_from or 0, states, None if where.late is None else int(where.late), page.limit)
        is_notable = where.late is True or (bool(where.states) and RunState.SUCCEEDED not in where.states)
        # Who asks for live states only must not wait for a walk over all of history that finds nothing.
        asks_history = not where.states or not where.states.isdisjoint(ENDED)
        if where.job_id is None:
            bindings: Row = (*before, *narrowed)
            live, ended = _QUERIES["find_live"], _QUERIES["find_notable"] if is_notable else _QUERIES["find_ended"]
        else:
            # Within a job planned instants are distinct, so the cursor's second half only matters for another job.
            ceiling = before[0] + 1 if where.job_id < before[1] and before[0] < LARGEST else before[0]
            bindings = (where.job_id % self._slots, where.job_id, ceiling, *narrowed)
            live = _QUERIES["find_live_of_job"]
            ended = _QUERIES["find_notable_of_job"] if is_notable else _QUERIES["find_ended_of_job"]
        rows = connection.execute(live, bindings).fetchall()
        if asks_history:
            rows += connection.execute(ended, bindings).fetchall()
        rows.sort(key=lambda row: (row[1], row[0]), reverse=True)
        return [run_view(row) for row in rows[: page.limit]]

    def _find_revivable(self, connection: apsw.Connection, where: RunFilter, page: Page) -> list[RunView]:
        after = (-1, -1) if page.after is None else (page.after[0], page.after[1])
        scheduled_to = LARGEST if where.scheduled_to is None else where.scheduled_to
        states = msgspec.json.encode(sorted((where.states or REVIVABLE) & REVIVABLE)).decode()
        late = None if where.late is None else int(where.late)
        narrowed: Row = (where.scheduled_from or 0, scheduled_to, states, late, page.limit)
        if where.job_id is None:
            rows = connection.execute(_QUERIES["find_revivable"], (*after, *narrowed))
        else:
            floor = after[0] - 1 if where.job_id > after[1] else after[0]
            bindings = (where.job_id % self._slots, where.job_id, floor, *narrowed)
            rows = connection.execute(_QUERIES["find_revivable_of_job"], bindings)
        return [run_view(row) for row in rows]


def _prune(connection: apsw.Connection, *, ended_before: int, limit: int) -> int:
    oldest = connection.execute(_QUERIES["oldest_ended"], (limit, ended_before)).fetchall()
    connection.execute(_QUERIES["prune_attempts"], (encode_rows([row[1:] for row in oldest]),))
    connection.execute(_QUERIES["prune_ended"], (encode_rows([row[0] for row in oldest]),))
    connection.execute(_QUERIES["prune_versions"], (limit,))
    connection.execute(_QUERIES["prune_jobs"], (ended_before, limit))
    connection.execute(_BACKFILLS["drop_backfills_of_gone_jobs"])
    return len(oldest)
