"""Runs that are asked for by hand, beside the clock of their job. Those of one job stand in a line: see `lines.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import asyncpg
import msgspec

from onbeat.domain.errors import OnbeatError
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.store.hints import Hint, hint_of_runs
from onbeat.store.postgres.after_finish import withhold_clocks
from onbeat.store.postgres.database import Connection, Database
from onbeat.store.postgres.lines import Lines
from onbeat.store.postgres.locks import Lanes, lock_job, lock_lanes
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.recording import RunToWrite, insert_runs
from onbeat.store.rows import run_view
from onbeat.store.values import DueJob, NewRun, RunView, StoredJob

_RUNS = load_queries("runs")

REFUSED = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError)
"""What the database says of a plan that it cannot hold."""

Inserted: TypeAlias = list[RunView] | None


class Call(msgspec.Struct, frozen=True, gc=False):
    """One call of the contract's `insert_run`."""

    now: int
    decide: Callable[[DueJob], tuple[NewRun, ...]]


class Insertions:
    """Calls of `insert_run` on one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots
        self._lines: Lines[Call, Inserted] = Lines(self._do_together)

    async def do(self, job_id: int, call: Call) -> Inserted:
        """Do it, with those for the same job that wait."""
        return await self._lines.call(job_id, call)

    async def _do_together(self, job_id: int, calls: Sequence[Call]) -> Sequence[Inserted | Exception]:
        """Each in its turn, in one transaction; where the database refuses that, in one for each."""
        try:
            return await self._database.write(
                lambda connection: self._write(connection, job_id, calls),
                hint=_hint_of_answers,
                slot=job_id % self._slots,
            )
        except _TogetherRefusedError:
            return [await self._do_alone(job_id, call) for call in calls]

    async def _do_alone(self, job_id: int, call: Call) -> Inserted | Exception:
        try:
            (answer,) = await self._do_together(job_id, [call])
        except OnbeatError as error:
            return error
        return answer

    async def _write(
        self, connection: Connection, job_id: int, calls: Sequence[Call]
    ) -> Sequence[Inserted | Exception]:
        job = await lock_job(connection, job_id, slot=job_id % self._slots)
        if job is None:
            return [None] * len(calls)
        batch = _Batch(connection, job, slots=self._slots)
        try:
            answers = [await batch.do(call) for call in calls]
        except REFUSED as error:
            if len(calls) == 1:
                raise
            raise _TogetherRefusedError from error
        await withhold_clocks(connection, [job_id], slots=self._slots, now=calls[-1].now)
        return answers


class _TogetherRefusedError(Exception):
    """The database refused a plan of one of them."""


class _Batch:
    """One transaction's calls for a job, whose row it holds."""

    def __init__(self, connection: Connection, job: StoredJob, *, slots: int) -> None:
        self._connection = connection
        self._job = job
        self._slots = slots
        self._lanes: Lanes | None = None  # None: to be read

    async def do(self, call: Call) -> Inserted | Exception:
        """Decide, write, look. An error of the decision is its caller's, and changes nothing."""
        job, slot = self._job, self._job.job_id % self._slots
        if self._lanes is None:
            lanes = await lock_lanes(self._connection, [job.job_id], slots=self._slots)
            self._lanes = lanes.get(job.job_id, ((), None))
        try:
            runs = call.decide(DueJob(job, call.now, *self._lanes))
        except Exception as error:
            return error
        if not all(_only_waits(run) for run in runs):
            self._lanes = None
        held = job.state in (JobState.PAUSED, JobState.DELETED)
        to_write = [RunToWrite(slot, job, run) for run in runs]
        written = await insert_runs(self._connection, to_write, held=held, now=call.now) if to_write else set()
        return [
            run_view(tuple(view))
            for run in runs
            if (job.job_id, run.scheduled_at) in written
            for view in await self._connection.fetch(_RUNS["get_live_view"], slot, job.job_id, run.scheduled_at)
        ]


def _hint_of_answers(answers: Sequence[Inserted | Exception]) -> Hint | None:
    views = [view for answer in answers if isinstance(answer, list) for view in answer]
    ready_ats = [view.ready_at for view in views if view.state is RunState.PENDING and view.ready_at is not None]
    return hint_of_runs(ready_at=min(ready_ats, default=None))


def _only_waits(run: NewRun) -> bool:
    """Whether the lanes, and the newest run of the schedule that waits for one, stay as they were."""
    return run.lane is None and run.displaces is None and run.trigger is Trigger.MANUAL
