"""Handlers that accepted a run report HERE: the end, and signs of life before it. Their token is all that they need."""

from __future__ import annotations

import random

import structlog

from onbeat.clock import Clock
from onbeat.domain.errors import DefinitionError, LeaseLost, RunTerminal
from onbeat.domain.ids import format_run_id
from onbeat.domain.retry import silent_until
from onbeat.services.definitions import DefinitionCache
from onbeat.services.endings import Endings
from onbeat.services.handoff import Handoff
from onbeat.services.leasing import judge
from onbeat.store.contract import Store
from onbeat.store.values import Completion, Finish, Finished, FinishResult, LeaseStatus, LiveRun, Progress, Verdict

log = structlog.get_logger(__name__)


class Callbacks:
    """What a handler may do with a run that it accepted."""

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

    async def complete(self, item: Completion) -> Finished:
        """The work is over. The same word again is answered as before. Raises LeaseLost, RunTerminal."""
        answer = await self._store.leases.complete(item, now=self._clock.now(), decide=self._judge)
        if answer.result in (FinishResult.LEASE_LOST, FinishResult.RUN_TERMINAL):
            log.warning("completion_refused", run_id=format_run_id(answer.key), reason=answer.result)
            raise RunTerminal if answer.result is FinishResult.RUN_TERMINAL else LeaseLost
        self._handoff.wake(None)
        self._endings.tell([answer])
        return answer

    async def report(self, item: Progress) -> LeaseStatus:
        """The handler is at work: LIVE, or CANCEL where it is asked to stop. Raises LeaseLost, RunTerminal."""
        status = await self._store.leases.report(item, now=self._clock.now(), decide=self._silent_until)
        if status is LeaseStatus.RUN_TERMINAL:
            raise RunTerminal
        if status is LeaseStatus.LEASE_LOST:
            raise LeaseLost
        return status

    def _judge(self, run: LiveRun, definition: str, item: Finish) -> Verdict:
        return judge(
            run, definition, item.outcome, now=self._clock.now(), definitions=self._definitions, jitter=self._jitter
        )

    def _silent_until(self, run: LiveRun, definition: str) -> int | None:
        try:
            readable = self._definitions.get(definition)
        except DefinitionError:  # written by hand meanwhile: the run may last as long as it may
            return None
        return silent_until(readable, now=self._clock.now())
