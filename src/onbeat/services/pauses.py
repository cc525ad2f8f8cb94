"""Pauses of many jobs at once, of a tag or of everything, and pauses that end by themselves.

What is to be done stands in rows: a pause from its beginning until its last job has been resumed, a job's own pause
with its `paused_until`. So a restart goes on where the process before it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from onbeat.clock import Clock
from onbeat.domain.errors import JobNotFound, RequestError, StateConflict
from onbeat.domain.states import JobState
from onbeat.services.jobs import Jobs
from onbeat.services.runs import Runs
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import JobFilter, Page, Pause

log = structlog.get_logger(__name__)

CHUNK = 100
"""Jobs that are changed together: each in its own transaction, their commits in one group."""


@dataclass(frozen=True, slots=True)
class Paused:
    """What a pause came to, once every job that it covers is paused."""

    pause: Pause
    jobs: int
    side_effects_end_at: int


class Pauses:
    """Begins, ends and goes on with pauses."""

    def __init__(self, *, store: Store, clock: Clock, jobs: Jobs, runs: Runs, wake: Wake) -> None:
        self._store = store
        self._clock = clock
        self._jobs = jobs
        self._runs = runs
        self._wake = wake
        self._working = asyncio.Lock()

    async def pause(
        self, namespace: str, tag: str | None, *, note: str | None, until: int | None, cancel: bool
    ) -> Paused:
        """Pause every active job, or those with a tag; the answer comes when the last one is paused.

        Jobs that are paused already keep the pause that they have. Jobs that would become active meanwhile, new ones
        too, are paused instead.
        """
        now = self._clock.now()
        check_until(until, now=now)
        pause = Pause(namespace, tag or "", note, paused_at=now, until=until, cancels=cancel)
        await self._store.pauses.begin(pause)
        self._wake.set()
        async with self._working:
            jobs = await self._spread(pause)
        bound = await self._runs.side_effects_of_pause_end_at(pause)
        return Paused(pause, jobs, bound)

    async def resume(self, namespace: str, tag: str | None) -> int:
        """End such a pause. Jobs that paused by themselves stay so, those that another pause covers go over to it.

        Answer: how many jobs it held. Raises StateConflict where there is no such pause.
        """
        if not await self._store.pauses.end(namespace, tag or "", ended_at=self._clock.now()):
            raise StateConflict(
                f"there is no pause of the tag {tag!r}" if tag else "there is no pause of everything", field="scope"
            )
        async with self._working:
            ending = [pause for pause in await self._find(namespace) if pause.tag == (tag or "")]
            return sum([await self._resume_held(pause) for pause in ending if pause.ended_at is not None])

    async def find(self, namespace: str) -> list[Pause]:
        """Pauses that hold."""
        return [pause for pause in await self._find(namespace) if pause.ended_at is None]

    async def keep_up(self) -> int | None:
        """End what is over and go on with what a stopped process left. Answer: when the next pause ends, if known."""
        now = self._clock.now()
        await self._resume_over(now)
        async with self._working:
            left: list[int] = []
            for pause in await self._store.pauses.find():
                if pause.ended_at is None and pause.until is not None and pause.until <= now:
                    await self._store.pauses.end(pause.namespace, pause.tag, ended_at=pause.until)
                    await self._resume_held(_ended(pause))
                elif pause.ended_at is not None:
                    await self._resume_held(pause)
                elif not pause.is_spread:
                    await self._spread(pause)
                if pause.until is not None and pause.until > now:
                    left.append(pause.until)
        return min(left, default=None)

    async def _find(self, namespace: str) -> list[Pause]:
        return [pause for pause in await self._store.pauses.find() if pause.namespace == namespace]

    async def _spread(self, pause: Pause) -> int:
        where = JobFilter(namespace=pause.namespace, state=JobState.ACTIVE, tag=pause.tag or None)
        page = Page(limit=CHUNK)
        count = 0
        while found := await self._store.jobs.find(where, page):
            outcomes = await asyncio.gather(
                *(self._jobs.hold(job.job_id, pause) for job in found), return_exceptions=True
            )
            count += len(found) - _tell_failures(outcomes)
            page = Page(limit=CHUNK, after=(found[-1].created_at, found[-1].job_id))
        await self._store.pauses.note_spread(pause.namespace, pause.tag)
        return count

    async def _resume_held(self, pause: Pause) -> int:
        assert pause.ended_at is not None
        ended_at, count = pause.ended_at, 0
        while held := await self._store.pauses.jobs_held_by(pause.namespace, pause.tag, limit=CHUNK):
            outcomes = await asyncio.gather(
                *(self._jobs.resume_after(job_id, pause.tag, ended_at=ended_at) for job_id in held),
                return_exceptions=True,
            )
            if _tell_failures(outcomes) == len(held):
                return count  # the database does not answer; the loop goes on with it
            count += len(held)
        await self._store.pauses.drop(pause.namespace, pause.tag)
        return count

    async def _resume_over(self, now: int) -> None:
        while over := await self._store.pauses.jobs_over(now=now, limit=CHUNK):
            outcomes = await asyncio.gather(
                *(self._jobs.resume_after(job_id, None, ended_at=now) for job_id in over), return_exceptions=True
            )
            if _tell_failures(outcomes):
                return


def check_until(until: int | None, *, now: int) -> None:
    """Raises RequestError where a pause would be over before it began."""
    if until is not None and until <= now:
        raise RequestError("a pause ends in the future", field="until", remedy="give a later instant or leave it out")


def _ended(pause: Pause) -> Pause:
    return Pause(pause.namespace, pause.tag, pause.note, pause.paused_at, ended_at=pause.until)


def _tell_failures(outcomes: Sequence[object]) -> int:
    """Log those that failed, but for jobs that are gone. Answer: how many that were."""
    failures = [
        outcome for outcome in outcomes if isinstance(outcome, Exception) and not isinstance(outcome, JobNotFound)
    ]
    for failure in failures:
        log.error("pause_incomplete", error=str(failure))
    return len(failures)
