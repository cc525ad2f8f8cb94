"""Where the data of a scenario is: a file or a server made for it, and how the bare writes on it are measured."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.postgres import Databases, running_postgres

from bench.bare_rows import write_to_postgres, write_to_sqlite
from bench.measures import Measure, cpu_s_of_server

ENGINES = ("sqlite", "postgres")
BATCH = 500


@dataclass(frozen=True, slots=True)
class Place:
    """An empty database with onbeat's schema."""

    data: str
    """The setting `data`."""
    engine: str
    server_cpu_s: Callable[[], float]
    """CPU seconds of the database's own processes so far; 0 on SQLite, which has none."""
    write_bare: Callable[[int, int], Measure]
    """Fires and jobs: the limit."""


@contextlib.contextmanager
def fresh_place(engine: str) -> Iterator[Place]:
    """A place that is gone after the block; commits are durable on both engines."""
    with _on_sqlite() if engine == "sqlite" else _on_postgres() as place:
        yield place


@contextlib.contextmanager
def _on_sqlite() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="onbeat-bench-") as folder:

        def write_bare(fires: int, jobs: int) -> Measure:
            file = Path(folder) / "bare.sqlite3"
            return write_to_sqlite(file, fires=fires, batch=BATCH, jobs=jobs, randomness=random.Random(7))

        yield Place(str(Path(folder) / "bench.sqlite3"), "sqlite", lambda: 0.0, write_bare)


@contextlib.contextmanager
def _on_postgres() -> Iterator[Place]:
    with running_postgres() as server:
        url = asyncio.run(Databases(server).create())

        def write_bare(fires: int, jobs: int) -> Measure:
            return asyncio.run(
                write_to_postgres(
                    url, server=server.pid, fires=fires, batch=BATCH, jobs=jobs, randomness=random.Random(7)
                )
            )

        yield Place(url, "postgres", lambda: cpu_s_of_server(server.pid), write_bare)
