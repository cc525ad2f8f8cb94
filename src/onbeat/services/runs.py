"""Runs, for people: look at them, trigger one by hand, cancel, retry."""

from __future__ import annotations

from collections.abc import Sequence

from onbeat.clock import Clock
from onbeat.domain.errors import JobNotFound, RunNotFound, RunTerminal, StateConflict
from onbeat.domain.ids import RunKey
from onbeat.domain.model import SECOND_US, QueueTarget, decode_definition
from onbeat.domain.overlap import Admitted, Lanes
from onbeat.domain.states import ENDED, JobState, RunState, Trigger
from onbeat.services.handoff import Handoff
from onbeat.services.running import RunningHere
from onbeat.store.contract import Store
from onbeat.store.values import AttemptView, DueJob, NewRun, Page, RunFilter, RunView

TRIGGER_TRIES = 8
"""Two manual runs in one microsecond want the same key; the later one takes the next microsecond."""


class Runs:
    """What people do with runs."""

    def __init__(self, *, store: Store, clock: Clock, handoff: Handoff, running: RunningHere) -> None:
        self._store = store
        self._clock = clock
        self._handoff = handoff
        self._running = running

    async def get(self, key: RunKey) -> RunView:
        """Raises RunNotFound."""
        run = await self._store.runs.get(key)
        if run is None:
            raise RunNotFound
        return run

    async def find(self, where: RunFilter, page: Page) -> list[RunView]:
        """Runs, newest planned instant first."""
        return await self._store.runs.find(where, page)

    async def attempts(self, key: RunKey) -> Sequence[AttemptView]:
        """Every finished attempt of a run. Raises RunNotFound."""
        await self.get(key)
        return await self._store.runs.attempts(key)

    async def trigger(self, job_id: int, *, payload: str | None) -> RunView:
        """Run a job now, beside its schedule. It waits for a lane like any other run, and replaces none.

        `scheduled_at` is never a whole second, so it cannot collide with a planned fire.
        """
        for extra_us in range(TRIGGER_TRIES):
            now = self._clock.now()
            scheduled_at = now + extra_us + (1 if (now + extra_us) % SECOND_US == 0 else 0)

            def decide(due: DueJob, scheduled_at: int = scheduled_at, now: int = now) -> tuple[NewRun, ...]:
                return (_manual_run(due, scheduled_at=scheduled_at, now=now, payload=payload),)

            written = await self._store.fires.insert_run(job_id, now=now, decide=decide)
            if written is None:
                raise JobNotFound
            if written:
                self._handoff.wake(written[0].queue)
                return written[0]
        raise StateConflict("too many runs were triggered in the same microsecond", remedy="send the request again")

    async def cancel(self, key: RunKey) -> RunView:
        """End a run that waits; ask one that runs to stop. Raises RunNotFound, RunTerminal."""
        state = await self._store.leases.cancel(key, now=self._clock.now())
        if state is None:
            raise RunNotFound
        if state in ENDED and state != RunState.CANCELLED:
            raise RunTerminal(f"the run has already ended as {state}")
        if state == RunState.RUNNING:
            self._running.cancel([key])
        else:
            self._handoff.wake(None)
        return await self.get(key)

    async def retry(self, key: RunKey) -> RunView:
        """Bring an ended run back under its own id. Raises RunNotFound, StateConflict."""
        run = await self.get(key)
        job = await self._store.jobs.get(key.job_id)
        if job is None or job.state == JobState.DELETED:
            raise StateConflict("the run's job is gone", remedy="create the job again and trigger it")
        now = self._clock.now()
        grace_us = decode_definition(job.definition).grace_s * SECOND_US
        state = await self._store.leases.revive(key, now=now, late_after=key.scheduled_at + grace_us)
        if state is None:
            raise RunNotFound
        if state != RunState.PENDING:
            raise StateConflict(
                f"the run is {state}; only a run that ended without success can be retried", field="state"
            )
        self._handoff.wake(run.queue)
        return await self.get(key)


def _manual_run(due: DueJob, *, scheduled_at: int, now: int, payload: str | None) -> NewRun:
    job = due.job
    if job.state not in (JobState.ACTIVE, JobState.COMPLETED):
        raise StateConflict(
            f"the job is {job.state}", field="state", remedy="resume it first" if job.state == JobState.PAUSED else None
        )
    definition = decode_definition(job.definition)
    lanes = Lanes(max_running=definition.max_running, policy=definition.overlap, holds=due.holds, waiting=due.waiting)
    admission = lanes.admit(scheduled_at, Trigger.MANUAL)
    target = definition.target
    return NewRun(
        scheduled_at=scheduled_at,
        trigger=Trigger.MANUAL,
        ready_at=now,
        late_after=scheduled_at + definition.grace_s * SECOND_US,
        lane=admission.lane if isinstance(admission, Admitted) else None,
        queue=target.queue if isinstance(target, QueueTarget) else None,
        payload=payload,
        max_run_us=definition.max_run_time_s * SECOND_US,
    )
