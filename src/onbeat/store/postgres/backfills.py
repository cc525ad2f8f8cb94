"""Runs of the past that people asked for, on PostgreSQL. Implements the contract's Backfills."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresBackfills:
    """Backfills of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
