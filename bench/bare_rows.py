"""The limit that a store is compared with: the rows of a fire (clock, history) written in the same batches and with the
same durability, and nothing decided or read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg

from bench.measures import Measure, Stopwatch, cpu_s_of_server
from onbeat.store.sqlite.connection import open_writing_connection

_NAME = "bare rows"
_BODY = bytes(110)


def write_to_sqlite(path: Path, *, fires: int, batch: int, jobs: int, randomness: random.Random) -> Measure:
    """On a new data file."""
    connection = open_writing_connection(str(path))
    connection.pragma("wal_autocheckpoint", 8_192)
    connection.execute("CREATE TABLE clock (job INTEGER PRIMARY KEY, at INTEGER) STRICT")
    connection.execute("CREATE TABLE history (id INTEGER PRIMARY KEY, job INTEGER, at INTEGER, body BLOB) STRICT")
    connection.execute("CREATE UNIQUE INDEX history_key ON history (job, at)")
    with connection:
        connection.executemany("INSERT INTO clock VALUES (?, 0)", ((job,) for job in range(jobs)))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    watch = Stopwatch()
    for start, chosen in _batches(fires=fires, batch=batch, jobs=jobs, randomness=randomness):
        with connection:
            connection.executemany("UPDATE clock SET at = ? WHERE job = ?", [(start, job) for job in chosen])
            connection.executemany(
                "INSERT INTO history (job, at, body) VALUES (?, ?, ?)",
                [(job, start + number, _BODY) for number, job in enumerate(chosen)],
            )
    measure = watch.stop(_NAME, fires)
    connection.close()
    return measure


async def write_to_postgres(
    url: str, *, server: int, fires: int, batch: int, jobs: int, randomness: random.Random
) -> Measure:
    """In a database of the server whose process id is `server`."""
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE SCHEMA bare; SET search_path = bare")
    await connection.execute("CREATE TABLE clock (job bigint PRIMARY KEY, at bigint) WITH (fillfactor = 70)")
    await connection.execute("CREATE TABLE history (job bigint, at bigint, body bytea, PRIMARY KEY (job, at))")
    await connection.execute("INSERT INTO clock SELECT job, 0 FROM generate_series(0, $1::bigint - 1) AS job", jobs)
    await connection.execute("CHECKPOINT")
    watch = Stopwatch(lambda: cpu_s_of_server(server))
    for start, chosen in _batches(fires=fires, batch=batch, jobs=jobs, randomness=randomness):
        async with connection.transaction():
            await connection.execute(
                "UPDATE clock SET at = $1 FROM unnest($2::bigint[]) AS chosen (job) WHERE clock.job = chosen.job",
                start,
                chosen,
            )
            await connection.execute(
                "INSERT INTO history SELECT job, at, $1 FROM unnest($2::bigint[], $3::bigint[]) AS fired (job, at)",
                _BODY,
                chosen,
                list(range(start, start + batch)),
            )
    measure = watch.stop(_NAME, fires)
    await connection.close()
    return measure


def _batches(*, fires: int, batch: int, jobs: int, randomness: random.Random) -> Iterator[tuple[int, list[int]]]:
    for start in range(0, fires, batch):
        yield start, [randomness.randrange(jobs) for _ in range(batch)]
