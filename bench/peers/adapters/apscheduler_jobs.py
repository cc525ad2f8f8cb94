"""APScheduler 3: a cron job for each fire, an asyncio scheduler, in memory or in a SQLAlchemy store (WORK_STORE).

No job may be dropped for being late (misfire_grace_time=None; the default is 1 s). Jobs in memory are those that the
program declares when it starts, so after a restart too; those in a store are written once.
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
            at = {"hour": DUE_AT.hour, "minute": DUE_AT.minute}
            scheduler.add_job(call, "cron", **at, args=(number,), id=f"job-{number}")
    if not PREPARES:
        scheduler.resume()
        await for_ever()


uvloop.run(main())
