"""Named sets of days and the jobs behind them, on PostgreSQL. Implements the contract's Calendars."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresCalendars:
    """Calendars of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
