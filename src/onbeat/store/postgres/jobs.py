"""Definitions and their clocks, on PostgreSQL. Implements the contract's Jobs."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresJobs:
    """Jobs of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
