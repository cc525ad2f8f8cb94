"""PgQueuer: a job for each fire with `execute_after`, over an asyncpg pool, on uvloop. WORK_STORE: the database.

batch_size is 100 (default: 10), as many as it runs at once.
"""

from datetime import UTC, datetime

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from work import AT_ONCE, DUE_AT, JOBS, PREPARES, STORE, call


async def prepare() -> None:
    connection = await asyncpg.connect(STORE)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    left = DUE_AT - datetime.now(UTC)  # noqa: TID251  it asks for a length, so a clock has to be read
    numbers = [str(number).encode() for number in range(JOBS)]
    await queries.enqueue(["call"] * JOBS, numbers, [0] * JOBS, [left] * JOBS)
    await connection.close()


async def run() -> None:
    async with asyncpg.create_pool(STORE, min_size=2, max_size=10) as pool:
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("call")
        async def call_sink(job: Job) -> None:
            await call(int(job.payload or b""))

        await queuer.run(batch_size=AT_ONCE, max_concurrent_tasks=2 * AT_ONCE)


uvloop.run(prepare() if PREPARES else run())
