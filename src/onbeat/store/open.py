"""Opens the database behind a URL: the only place that knows which engines there are."""

from __future__ import annotations

from collections.abc import Callable

from onbeat.clock import host_time_us
from onbeat.store.contract import Store
from onbeat.store.database_url import is_postgres_url
from onbeat.store.postgres.store import open_database
from onbeat.store.sqlite.datafile import resolve_data_file
from onbeat.store.sqlite.migrate import DEFAULT_SLOTS
from onbeat.store.sqlite.store import open_data_file


async def open_store(
    url: str, *, create: bool = True, slots: int = DEFAULT_SLOTS, read_time: Callable[[], int] = host_time_us
) -> Store:
    """Open `sqlite:///relative/path`, `sqlite:////absolute/path`, a plain path, or `postgresql://user@host/database`.

    A data file's schema is brought up to date; a PostgreSQL database gets one only where it is empty.
    `slots` counts only where the database is new. `read_time` is the clock of an engine that has none of its own.
    Raises DataFileInUse, SchemaTooNew, StoreUnavailable, or ConfigError where the URL or the place cannot serve.
    """
    if is_postgres_url(url):
        return await open_database(url, create=create, slots=slots)
    return await open_data_file(resolve_data_file(url), create=create, slots=slots, read_time=read_time)
