"""A database of either engine, as tests name it and look into it past the product."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw
import asyncpg

from onbeat.store.database_url import is_postgres_url

T = TypeVar("T")

Data = Path | str
"""A data file, or the URL of a PostgreSQL database: the setting `data`."""


class Look(Protocol):
    """Runs a statement that both engines understand, with `?` for values. Answer: its rows."""

    def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]: ...


@contextlib.contextmanager
def looking_into(data: Data) -> Iterator[Look]:
    """A connection of our own."""
    if is_postgres_url(str(data)):
        with _postgres(str(data)) as look:
            yield look
        return
    connection = apsw.Connection(str(data))
    connection.set_busy_timeout(10_000)

    def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(connection.execute(statement, values))

    try:
        yield run
    finally:
        connection.close()


@contextlib.contextmanager
def _postgres(url: str) -> Iterator[Look]:
    """On a loop and a thread of its own: tests look from inside their loop and from outside of any."""
    with ThreadPoolExecutor(1) as thread, contextlib.closing(asyncio.new_event_loop()) as loop:

        def wait_for(work: Awaitable[T]) -> T:
            return thread.submit(loop.run_until_complete, work).result()

        connection = wait_for(_connect(url))

        def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
            numbers = iter(range(1, len(values) + 1))
            numbered = re.sub(r"\?", lambda _match: f"${next(numbers)}", statement)
            return [tuple(row) for row in wait_for(connection.fetch(numbered, *values))]

        try:
            yield run
        finally:
            wait_for(connection.close())


async def _connect(url: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(url)


def look(data: Data, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """One statement."""
    with looking_into(data) as run:
        return run(statement, *values)
