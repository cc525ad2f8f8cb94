"""Resuming a job together with what it lost: its failed runs come back first, then it goes on.

In that order a death in between loses nothing: the job is still paused, what came back waits in rows, and the same
request does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onbeat.domain.model import decode_definition
from onbeat.domain.states import JobState, RunState
from onbeat.services.bulk import act_on_each, count_found
from onbeat.services.jobs import Jobs
from onbeat.services.runs import REPLAYED, Runs
from onbeat.store.contract import Store
from onbeat.store.values import Page, RunFilter, RunView, StoredJob

MOST_REPLAYED: Final = 1_000
"""Runs that one request brings back, so that it is answered within seconds on a slow disk, too."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A job that goes on, and what came back with it."""

    job: StoredJob
    replayed: int
    left: int  # failed runs that stay ended because they were too many; exact up to 10,000


class Resumptions:
    """Resumes jobs with their failed runs."""

    def __init__(self, *, store: Store, jobs: Jobs, runs: Runs) -> None:
        self._store = store
        self._jobs = jobs
        self._runs = runs

    async def resume(self, job_id: int) -> Resumed:
        """Bring back what failed since the newest success, oldest first, and resume the job. Raises as Jobs.resume.

        A job that goes on already gets nothing back: that request has been answered before.
        """
        job = await self._jobs.get(job_id)
        if job.state != JobState.PAUSED or job.paused_by is not None:
            return Resumed(await self._jobs.resume(job_id), replayed=0, left=0)
        definition = decode_definition(job.definition)
        where = await self._failed_since_success(job_id)

        async def find(page: Page) -> Sequence[RunView]:
            return await self._store.runs.find_revivable(where, page)

        async def bring_back(run: RunView) -> bool:
            return await self._runs.replay_held(run, definition)

        acted = await act_on_each(find, bring_back, place=_place, after=None, limit=MOST_REPLAYED)
        left = 0
        if acted.last is not None:
            left = (await count_found(find, place=_place, after=_place(acted.last))).count
        return Resumed(await self._jobs.resume(job_id), replayed=acted.done, left=left)

    async def _failed_since_success(self, job_id: int) -> RunFilter:
        """Since the newest planned instant whose run succeeded: what it made good is not brought back."""
        succeeded = RunFilter(job_id=job_id, states=frozenset({RunState.SUCCEEDED}))
        newest = await self._store.runs.find(succeeded, Page(limit=1))
        since = newest[0].key.scheduled_at + 1 if newest else None
        return RunFilter(job_id=job_id, states=REPLAYED, scheduled_from=since)


def _place(run: RunView) -> tuple[int, int]:
    return run.key.scheduled_at, run.key.job_id
