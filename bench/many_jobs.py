"""Many jobs in little time: their rows are made by the database out of one definition.

Through the store a job takes some 100 µs; ten million would take a quarter of an hour. The jobs differ in id, name and
planned instants. Ids ascend while the rows are written, so that the tables are filled from left to
right, but say nothing of when a job is due: those that fire together lie far apart.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from tests.support.database import Look, looking_into

from onbeat.clock import host_time_us
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.domain.model import SECOND_US, Definition, EverySchedule, WebhookTarget, encode_definition
from onbeat.store.database_url import is_postgres_url
from onbeat.store.open import open_store

_PRIMES: Final = (10_007, 100_003, 1_000_003, 10_000_019)
"""Jobs are numbered below one of them; number times a constant, modulo it, is another order of them."""
_GOLDEN: Final = 0.618034
_WRITTEN_AT_ONCE: Final = 200_000
_ANCHOR_US: Final = 1_111_111_111_000_000
"""Stands for the job's own anchor in the definition that is copied."""
_HOST: Final = "127.0.0.1"

_MADE: Final = """
WITH RECURSIVE ids (id) AS (SELECT CAST(? AS bigint) UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?),
numbers (job_id, number) AS (SELECT id * CAST(? AS bigint), id * CAST(? AS bigint) % CAST(? AS bigint) FROM ids),
made (job_id, slot, number, second) AS (
    SELECT job_id, job_id % 256, number, number / CAST(? AS bigint) FROM numbers WHERE number < ?
)
"""
_JOBS: Final = (
    _MADE
    + """
INSERT INTO jobs (
    job_id, slot, namespace, name, tags, version, state, definition, max_running, created_at, updated_at{column}
)
SELECT
    job_id, slot, 'default', 'Job ' || number, '[]', 1, 'active',
    replace(
        replace(?, ?, CAST((CAST(? AS bigint) + second) * 1000000 AS text)),
        ?, '127.0.0.' || (1 + number % CAST(? AS bigint))
    ),
    1, CAST(? AS bigint), CAST(? AS bigint){value}
FROM made
"""
)
_CLOCKS: Final = (
    _MADE
    + """
INSERT INTO clocks (slot, job_id, next_fire_at)
SELECT slot, job_id, (CAST(? AS bigint) + (second + CAST(? AS bigint)) % CAST(? AS bigint)) * 1000000 FROM made
"""
)


@dataclass(frozen=True, slots=True)
class JobShape:
    """`count` jobs, of which `per_second` are due at each full second."""

    count: int
    per_second: int
    url: str
    """Its host is 127.0.0.1."""
    addresses: int = 1
    """The jobs are spread over so many hosts: 127.0.0.1, 127.0.0.2 and on."""
    grace_s: int = 3_600
    every_s: int = 0
    """When each fires again. 0: after the last of them."""
    spread_s: int = 0
    """Each starts later than planned by a length of its own below this."""
    round_s: int = field(init=False)

    def __post_init__(self) -> None:
        if self.count > _PRIMES[-1] or self.count % self.per_second:
            raise ValueError(f"at most {_PRIMES[-1]:,} jobs, and a multiple of those per second")
        object.__setattr__(self, "round_s", self.every_s or self.count // self.per_second)


def create_jobs(data: str, shape: JobShape, *, first_at: int | None = None, lead_s: int = 5) -> int:
    """Write the jobs into an empty database. Answer: when the first of them are due, µs UTC.

    Without `first_at` that is `lead_s` after they are all there, at the earliest.
    """
    asyncio.run(make_schema(data))
    with looking_into(data) as look:
        began_at = host_time_us()
        anchor_s = (first_at or 0) // SECOND_US
        _write_jobs(look, shape, anchor_s=anchor_s, is_postgres=is_postgres_url(data))
        # Of ten million on SQLite, clocks take longer than jobs: their index is not filled from left to right.
        first_s = anchor_s or (3 * host_time_us() - 2 * began_at) // SECOND_US + lead_s
        _write_clocks(look, shape, anchor_s=anchor_s, first_s=first_s)
    return first_s * SECOND_US


async def make_schema(data: str) -> None:
    """What onbeat makes when it first opens a database."""
    await (await open_store(data)).close()


def _definition(shape: JobShape) -> str:
    return encode_definition(
        Definition(
            schedules=(EverySchedule(every_s=shape.round_s, anchor_at=_ANCHOR_US),),
            target=WebhookTarget(url=shape.url, payload='{"report":"daily","customer":4711}'),
            grace_s=shape.grace_s,
            spread_s=shape.spread_s,
        )
    )


def _write_jobs(look: Look, shape: JobShape, *, anchor_s: int, is_postgres: bool) -> None:
    folded = {"column": ", folded_name", "value": ", 'job ' || number"}
    statement = _JOBS.format(**(folded if is_postgres else {"column": "", "value": ""}))
    definition, now = _definition(shape), host_time_us()
    for copies in _copies(shape):
        look(statement, *copies, definition, str(_ANCHOR_US), anchor_s, _HOST, shape.addresses, now, now)


def _write_clocks(look: Look, shape: JobShape, *, anchor_s: int, first_s: int) -> None:
    turned_s = (anchor_s - first_s) % shape.round_s
    for copies in _copies(shape):
        look(_CLOCKS, *copies, first_s, turned_s, shape.round_s)


def _copies(shape: JobShape) -> list[tuple[int, ...]]:
    """The values of _MADE for one statement after the other."""
    prime = next(prime for prime in _PRIMES if prime >= shape.count)
    id_step = 2 ** (JOB_ID_BITS - 1) // prime | 1
    factor = round(prime * _GOLDEN)
    return [
        (start, min(start + _WRITTEN_AT_ONCE, prime), id_step, factor, prime, shape.per_second, shape.count)
        for start in range(0, prime, _WRITTEN_AT_ONCE)
    ]
