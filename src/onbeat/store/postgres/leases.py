"""Who may deliver what, until when, on PostgreSQL. Implements the contract's Leases."""

from __future__ import annotations

from onbeat.store.postgres.database import Database


class PostgresLeases:
    """Leases of one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
