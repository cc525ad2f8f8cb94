"""Does the work once per run, though a run may be delivered more than once.

The trick is one transaction for two things: the note "this run is done" and the effect itself. Either both are
committed or neither is. So it holds for effects that live in the same database as the table, and for nothing else:
a mail that was sent or a call to a third party is not undone by a rollback. Give those the run id as their own key.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from onbeat.receiver.verification import VerifiedCall

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(?:\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class TransactionRequired(Exception):
    """The connection commits every statement by itself, so a claim would outlive a handler that fails."""


class Connection(Protocol):
    """A DB-API 2.0 connection, as far as it is used here."""

    def cursor(self) -> Any: ...


class Deduplicator:
    """A table of the runs that are done. Works with SQLite and PostgreSQL through any DB-API 2.0 driver.

    The driver must not be in autocommit mode, or a transaction must be open. Two deliveries at the same moment: the
    second waits until the first commits, and then is a duplicate, or rolls back, and then does the work.
    """

    def __init__(self, *, table: str = "onbeat_runs", paramstyle: str = "qmark") -> None:
        """`paramstyle` is the driver's: `sqlite3.paramstyle`, `psycopg.paramstyle`. Raises ValueError."""
        if not _NAME.fullmatch(table):
            raise ValueError(f"{table!r} is not a table's name")
        if paramstyle not in _PLACEHOLDERS:
            raise ValueError(f"paramstyle {paramstyle!r} is not one of {', '.join(_PLACEHOLDERS)}")
        mark = _PLACEHOLDERS[paramstyle]
        self._create = f"CREATE TABLE IF NOT EXISTS {table} (run_id TEXT PRIMARY KEY, received_at BIGINT NOT NULL)"
        # The table's name was checked above; values go in as parameters.
        self._insert = (
            f"INSERT INTO {table} (run_id, received_at) VALUES ({mark}, {mark}) ON CONFLICT (run_id) DO NOTHING"  # noqa: S608
        )
        self._delete = f"DELETE FROM {table} WHERE received_at < {mark}"  # noqa: S608

    def create_table(self, connection: Connection) -> None:
        """Create the table where there is none. Commit it before the first claim."""
        self._execute(connection, self._create, ())

    def claim(self, connection: Connection, call: VerifiedCall) -> bool:
        """True: this run is yours to do, in the transaction that is now open; commit it with the effect.

        False: it was done before. Answer 200 and do nothing. Raises TransactionRequired.
        """
        if getattr(connection, "in_transaction", True) is False and _commits_by_itself(connection):
            raise TransactionRequired("open a transaction first: claim and effect must be committed together")
        return self._execute(connection, self._insert, (call.run_id, call.timestamp)) == 1

    def forget(self, connection: Connection, *, before_s: int) -> int:
        """Delete notes of calls signed before then (seconds UTC); how many.

        Keep them longer than the job's `retry.max_age_s` (24 h by default) plus your longest outage: a run that comes
        after its note has gone is done again.
        """
        return self._execute(connection, self._delete, (before_s,))

    @staticmethod
    def _execute(connection: Connection, statement: str, parameters: tuple[object, ...]) -> int:
        cursor = connection.cursor()
        try:
            cursor.execute(statement, parameters)
            return int(cursor.rowcount)
        finally:
            cursor.close()


def _commits_by_itself(connection: Connection) -> bool:
    # sqlite3 says it in two ways, by version: isolation_level None, or autocommit True.
    return getattr(connection, "isolation_level", "") is None or getattr(connection, "autocommit", False) is True
