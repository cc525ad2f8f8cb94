"""A fire becomes a run, on PostgreSQL. Implements the contract's Fires."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresFires:
    """Fires of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
