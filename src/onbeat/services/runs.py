"""Runs, for people: look at them, trigger one by hand, cancel, retry."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from onbeat.clock import Clock
from onbeat.domain.errors import DefinitionError, JobNotFound, RunNotFound, RunTerminal, StateConflict
from onbeat.domain.ids import RunKey
from onbeat.domain.model import MAX_RUNNING, SECOND_US, Definition, QueueTarget, decode_definition
from onbeat.domain.overlap import Admission, Admitted, Lanes, forced_lane
from onbeat.domain.priority import standing_behind
from onbeat.domain.states import ENDED, LIVE, JobState, RunState, Trigger
from onbeat.services.handoff import Handoff
from onbeat.services.recovery import Recovery
from onbeat.services.running import RunningHere
from onbeat.store.contract import Store
from onbeat.store.values import AttemptView, DueJob, NewRun, Page, Pause, RunFilter, RunView, StoredJob

TRIGGER_TRIES = 10
"""Two manual runs in one microsecond want the same key; the later one takes another, drawn from four times as many
microseconds with each try. While a clock that was stepped back stands still, all of them want the same one."""


PAUSE_BOUND_US = 5_000_000
"""No new side effect begins later than this after a pause. Source: reliability P14."""

LONGEST_RUN_US = 30 * 86_400 * SECOND_US
"""What `max_run_time_s` may be at most: for a run whose deadline is not told."""

LARGEST_PAGE = 1_000

REMEMBERED_NAMESPACES = 100_000

REPLAYED = frozenset({RunState.FAILED, RunState.TIMED_OUT})
"""What comes back where nobody names states: somebody wanted an end of `cancelled` runs, and `unknown` ones may have
had their effect."""


class Runs:
    """What people do with runs."""

    def __init__(
        self, *, store: Store, clock: Clock, handoff: Handoff, running: RunningHere, recovery: Recovery
    ) -> None:
        self._store = store
        self._clock = clock
        self._handoff = handoff
        self._running = running
        self._recovery = recovery
        self._placing = asyncio.Lock()
        self._namespaces: dict[int, str] = {}

    async def get(self, key: RunKey) -> RunView:
        """Raises RunNotFound."""
        run = await self._store.runs.get(key)
        if run is None:
            raise RunNotFound
        return run

    async def find(self, where: RunFilter, page: Page, *, namespace: str) -> list[RunView]:
        """Runs of jobs in `namespace`, newest planned instant first. With `job_id`, the caller answers for that job."""
        return await self._find(self._store.runs.find, where, page, namespace=namespace)

    async def find_revivable(self, where: RunFilter, page: Page, *, namespace: str) -> list[RunView]:
        """Of these runs, those that can be brought back, oldest planned instant first."""
        return await self._find(self._store.runs.find_revivable, where, page, namespace=namespace)

    async def last_responses(self, runs: Sequence[RunView]) -> dict[RunKey, bytes]:
        """What the receivers answered last, as in `AttemptView.response`; runs without an answer are left out."""
        return await self._store.runs.last_responses([run.key for run in runs])

    async def _find(
        self,
        find: Callable[[RunFilter, Page], Awaitable[list[RunView]]],
        where: RunFilter,
        page: Page,
        *,
        namespace: str,
    ) -> list[RunView]:
        if where.job_id is not None:
            return await find(where, page)
        found: list[RunView] = []
        while True:
            looked_at = await find(where, page)
            found += [run for run in looked_at if await self._namespace_of(run.key.job_id) == namespace]
            if len(found) >= page.limit or len(looked_at) < page.limit:
                return found[: page.limit]
            last = looked_at[-1].key
            page = replace(page, after=(last.scheduled_at, last.job_id))

    async def _namespace_of(self, job_id: int) -> str | None:
        """A job never moves to another namespace, so what was read once holds."""
        if job_id not in self._namespaces:
            job = await self._store.jobs.get(job_id)
            if job is None:
                return None
            if len(self._namespaces) >= REMEMBERED_NAMESPACES:
                self._namespaces.clear()
            self._namespaces[job_id] = job.namespace
        return self._namespaces[job_id]

    async def side_effects_end_at(self, paused: StoredJob, *, asked_to_stop: bool) -> int:
        """When the last side effect of a paused job can happen, at the latest.

        1. Nothing begins later than 5 s after the pause (design §3, "Permit").
        2. An attempt that runs ends with its timeout. One that was asked to stop ends when its worker hears of it:
           with its next heartbeat, at the latest when its lease ends.
        3. A queue's worker, and a handler that reports by itself, has no timeout of ours: there the run's deadline
           counts.
        """
        now = self._clock.now()
        bound = (now if paused.paused_at is None else paused.paused_at) + PAUSE_BOUND_US
        where = RunFilter(job_id=paused.job_id, states=frozenset({RunState.RUNNING}))
        for run in await self._store.runs.find(where, Page(limit=LARGEST_PAGE)):
            end = _attempt_ends_at(run, paused, now=now)
            if asked_to_stop and run.lease_until is not None:
                end = min(end, run.lease_until)
            bound = max(bound, end)
        return bound

    async def side_effects_of_pause_end_at(self, pause: Pause) -> int:
        """The same for a pause of many jobs, all of which are paused now."""
        bound = self._clock.now() + PAUSE_BOUND_US
        page = Page(limit=LARGEST_PAGE)
        where = RunFilter(states=frozenset({RunState.RUNNING}))
        jobs: dict[int, int] = {}
        while running := await self._store.runs.find(where, page):
            for job_id in {run.key.job_id for run in running} - jobs.keys():
                job = await self._store.jobs.get(job_id)
                is_covered = job is not None and job.namespace == pause.namespace
                if job is not None and is_covered and (not pause.tag or pause.tag in job.tags):
                    jobs[job_id] = await self.side_effects_end_at(job, asked_to_stop=pause.cancels)
            last = running[-1].key
            page = Page(limit=LARGEST_PAGE, after=(last.scheduled_at, last.job_id))
        return max([bound, *jobs.values()])

    async def count_overdue(self) -> int:
        """How many runs go on beyond their max_run_time."""
        return await self._store.leases.count_overdue(now=self._clock.now())

    async def attempts(self, key: RunKey) -> Sequence[AttemptView]:
        """Every finished attempt of a run. Raises RunNotFound."""
        await self.get(key)
        return await self._store.runs.attempts(key)

    async def trigger(self, job_id: int, *, payload: str | None, force: bool = False) -> RunView:
        """Run a job now, beside its schedule. It waits for a lane like any other run, and replaces none; with `force`
        it waits for nothing and runs beside everything.

        `scheduled_at` is never a whole second, so it cannot collide with a planned fire.
        """
        for tries in range(TRIGGER_TRIES):
            now = self._clock.now()
            scheduled_at = now + secrets.randbelow(4**tries)
            scheduled_at += scheduled_at % SECOND_US == 0

            def decide(due: DueJob, scheduled_at: int = scheduled_at, now: int = now) -> tuple[NewRun, ...]:
                return (_manual_run(due, scheduled_at=scheduled_at, now=now, payload=payload, force=force),)

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
        """Bring an ended run back under its own id, ready at once. Raises RunNotFound, StateConflict."""
        run = await self.get(key)
        definition = await self._definition_to_retry_by(key.job_id)
        now = self._clock.now()
        await self._revive(run, definition, now=now, ready_at=now, priority=definition.priority)
        return await self.get(key)

    async def replay(self, key: RunKey) -> bool:
        """Bring back one of many: ready at the first free place under the recovery rate, and behind live work.

        Places are given in the order of the calls, so whoever calls with the oldest first has the oldest start first.
        False: the run has come back already. Raises RunNotFound, StateConflict.
        """
        async with self._placing:
            run = await self.get(key)
            if run.state in LIVE:
                return False
            definition = await self._definition_to_retry_by(key.job_id)
            now = self._clock.now()
            ready_at = self._recovery.next_place(earliest=now)
        priority = standing_behind(definition.priority)
        await self._revive(run, definition, now=now, ready_at=ready_at, priority=priority)
        return True

    async def replay_held(self, run: RunView, definition: Definition) -> bool:
        """As `replay`, of a job that is paused and about to be resumed: until then the run waits. False: it cannot come
        back any more.
        """
        now = self._clock.now()
        ready_at = self._recovery.next_place(earliest=now)
        try:
            await self._revive(
                run, definition, now=now, ready_at=ready_at, priority=standing_behind(definition.priority)
            )
        except (RunNotFound, StateConflict):
            return False
        return True

    async def _definition_to_retry_by(self, job_id: int) -> Definition:
        job = await self._store.jobs.get(job_id)
        if job is None or job.state == JobState.DELETED:
            raise StateConflict("the run's job is gone", remedy="create the job again and trigger it")
        _check_may_run(job)
        return decode_definition(job.definition)

    async def _revive(self, run: RunView, definition: Definition, *, now: int, ready_at: int, priority: int) -> None:
        late_after = run.key.scheduled_at + run.moved_us + definition.grace_s * SECOND_US
        state = await self._store.leases.revive(
            run.key, now=now, ready_at=ready_at, late_after=late_after, priority=priority
        )
        if state is None:
            raise RunNotFound
        if state != RunState.PENDING:
            raise StateConflict(
                f"the run is {state}; only a run that ended without success can be retried", field="state"
            )
        self._handoff.wake(run.queue)


def _attempt_ends_at(run: RunView, job: StoredJob, *, now: int) -> int:
    latest = now + LONGEST_RUN_US if run.deadline_at is None else run.deadline_at
    try:
        definition = decode_definition(job.definition)
    except DefinitionError:
        return latest
    if isinstance(definition.target, QueueTarget) or definition.completion == "callback":
        return latest
    begun_by = (now if run.attempt_started_at is None else run.attempt_started_at) + PAUSE_BOUND_US
    timeout_us = round(definition.timeout_s * SECOND_US)
    # The pause itself raised the version by one. More than that, and the run may have begun with a longer timeout.
    return min(begun_by + timeout_us, latest) if job.version - run.job_version <= 1 else latest


def _admit(due: DueJob, definition: Definition, scheduled_at: int) -> Admission:
    lanes = Lanes(max_running=definition.max_running, policy=definition.overlap, holds=due.holds, waiting=due.waiting)
    return lanes.admit(scheduled_at, Trigger.MANUAL)


def _force(due: DueJob) -> Admission:
    lane = forced_lane(due.holds)
    if lane is None:
        raise StateConflict(f"{MAX_RUNNING} forced runs of this job are going on", field="force")
    return Admitted(lane)


def _check_may_run(job: StoredJob) -> None:
    if job.state not in (JobState.ACTIVE, JobState.COMPLETED):
        raise StateConflict(
            f"the job is {job.state}", field="state", remedy="resume it first" if job.state == JobState.PAUSED else None
        )


def _manual_run(due: DueJob, *, scheduled_at: int, now: int, payload: str | None, force: bool) -> NewRun:
    job = due.job
    _check_may_run(job)
    definition = decode_definition(job.definition)
    admission = _force(due) if force else _admit(due, definition, scheduled_at)
    target = definition.target
    return NewRun(
        scheduled_at=scheduled_at,
        trigger=Trigger.MANUAL,
        ready_at=now,
        late_after=scheduled_at + definition.grace_s * SECOND_US,
        lane=admission.lane if isinstance(admission, Admitted) else None,
        displaces=admission.displaces if isinstance(admission, Admitted) else None,
        queue=target.queue if isinstance(target, QueueTarget) else None,
        payload=payload,
        max_run_us=definition.max_run_time_s * SECOND_US,
        priority=definition.priority,
    )
