"""Pauses of a tag or of everything, on PostgreSQL. Implements the contract's Pauses."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresPauses:
    """Pauses of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
