"""Finds one run by its identity, wherever it stands."""

from __future__ import annotations

from onbeat.domain.ids import RunKey
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import run_view
from onbeat.store.values import RunView

_QUERIES = load_queries("runs")


async def read_run(connection: Connection, key: RunKey, *, slots: int) -> RunView | None:
    """The live or ended run, or the collapsed mark that the instant lies in."""
    row = await connection.fetchrow(_QUERIES["get_live_view"], key.job_id % slots, key.job_id, key.scheduled_at)
    return await read_ended(connection, key, slots=slots) if row is None else run_view(tuple(row))


async def read_ended(connection: Connection, key: RunKey, *, slots: int) -> RunView | None:
    """The ended run, or the collapsed mark that the instant lies in."""
    key_columns = (key.job_id % slots, key.job_id, key.scheduled_at)
    row = await connection.fetchrow(_QUERIES["get_ended_view"], *key_columns)
    if row is not None:
        return run_view(tuple(row))
    row = await connection.fetchrow(_QUERIES["get_range_view"], *key_columns)
    mark = None if row is None else run_view(tuple(row))
    return mark if mark is not None and mark.until is not None and key.scheduled_at <= mark.until else None
