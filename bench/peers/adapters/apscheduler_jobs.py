"""APScheduler 3: a date job for each fire, an asyncio scheduler, in memory or in a SQLAlchemy store (WORK_STORE).

No job may be dropped for being late (misfire_grace_time=None; the default is 1 s).
"""

import uvloop
from apscheduler.executors.asyncio import AsyncIOExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from work import DUE_AT, JOBS, PREPARES, STORE, call, for_ever


async def main() -> None:
    scheduler = AsyncIOScheduler(
        jobstores={"default": SQLAlchemyJobStore(STORE) if STORE else MemoryJobStore()},
        executors={"default": AsyncIOExecutor()},
        job_defaults={"misfire_grace_time": None},
        timezone="UTC",
    )
    scheduler.start(paused=True)
    if PREPARES or not STORE:
        for number in range(JOBS):
            scheduler.add_job(call, "date", run_date=DUE_AT, args=(number,), id=f"job-{number}")
    if not PREPARES:
        scheduler.resume()
        await for_ever()


uvloop.run(main())
