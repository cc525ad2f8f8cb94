"""Runs whose worker fell silent, or whose wall clock ran out, are taken back HERE.

Depends on nothing but the runs' own rows: a clean-up of the list of workers cannot hide a run from it.
"""

from __future__ import annotations

import random

import structlog

from onbeat.clock import Clock
from onbeat.domain.ids import format_run_id
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.services.definitions import DefinitionCache
from onbeat.services.endings import Endings
from onbeat.services.handoff import Handoff
from onbeat.services.leasing import judge
from onbeat.store.contract import Store
from onbeat.store.values import LiveRun, Verdict

log = structlog.get_logger(__name__)

BATCH = 500


class Reap:
    """Expires leases."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        handoff: Handoff,
        definitions: DefinitionCache,
        endings: Endings,
        jitter: random.Random,
    ) -> None:
        self._store = store
        self._clock = clock
        self._handoff = handoff
        self._definitions = definitions
        self._endings = endings
        self._jitter = jitter

    async def expire_leases(self) -> int:
        """Take back one batch; answer: how many runs that were."""
        now = self._clock.now()
        expired = await self._store.leases.expire(
            now=now, limit=BATCH, decide=lambda run, text: self._judge(run, text, now)
        )
        for answer in expired:
            log.warning("lease_expired", run_id=format_run_id(answer.key), state=answer.state, result=answer.result)
        if expired:
            self._handoff.wake(None)
            self._endings.tell(expired, lost=True)
        return len(expired)

    def _judge(self, run: LiveRun, definition: str, now: int) -> Verdict:
        started_at = run.attempt_started_at if run.attempt_started_at is not None else now
        kind, error = OutcomeKind.LEASE_LOST, "the worker stopped reporting before its lease ended"
        if run.deadline_at is not None and run.deadline_at <= now:
            kind, error = OutcomeKind.TIMED_OUT, "max_run_time passed"
        elif run.accepted_at is not None and run.cancel_requested:
            kind, error = OutcomeKind.CANCELLED, "cancelled while its handler held it"
        elif run.accepted_at is not None:
            error = "the handler accepted the run and did not report in time"
        outcome = Outcome(kind=kind, started_at=started_at, duration_us=max(now - started_at, 0), error=error)
        return judge(run, definition, outcome, now=now, definitions=self._definitions, jitter=self._jitter)
