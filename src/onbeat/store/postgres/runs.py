"""What became of fires, for people, on PostgreSQL. Implements the contract's Runs."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresRuns:
    """Runs of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
