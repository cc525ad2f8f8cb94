"""Blackouts as they stand, on PostgreSQL. Implements the contract's Blackouts."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresBlackouts:
    """Blackouts of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
