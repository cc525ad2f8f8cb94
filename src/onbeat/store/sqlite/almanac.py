"""The revision of calendars and blackouts in one data file: who keeps them in memory sees by it that they changed."""

from __future__ import annotations

import apsw

from onbeat.store.sqlite.queries import load_queries

_META = load_queries("meta")


def read_almanac_revision(connection: apsw.Connection) -> int:
    """The revision now."""
    revision: int = connection.execute(_META["almanac_revision"]).get
    return revision


def note_change_of_almanac(connection: apsw.Connection) -> bool:
    """Raise the revision, if the statement before this one changed a row. True: it did."""
    is_changed = connection.changes() > 0
    if is_changed:
        connection.execute(_META["raise_almanac_revision"])
    return is_changed
