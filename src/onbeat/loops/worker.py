"""Takes attempts, delivers them, reports how they ended. Talks to the scheduler through a WorkerLink only, so it is
the same worker in the scheduler's process and on another machine.

Loops that never wait for each other: claim, report, heartbeat; of the first two there are several, since a worker with
much to do would wait for answers most of the time. What the worker holds is in `_held`, and a run leaves it when the
scheduler has answered its finish.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from onbeat.clock import Clock
from onbeat.delivery.request import Delivery
from onbeat.delivery.sender import Sender
from onbeat.delivery.signing import parse_secret
from onbeat.domain.errors import DefinitionError, OnbeatError
from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.model import SECOND_US, WebhookTarget
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.loops.crowding import SLOW_AFTER_S, Crowding, host_of
from onbeat.loops.loop import Loop
from onbeat.loops.permits import Permits
from onbeat.services.assignment import Assignment, WorkerLink
from onbeat.store.values import Finish, LeaseStatus
from onbeat.telemetry import Metrics

log = structlog.get_logger(__name__)

REPORT_BATCH = 500
REPORT_WITHIN_S = 0.01
"""Ends of attempts are reported together: at most this much later, at most that many at once."""

REPORTS_AT_ONCE = 2
"""So many reports may be under way. Only a full one is sent beside another: what ends meanwhile goes together."""

CLAIMS_AT_ONCE = 2
ROOM_FOR_MORE = 50
"""A worker that waits for runs claims once more when it has become free for so many: a dispatcher that is still
recording runs for the first claim has somebody to record the next ones for.
"""

REPORT_LIMIT_S = 5.0
"""How long a stop waits for the last reports to be taken."""

EXTRA_CLAIM = 200
"""A full worker takes this many runs at a time to find those for other hosts; what it finds for slow ones comes back
later. Thousands of runs for a host that hangs can lie before a run for another one.
"""

START_AT_ONCE = 64
"""Attempts begun in one step of the event loop, so that the first of many that are due at one moment leaves while the
last is still being made ready: as many as there are connections to a receiver.
"""

LOCAL_CLAIM_WAIT_S = 0.25
"""A claim inside the process returns this often, so that a stop never waits for it."""


@dataclass(slots=True)
class _Held:
    assignment: Assignment
    delivery: Delivery | None  # None: refused before anything was sent, or it has not had its turn yet
    given_back: bool = False
    not_to_begin: tuple[OutcomeKind, str] | None = None  # how it ends when it has its turn


class Worker:
    """Up to `capacity` attempts at once; while slow hosts hold them all, as many again for other hosts."""

    def __init__(
        self,
        link: WorkerLink,
        *,
        clock: Clock,
        metrics: Metrics,
        capacity: int,
        heartbeat_s: float,
        claim_wait_s: float = LOCAL_CLAIM_WAIT_S,
        on_end: Callable[[Assignment, Outcome], None] | None = None,
    ) -> None:
        self._link = link
        self._clock = clock
        self._metrics = metrics
        self._capacity = capacity
        self._heartbeat_s = heartbeat_s
        self._claim_wait_s = claim_wait_s
        self._on_end = on_end
        self._held: dict[bytes, _Held] = {}
        self._by_key: dict[RunKey, bytes] = {}
        self._ended: list[Finish] = []  # to be reported
        self._reported: set[bytes] = set()  # tokens of what is being reported
        self._asked = 0  # places that claims under way may fill
        self._permits = Permits(link)
        self._crowding = Crowding(capacity=capacity)
        self._to_start: deque[Assignment] = deque()
        self._is_starting = False
        self._claims = 0  # under way
        self._idle = asyncio.Event()
        self._idle.set()
        self._sender: Sender | None = None
        self._claiming = _numbered("worker-claim", self._claim_step, count=CLAIMS_AT_ONCE)
        self._reporting = _numbered("worker-report", self._report_step, count=REPORTS_AT_ONCE)
        self._beating = Loop("worker-heartbeat", self._beat_step)

    def attach(self, sender: Sender) -> None:
        """The sender asks this worker for permits, so it is made after it."""
        self._sender = sender

    @property
    def loops(self) -> tuple[Loop, ...]:
        """To be started together."""
        return (*self._claiming, *self._reporting, self._beating)

    @property
    def held(self) -> int:
        """How many attempts are in this worker's hands."""
        return len(self._held)

    def cancel(self, key: RunKey) -> None:
        """A person cancelled that run: stop its attempt here, now."""
        token = self._by_key.get(key)
        held = self._held.get(token) if token is not None else None
        if held is not None:
            self._cancel(held)

    def doubt(self, key: RunKey) -> None:
        """Another process says that this run was asked to stop: if it is here, ask with a heartbeat now."""
        if key in self._by_key:
            self._beating.wake.set()

    async def ask_permit(self, delivery: Delivery) -> bool:
        """For the sender: may this attempt begin although its grant is older than 2 s?"""
        return await self._permits.ask((delivery.key, delivery.token))

    async def drain(self, limit_s: float) -> bool:
        """Stop claiming, let what runs end for up to `limit_s`, give the rest back. True: everything ended."""
        for loop in self._claiming:
            loop.stop()
        if await self._becomes_idle(limit_s):
            return True
        await self._give_back()
        await self._becomes_idle(REPORT_LIMIT_S)
        return False

    async def _becomes_idle(self, limit_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        return self._idle.is_set()

    async def _give_back(self) -> None:
        """Interrupt what is still under way; its lease is given back and the attempt does not count.

        Attempts of at_most_once jobs are left alone: a lease given back would be delivered again. They end as
        `unknown` when the lease does.
        """
        ended = {item.token for item in self._ended} | self._reported
        left_alone = [t for t, held in self._held.items() if held.assignment.at_most_once and t not in ended]
        self._let_go(left_alone)
        interrupted = {token: held for token, held in self._held.items() if token not in ended}
        for held in interrupted.values():
            held.given_back = True
            if held.delivery is not None and self._sender is not None:
                self._sender.cancel(held.delivery)
        try:
            released = await self._link.release([(held.assignment.key, token) for token, held in interrupted.items()])
            log.warning("leases_given_back", count=released)
        except OnbeatError as error:  # the scheduler does not answer: the leases end by themselves
            log.warning("leases_left_to_expire", count=len(interrupted), error=error.detail)
        self._let_go(interrupted)

    async def _claim_step(self, number: int) -> float:
        free = self._capacity - len(self._held) - self._asked
        if free >= (ROOM_FOR_MORE if self._claims else 1):
            await self._claim(limit=free, wait_s=self._claim_wait_s, slow_hosts=frozenset())
            return 0.0
        if self._claims or number:
            return SLOW_AFTER_S
        kept_waiting = () if self._sender is None else self._sender.kept_waiting(for_s=SLOW_AFTER_S)
        slow_hosts = self._crowding.slow_hosts(delivery.token for delivery in kept_waiting)
        if slow_hosts and self._crowding.extra_room:
            await self._claim(limit=EXTRA_CLAIM, wait_s=0, slow_hosts=slow_hosts)
        return SLOW_AFTER_S  # woken as soon as there is room

    async def _claim(self, *, limit: int, wait_s: float, slow_hosts: frozenset[str]) -> None:
        """Claim and begin. Beyond the capacity, what is for a slow host is put off."""
        self._claims += 1  # a stop waits for the answer: what it grants is this worker's to deliver
        self._asked += limit
        self._idle.clear()
        try:
            granted = await self._link.claim(queue=None, limit=limit, wait_s=wait_s)
            for assignment in granted:
                self._hold(assignment)
            if slow_hosts:
                granted = [assignment for assignment in granted if self._may_begin(assignment, slow_hosts)]
            self._start_soon(granted)
        finally:
            self._claims -= 1
            self._asked -= limit
            self._note_idle()

    def _hold(self, assignment: Assignment) -> None:
        self._held[assignment.token] = _Held(assignment, None)
        self._by_key[assignment.key] = assignment.token

    def _may_begin(self, assignment: Assignment, slow_hosts: frozenset[str]) -> bool:
        host, now, boottime = host_of(assignment.target), self._clock.now(), self._clock.boottime()
        if self._crowding.may_have_extra(host, slow_hosts=slow_hosts):
            self._crowding.begin(assignment.token, host, at=boottime)  # now, so that the next one of the batch sees it
            return True
        put_off_s = self._crowding.put_off(host, now=boottime)
        if assignment.attempt > 1 and assignment.deadline_at is not None:
            # Its max_run_time goes on meanwhile; of a first attempt it begins anew.
            put_off_s = min(put_off_s, max(assignment.deadline_at - now, 0) / SECOND_US / 2)
        outcome = Outcome(OutcomeKind.INTERRUPTED, now, 0, error="its host is slow", retry_after_s=put_off_s)
        self._report(Finish(key=assignment.key, token=assignment.token, outcome=outcome))
        return False

    def _start_soon(self, assignments: Iterable[Assignment]) -> None:
        self._to_start.extend(assignments)
        if self._to_start and not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        some = [self._to_start.popleft() for _ in range(min(START_AT_ONCE, len(self._to_start)))]
        try:
            self._start(some)
        finally:
            self._is_starting = False
            self._start_soon(())

    def _start(self, assignments: Sequence[Assignment]) -> None:
        deliveries: list[Delivery] = []
        # In this order: a process that stands still in between ends attempts too early, not too late.
        boottime = self._clock.boottime()
        now = self._clock.now()
        keys: dict[tuple[str, ...], tuple[bytes, ...]] = {}  # most jobs are signed with the same secrets
        for assignment in assignments:
            held = self._held.get(assignment.token)
            if held is None or held.given_back:
                continue
            if held.not_to_begin is not None:
                kind, words = held.not_to_begin
                self._end(assignment, Outcome(kind, now, 0, error=words))
                continue
            self._crowding.begin(assignment.token, host_of(assignment.target), at=boottime)
            try:
                held.delivery = self._delivery(assignment, keys, now=now, boottime=boottime)
            except DefinitionError as error:
                self._end(assignment, Outcome(OutcomeKind.UNSENDABLE, now, 0, error=error.detail))
                continue
            deliveries.append(held.delivery)
            self._metrics.observe_start(assignment.start_lag_us(now=now))
        self._metrics.running.set(len(self._held))
        if deliveries and self._sender is not None:
            self._sender.send(deliveries, self._on_outcome)

    def _delivery(
        self, assignment: Assignment, keys: dict[tuple[str, ...], tuple[bytes, ...]], *, now: int, boottime: float
    ) -> Delivery:
        target = assignment.target
        if not isinstance(target, WebhookTarget):
            raise DefinitionError("target_invalid", "this worker delivers webhooks; the run belongs to a queue")
        if not assignment.secrets:
            raise DefinitionError("secret_missing", f"there is no signing secret named {target.secret!r}")
        if assignment.secrets not in keys:
            keys[assignment.secrets] = tuple(parse_secret(secret) for secret in assignment.secrets)
        deadline_at = assignment.deadline_at
        return Delivery(
            key=assignment.key,
            token=assignment.token,
            attempt=assignment.attempt,
            trigger=assignment.trigger,
            job_key=assignment.job_key,
            job_name=assignment.job_name,
            target=target,
            keys=keys[assignment.secrets],
            timeout_s=assignment.timeout_s,
            connect_timeout_s=assignment.connect_timeout_s,
            callback_url=assignment.callback_url,
            granted=assignment.granted_boottime,
            payload=assignment.payload,
            deadline=None if deadline_at is None else boottime + (deadline_at - now) / SECOND_US,
            starts_at=assignment.starts_at,
        )

    def _on_outcome(self, delivery: Delivery, outcome: Outcome) -> None:
        held = self._held.get(delivery.token)
        if held is None or held.given_back:
            return
        if delivery.callback_url is not None and outcome.kind is OutcomeKind.SUCCEEDED:
            outcome = msgspec.structs.replace(outcome, kind=OutcomeKind.ACCEPTED)
        self._end(held.assignment, outcome)

    def _end(self, assignment: Assignment, outcome: Outcome) -> None:
        self._metrics.observe_attempt(outcome)
        if self._on_end is not None:
            self._on_end(assignment, outcome)
        self._report(Finish(key=assignment.key, token=assignment.token, outcome=outcome))

    def _report(self, item: Finish) -> None:
        self._ended.append(item)
        self._reporting[0].wake.set()
        if len(self._ended) >= REPORT_BATCH:
            for loop in self._reporting[1:]:
                loop.wake.set()

    async def _report_step(self, number: int) -> float:
        """Report one batch. What could not be reported goes back into the list, and the loop tries again."""
        if number == 0 and 0 < len(self._ended) < REPORT_BATCH:
            await asyncio.sleep(REPORT_WITHIN_S)
        if len(self._ended) < (1 if number == 0 else REPORT_BATCH):
            return self._heartbeat_s
        batch = self._ended[:REPORT_BATCH]
        del self._ended[: len(batch)]
        tokens = {item.token for item in batch}
        self._reported |= tokens
        try:
            await self._link.finish(batch)
        except BaseException:
            self._ended[:0] = batch
            raise
        finally:
            self._reported -= tokens
        self._let_go([item.token for item in batch])
        for loop in self._claiming:
            loop.wake.set()
        return 0.0

    def _let_go(self, tokens: Iterable[bytes]) -> None:
        boottime = self._clock.boottime()
        for token in tokens:
            held = self._held.pop(token, None)
            self._crowding.end(token, at=boottime)
            if held is not None and self._by_key.get(held.assignment.key) == token:
                del self._by_key[held.assignment.key]
        self._metrics.running.set(len(self._held))
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._held and not self._claims:
            self._idle.set()

    async def _beat_step(self) -> float:
        """Extend every lease; learn what was cancelled or lost meanwhile."""
        tokens = list(self._held)
        if not tokens:
            return self._heartbeat_s
        statuses = await self._link.extend([(self._held[token].assignment.key, token) for token in tokens])
        for token, status in zip(tokens, statuses, strict=True):
            held = self._held.get(token)
            if held is None or status == LeaseStatus.LIVE:
                continue
            log.warning("attempt_stopped", run_id=format_run_id(held.assignment.key), reason=status)
            if status == LeaseStatus.CANCEL:
                self._cancel(held)
            else:  # nobody asked for its end: the lease ran out before this heartbeat came
                self._lose(held)
        return self._heartbeat_s

    def _cancel(self, held: _Held) -> None:
        if held.delivery is None:
            held.not_to_begin = (OutcomeKind.CANCELLED, "the run was cancelled")
        elif self._sender is not None:
            self._sender.cancel(held.delivery)

    def _lose(self, held: _Held) -> None:
        if held.delivery is None:
            held.not_to_begin = (OutcomeKind.INTERRUPTED, "the lease was over before the request was sent")
        elif self._sender is not None:
            self._sender.lose(held.delivery)


def _numbered(name: str, step: Callable[[int], Awaitable[float]], *, count: int) -> tuple[Loop, ...]:
    """Loops of one kind. The step is told which of them it is for, from 0."""
    return tuple(
        Loop(name if number == 0 else f"{name}-{number + 1}", partial(step, number)) for number in range(count)
    )
