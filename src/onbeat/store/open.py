"""Opens the database behind a URL: the only place that knows which engines there are."""

from __future__ import annotations

from collections.abc import Callable

from onbeat.clock import host_time_us
from onbeat.domain.errors import ConfigError
from onbeat.store.contract import Store
from onbeat.store.sqlite.datafile import resolve_data_file
from onbeat.store.sqlite.migrate import DEFAULT_SLOTS
from onbeat.store.sqlite.store import open_data_file


async def open_store(
    url: str, *, create: bool = True, slots: int = DEFAULT_SLOTS, read_time: Callable[[], int] = host_time_us
) -> Store:
    """Open `sqlite:///relative/path`, `sqlite:////absolute/path` or a plain path, and bring its schema up to date.

    `slots` counts only where the database is new. `read_time` is the clock of an engine that has none of its own.
    Raises DataFileInUse, SchemaTooNew, or ConfigError where the URL or the place cannot serve.
    """
    if url.startswith(("postgres://", "postgresql://")):
        raise ConfigError("this onbeat cannot use PostgreSQL", remedy="give the path of a SQLite data file")
    return await open_data_file(resolve_data_file(url), create=create, slots=slots, read_time=read_time)
