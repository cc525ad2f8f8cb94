"""Procrastinate: a job for each fire with `schedule_at`, one worker, on uvloop. WORK_STORE: the database.

The worker looks every second (default: 5). Jobs of a worker that has died come back by the task that its guide gives
for that, here every 10 s.
"""

import uvloop
from procrastinate import App, JobContext, PsycopgConnector
from work import AT_ONCE, DUE_AT, JOBS, PREPARES, STORE, call

app = App(connector=PsycopgConnector(conninfo=STORE, min_size=2, max_size=10))


@app.task(name="call")
async def call_sink(number: int) -> None:
    await call(number)


@app.periodic(cron="* * * * * */10")
@app.task(name="retry_stalled", queueing_lock="retry_stalled", pass_context=True)
async def retry_stalled(context: JobContext, timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


async def prepare() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        deferrer = call_sink.configure(schedule_at=DUE_AT)
        for start in range(0, JOBS, 1_000):
            numbers = range(start, min(start + 1_000, JOBS))
            await deferrer.batch_defer_async(*({"number": number} for number in numbers))


async def run() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=AT_ONCE, fetch_job_polling_interval=1.0)


uvloop.run(prepare() if PREPARES else run())
