"""Claim, heartbeat, permit, finish, release: the worker's side of the scheduler."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

import structlog

from onbeat.clock import Clock
from onbeat.domain.auto_pause import FAILURES, lengthened, reason_to_pause
from onbeat.domain.errors import ConfigError, DefinitionError, OnbeatError
from onbeat.domain.ids import format_run_id
from onbeat.domain.model import SECOND_US, AutoPausePolicy, Definition, WebhookTarget
from onbeat.domain.moved_start import moved_start
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.retry import Accept, AttemptFacts, GiveUp, decide_retry
from onbeat.domain.states import RunState, Trigger
from onbeat.services.assignment import Assignment, Held
from onbeat.services.definitions import DefinitionCache
from onbeat.services.endings import Endings
from onbeat.services.handoff import Handoff, NewLeases, Parked
from onbeat.services.readiness import Readiness
from onbeat.services.signing_secrets import SigningSecrets
from onbeat.store.contract import Store
from onbeat.store.values import (
    AcceptRun,
    EndRun,
    Finish,
    Finished,
    FinishResult,
    LeasedRun,
    LeaseStatus,
    LiveRun,
    RetryRun,
    Verdict,
)

log = structlog.get_logger(__name__)

LARGEST_CLAIM = 1_000


class Leasing:
    """What a worker named `worker` may do. One object per worker; they share everything else."""

    def __init__(
        self,
        worker: str,
        *,
        store: Store,
        clock: Clock,
        handoff: Handoff,
        readiness: Readiness,
        definitions: DefinitionCache,
        secrets: SigningSecrets,
        endings: Endings,
        public_url: str | None,
        lease_s: float,
        jitter: random.Random,
    ) -> None:
        self._worker = worker
        self._store = store
        self._clock = clock
        self._handoff = handoff
        self._readiness = readiness
        self._definitions = definitions
        self._secrets = secrets
        self._endings = endings
        self._public_url = public_url
        self._lease_us = round(lease_s * SECOND_US)
        self._jitter = jitter
        self._parked: set[Parked] = set()
        self._stopped = False

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        """Up to `limit` attempts of `queue`, waiting up to `wait_s` for the first.

        1. Stand in line, so that the dispatcher can hand fires over.
        2. Meanwhile look into the database, again when woken, when a run that was in sight is ready, and every 250 ms:
           what is ready there is taken.
        3. Where fires were handed over although something was ready, the next claim takes what is ready first.
        """
        limit = min(limit, LARGEST_CLAIM)
        deadline = self._clock.boottime() + wait_s
        looks_first = True
        while not (self._handoff.closed or self._stopped):
            wakes = self._handoff.wakes
            if wait_s <= 0 or queue in self._handoff.passed_over:
                self._handoff.passed_over.discard(queue)
                look = await self._readiness.look(queue, now=self._clock.now())
                runs = await self._claim_ready(queue, limit) if look.is_ready(now=self._clock.now()) else []
            else:
                runs = await self._stand_in_line(queue, limit, until=deadline, looks_first=looks_first)
            if wait_s <= 0:
                self._handoff.note_outside(queue, is_filled=len(runs) >= limit)
            elif runs:
                self._handoff.note_work(queue)
            if runs or self._clock.boottime() >= deadline:
                return await self._assign(runs)
            # What seemed ready is somebody else's, or will be: without a wake-up, the next look is the next poll's.
            looks_first = wakes != self._handoff.wakes
        return []

    def stop_waiting(self) -> None:
        """Let a claim that waits return with what it has; it and later ones find nothing more."""
        self._stopped = True
        for parked in self._parked:
            self._handoff.dismiss(parked)

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """Heartbeat: the leases end one lease length from now."""
        now = self._clock.now()
        return await self._store.leases.extend(held, now=now, until=now + self._lease_us)

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """May these attempts begin?"""
        return await self._store.leases.permit(held, now=self._clock.now())

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        """Record the end of attempts, and wake whoever has something to do because of it."""
        finished = await self._store.leases.finish(items, now=self._clock.now(), decide=self._judge)
        self._handoff.wake(None)  # an ended run may have passed its lane on
        self._endings.tell(finished)
        for answer in finished:
            if answer.result in (FinishResult.LEASE_LOST, FinishResult.RUN_TERMINAL):
                log.warning("finish_refused", run_id=format_run_id(answer.key), reason=answer.result)
        return finished

    async def release(self, held: Sequence[Held]) -> int:
        """Give attempts back; they are claimable at once and the attempt does not count."""
        released = await self._store.leases.release(held, now=self._clock.now())
        self._handoff.wake(None)
        return released

    def _judge(self, run: LiveRun, definition: str, item: Finish) -> Verdict:
        return judge(
            run, definition, item.outcome, now=self._clock.now(), definitions=self._definitions, jitter=self._jitter
        )

    async def _claim_ready(self, queue: str | None, limit: int) -> list[LeasedRun]:
        now = self._clock.now()
        leases = NewLeases(limit, worker=self._worker, until=now + self._lease_us)
        return await self._store.leases.claim(leases, now=now, queue=queue)

    async def _stand_in_line(
        self, queue: str | None, limit: int, *, until: float, looks_first: bool
    ) -> list[LeasedRun]:
        """What is handed over until a moment of the boot clock, or else what is ready in the database."""
        parked = self._handoff.park(self._worker, queue=queue, capacity=limit)
        self._parked.add(parked)
        try:
            if looks_first:
                look = await self._readiness.look(queue, now=self._clock.now())
                now = self._clock.now()
                self._handoff.note_ready(queue, is_ready=look.is_ready(now=now))
            else:
                look, now = self._readiness.put_off(), self._clock.now()
            while not look.is_ready(now=now) and (left_s := until - self._clock.boottime()) > 0:
                await parked.wake.wait(min(left_s, look.next_look_s(now=now)))
                if parked.runs.done():
                    return parked.runs.result()
                look = await self._readiness.look_again(queue, now=self._clock.now())
                now = self._clock.now()
                self._handoff.note_ready(queue, is_ready=look.is_ready(now=now))
            is_ready = look.is_ready(now=now)
            # A hand-over under way is waited for, which is short: runs handed to somebody who has left would need
            # another transaction to come back.
            self._handoff.dismiss(parked)
            handed_over = await parked.runs
            if handed_over and is_ready:
                self._handoff.passed_over.add(queue)
            if handed_over or not is_ready or self._stopped:
                return handed_over
        finally:
            self._parked.discard(parked)
            self._handoff.leave(parked)
        return await self._claim_ready(queue, limit)

    async def _assign(self, runs: Sequence[LeasedRun]) -> list[Assignment]:
        """What the worker needs for each run. Runs that cannot be delivered as they are stored end here."""
        assignments: list[Assignment] = []
        refused: list[Finish] = []
        # In this order: a process that stands still in between takes its leases for older than they are, not younger.
        boottime = self._clock.boottime()
        now = self._clock.now()
        secrets: dict[tuple[str, str], tuple[str, ...]] = {}  # most jobs are signed with the same ones
        try:
            for run in runs:
                try:
                    assignments.append(await self._assignment(run, secrets, now=now, boottime=boottime))
                except (DefinitionError, ConfigError) as error:
                    unsendable = Outcome(OutcomeKind.UNSENDABLE, run.granted_at, 0, error=error.detail)
                    refused.append(Finish(run.key, run.token, unsendable))
            if refused:
                await self.finish(refused)
        except BaseException:
            # Nobody delivers them now: left alone they would wait for their leases to end, and each lose an attempt.
            with contextlib.suppress(OnbeatError):
                await self.release([(run.key, run.token) for run in runs])
            raise
        return assignments

    async def _assignment(
        self, run: LeasedRun, secrets: dict[tuple[str, str], tuple[str, ...]], *, now: int, boottime: float
    ) -> Assignment:
        definition = self._definitions.get(run.definition)
        target = definition.target
        signing: tuple[str, ...] = ()
        if isinstance(target, WebhookTarget):
            name = (run.namespace, target.secret)
            if name not in secrets:
                secrets[name] = await self._secrets.signing(*name)
            signing = secrets[name]
        callback_url: str | None = None
        if definition.completion == "callback":
            if self._public_url is None:
                raise ConfigError("the handler cannot report: this server has no public_url any more")
            callback_url = f"{self._public_url.rstrip('/')}/v1/runs/{format_run_id(run.key)}"
        return Assignment(
            key=run.key,
            token=run.token,
            attempt=run.attempt,
            trigger=run.trigger,
            job_name=run.job_name,
            job_key=run.job_key,
            job_version=run.job_version,
            namespace=run.namespace,
            target=target,
            timeout_s=definition.timeout_s,
            connect_timeout_s=definition.connect_timeout_s,
            at_most_once=definition.delivery == "at_most_once",
            payload=run.payload,
            queue=run.queue,
            lease_until=run.lease_until,
            granted_at=run.granted_at,
            deadline_at=run.deadline_at,
            late_after=run.late_after,
            secrets=signing,
            granted_boottime=boottime - (now - run.granted_at) / SECOND_US,
            callback_url=callback_url,
            starts_at=_starts_at(run, definition),
        )


def _starts_at(run: LeasedRun, definition: Definition) -> int | None:
    """When a run was to start, if that is not its planned instant."""
    if not (definition.spread_s or definition.jitter_s) or run.trigger not in (Trigger.SCHEDULE, Trigger.CATCH_UP):
        return None
    return moved_start(definition, job_id=run.key.job_id).start_of(run.key.scheduled_at)


def judge(
    run: LiveRun,
    definition_text: str,
    outcome: Outcome,
    *,
    now: int,
    definitions: DefinitionCache,
    jitter: random.Random,
) -> Verdict:
    """The verdict on a lost or unsuccessful attempt, in the store's words. A definition that cannot be read any more
    ends the run: nobody can say how to retry it.
    """
    try:
        definition = definitions.get(definition_text)
    except DefinitionError as error:
        return EndRun(RunState.FAILED, error.detail)
    decision = decide_retry(
        definition,
        outcome,
        AttemptFacts(
            attempt=run.attempt,
            free_attempts=run.free_attempts,
            since=run.created_at if run.revived_at is None else run.revived_at,
            deadline_at=run.deadline_at,
            cancel_requested=run.cancel_requested,
            next_fire_at=run.next_fire_at,
        ),
        now=now,
        draw_jitter=jitter.random,
    )
    if isinstance(decision, GiveUp):
        return _end(run, decision, definition.auto_pause, now=now)
    if isinstance(decision, Accept):
        return AcceptRun(decision.until)
    return RetryRun(decision.ready_at, decision.counts, decision.spends)


def _end(run: LiveRun, decision: GiveUp, policy: AutoPausePolicy | None, *, now: int) -> EndRun:
    """The end of the run, and what it means for a job that pauses by itself."""
    if policy is None or decision.state not in FAILURES:
        return EndRun(decision.state, decision.error, decision.pauses_job)
    streak = lengthened(run.streak, now=now)
    reason = decision.pauses_job or reason_to_pause(policy, streak, now=now)
    return EndRun(decision.state, decision.error, reason, streak)
