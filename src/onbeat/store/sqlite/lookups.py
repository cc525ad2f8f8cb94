"""Finds one run by its identity, wherever it stands."""

from __future__ import annotations

import apsw

from onbeat.domain.ids import RunKey
from onbeat.store.rows import run_view
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import RunView

_QUERIES = load_queries("runs")


def read_run(connection: apsw.Connection, key: RunKey, *, slots: int) -> RunView | None:
    """The live or ended run, or the collapsed mark that the instant lies in."""
    for row in connection.execute(_QUERIES["get_live_view"], (key.job_id % slots, key.job_id, key.scheduled_at)):
        return run_view(row)
    return read_ended(connection, key, slots=slots)


def read_ended(connection: apsw.Connection, key: RunKey, *, slots: int) -> RunView | None:
    """The ended run, or the collapsed mark that the instant lies in."""
    key_columns = (key.job_id % slots, key.job_id, key.scheduled_at)
    for row in connection.execute(_QUERIES["get_ended_view"], key_columns):
        return run_view(row)
    for row in connection.execute(_QUERIES["get_range_view"], key_columns):
        mark = run_view(row)
        if mark.until is not None and key.scheduled_at <= mark.until:
            return mark
    return None
