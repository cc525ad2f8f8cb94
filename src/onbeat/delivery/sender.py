"""Leased runs in, outcomes out: sends batches of webhooks over kept-alive connections.

Owns the way of an attempt: a connection, the permit, the request, the answer, its deadline. The usual way (an idle
connection is there, the permit is fresh) makes no task and no timer of its own: a write now, a callback when the answer
is complete.

Every delivery gets exactly one outcome. What is promised of the moment before the first byte:

1. Name resolution, egress guard, connect and TLS come first.
2. If more than 2 s of boot time have passed since the lease was asked for, the permit is asked for again. Refused, or
   not to be had: INTERRUPTED, nothing sent.
3. The permit's age is looked at, timestamp and signature made and the bytes written in one step of the loop.

`Sender` lives in one event loop; none of its methods may be called from another thread.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from onbeat.clock import Clock
from onbeat.delivery.attempt import Attempt, OnOutcome, read_outcome
from onbeat.delivery.connection import Connection, find_unusable
from onbeat.delivery.connections import Connections
from onbeat.delivery.dialer import Dialer
from onbeat.delivery.limits import SenderLimits
from onbeat.delivery.request import Delivery, Origin, build_request, check_delivery, prepare
from onbeat.delivery.resolver import Resolver, SystemResolver
from onbeat.delivery.response import ResponseReader
from onbeat.delivery.timer import TimerWheel
from onbeat.delivery.tls import create_tls_context
from onbeat.domain.egress import EgressRules
from onbeat.domain.egress_proxy import EgressProxy
from onbeat.domain.errors import DefinitionError
from onbeat.domain.ids import format_run_id
from onbeat.domain.outcome import Outcome, OutcomeKind

Permit = Callable[[Delivery], Awaitable[bool]]
"""May this attempt begin now? Many are asked at once: the implementation batches them."""

SLOW_EXCHANGE_S: Final = 0.1
"""A host that takes so long for an answer makes others wait for their turn. At one that answers at once an exchange
takes some 10 ms while the worker has as much to do as it can: then a turn is late for the worker's sake.
"""

_NOT_BUILT: Final = "the stored request cannot be built"
_OVER_BEFORE_SEND: Final = "the time was over before the request could be sent"
_OVER_UNANSWERED: Final = "the request was sent and the time was over before an answer came"
_US: Final = 1e6

log = structlog.get_logger(__name__)


class Sender:
    """Delivers. `ask_permit` is awaited once per attempt that needs it; `on_outcome` must be quick and not raise."""

    def __init__(
        self,
        *,
        rules: EgressRules,
        clock: Clock,
        ask_permit: Permit,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        limits: SenderLimits | None = None,
        proxy: EgressProxy | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._ask_permit = ask_permit
        self._limits = limits = limits or SenderLimits()
        self._own_resolver = SystemResolver() if resolver is None else None
        dialer = Dialer(
            rules=rules,
            resolver=resolver or self._own_resolver or SystemResolver(),
            tls=ssl_context or create_tls_context(),
            limits=limits.dial,
            proxy=proxy,
        )
        self._connections = Connections(dialer=dialer, limits=limits, user=self)
        self._deadlines = TimerWheel(self._loop, step_s=limits.timer_step_s, ring=self._expire)
        self._rules = rules
        self._attempts: dict[Delivery, Attempt] = {}
        self._served: dict[Connection, Attempt] = {}
        self._ready: list[tuple[Attempt, Connection]] = []
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Deliveries that have no outcome yet."""
        return len(self._attempts)

    def send(self, deliveries: Sequence[Delivery], on_outcome: OnOutcome) -> None:
        """Begin to deliver. Outcomes come one by one, those of unsendable deliveries before this returns."""
        started_at, started = self._clock.now(), self._loop.time()
        for delivery in deliveries:
            self._begin(delivery, on_outcome, started_at=started_at, started=started)

    def kept_waiting(self, *, for_s: float) -> set[Delivery]:
        """The deliveries that their host has let wait for so long, to connect or to answer. Waiting for a turn is the
        host's doing, too, where another one has waited for SLOW_EXCHANGE_S.
        """
        now = self._loop.time()
        found: set[Delivery] = set()
        slow: set[Origin] = set()
        in_line: list[Attempt] = []
        for attempt in self._attempts.values():
            if attempt.waits_since is None:
                if attempt.task is None and now - attempt.started >= for_s:  # with a task it waits for its permit
                    in_line.append(attempt)
                continue
            if now - attempt.waits_since >= SLOW_EXCHANGE_S:
                slow.add(attempt.template.origin)
            if now - attempt.waits_since >= for_s:
                found.add(attempt.delivery)
        found.update([attempt.delivery for attempt in in_line if attempt.template.origin in slow])
        return found

    def cancel(self, delivery: Delivery) -> bool:
        """End a delivery now, as CANCELLED unless its status line has come. False: it is not in flight."""
        attempt = self._attempts.get(delivery)
        if attempt is None:
            return False
        words = "the run was cancelled"
        self._stop(attempt, unsent=(OutcomeKind.CANCELLED, words), sent=(OutcomeKind.CANCELLED, words))
        return True

    def lose(self, delivery: Delivery) -> bool:
        """End a delivery whose lease is over, as INTERRUPTED if nothing was sent and as NO_ANSWER if no answer came: if
        the scheduler has not noticed yet, it goes by what is reported. False: it is not in flight.
        """
        attempt = self._attempts.get(delivery)
        if attempt is None:
            return False
        self._stop(
            attempt,
            unsent=(OutcomeKind.INTERRUPTED, "the lease was over before the request was sent"),
            sent=(OutcomeKind.NO_ANSWER, "the lease was over before an answer came"),
        )
        return True

    async def close(self) -> None:
        """End everything: what was not sent as INTERRUPTED, what was sent and not answered as NO_ANSWER."""
        self._closed = True
        self._connections.refuse_idle()
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        for attempt in list(self._attempts.values()):
            self._stop(
                attempt,
                unsent=(OutcomeKind.INTERRUPTED, "the worker stopped before the request was sent"),
                sent=(OutcomeKind.NO_ANSWER, "the worker stopped before an answer came"),
            )
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._connections.close()
        self._deadlines.stop()
        if self._own_resolver is not None:
            self._own_resolver.close()

    # ---- from delivery to connection

    def _begin(self, delivery: Delivery, on_outcome: OnOutcome, *, started_at: int, started: float) -> None:
        try:
            template = prepare(delivery.target, rules=self._rules)
            check_delivery(delivery)
        except DefinitionError as error:
            self._refuse(delivery, f"{error.reason_code}: {error.detail}", on_outcome, started_at=started_at)
            return
        except Exception as error:
            # A row that no check foresaw must not take the rest of the batch with it.
            log.error("request_not_built", run_id=format_run_id(delivery.key), exc_info=error)
            self._refuse(delivery, _NOT_BUILT, on_outcome, started_at=started_at)
            return
        attempt = Attempt(delivery, template=template, on_outcome=on_outcome, started_at=started_at, started=started)
        self._attempts[delivery] = attempt
        timeout_s = delivery.timeout_s
        if delivery.deadline is not None:
            timeout_s = min(timeout_s, delivery.deadline - self._clock.boottime())
        if self._closed:
            self._fail(attempt, OutcomeKind.INTERRUPTED, "the worker is stopping")
        elif timeout_s <= 0:
            self._fail(attempt, OutcomeKind.TIMEOUT_BEFORE_SEND, _OVER_BEFORE_SEND)
        else:
            attempt.step = self._deadlines.add(attempt, at=started + timeout_s)
            self._connections.find(attempt)

    def _refuse(self, delivery: Delivery, words: str, on_outcome: OnOutcome, *, started_at: int) -> None:
        self._tell(delivery, Outcome(OutcomeKind.UNSENDABLE, started_at, 0, error=words), on_outcome)

    # ---- from connection to request

    def connection_failed(self, attempt: Attempt, kind: OutcomeKind, reason: str) -> None:
        """See ConnectionUser."""
        self._fail(attempt, kind, reason)

    def connection_found(self, attempt: Attempt, connection: Connection) -> None:
        """See ConnectionUser."""
        # All requests of a step of the loop leave one after the other: a receiver that is woken up once finds several.
        # Written between answers, each would pay for waking a receiver that has just gone to sleep (measured: half
        # the throughput).
        if not self._ready:
            self._loop.call_soon(self._write_ready)
        self._ready.append((attempt, connection))

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, []
        now, boottime = self._clock.now(), self._clock.boottime()
        permitted: list[tuple[Attempt, Connection, bytes]] = []
        for attempt, connection in ready:
            if attempt.ended:
                self._connections.release(connection)
            elif boottime - attempt.granted > self._limits.permit_s:
                self._renew_permit(attempt, connection, asked_at=boottime)
            elif (request := self._build(attempt, now=now)) is None:
                self._connections.release(connection)
                self._fail(attempt, OutcomeKind.UNSENDABLE, _NOT_BUILT)
            else:
                permitted.append((attempt, connection, request))
        # After the building, which takes much longer than the writing: what comes meanwhile is seen.
        unusable = find_unusable([connection for _attempt, connection, _request in permitted])
        written_at = self._loop.time()
        for attempt, connection, request in permitted:
            if connection in unusable:
                self._replace_unused(attempt, connection)
                continue
            attempt.connection = connection
            attempt.waits_since = written_at
            self._served[connection] = attempt
            connection.exchange(request, method=attempt.template.method)

    def _build(self, attempt: Attempt, *, now: int) -> bytes | None:
        """None: a run that no check foresaw, which must not take the others of its step with it."""
        try:
            return build_request(attempt.delivery, attempt.template, now=now)
        except Exception as error:
            log.error("request_not_built", run_id=format_run_id(attempt.delivery.key), exc_info=error)
            return None

    def _replace_unused(self, attempt: Attempt, connection: Connection) -> None:
        """The connection was closed, or spoke without being asked, before the request was written."""
        connection.abandon()
        if connection.exchanges:
            self._connections.find(attempt)
        else:  # a new one would fare the same, and the next one, until the time is over
            self._fail(attempt, OutcomeKind.REFUSED, "the host gave up the connection before the request was sent")

    def _renew_permit(self, attempt: Attempt, connection: Connection, *, asked_at: float) -> None:
        async def ask() -> bool:
            return await self._ask_permit(attempt.delivery)

        task = self._loop.create_task(ask())
        attempt.task = task
        task.add_done_callback(lambda done: self._end_permit(attempt, connection, done, asked_at=asked_at))

    def _end_permit(
        self, attempt: Attempt, connection: Connection, permit: asyncio.Task[bool], *, asked_at: float
    ) -> None:
        attempt.task = None
        if not permit.cancelled() and (error := permit.exception()) is not None:
            log.error("permit_failed", run_id=format_run_id(attempt.delivery.key), exc_info=error)
        if attempt.ended:
            self._connections.release(connection)
        elif permit.cancelled() or permit.exception() is not None or not permit.result():
            self._connections.release(connection)
            self._fail(attempt, OutcomeKind.INTERRUPTED, "the permit to begin was not renewed")
        else:
            attempt.granted = asked_at
            self.connection_found(attempt, connection)  # looks at the time again: asking may have taken long

    # ---- from answer to outcome

    def exchange_ended(self, connection: Connection, reader: ResponseReader, *, unread: bool) -> None:
        """See ExchangeOwner."""
        attempt = self._served.pop(connection)
        attempt.connection = None
        if unread and connection.exchanges > 1 and not attempt.resent:
            attempt.resent = True
            self._connections.replace(connection, attempt)
            return
        if reader.reusable:
            self._connections.release(connection)
        self._end(attempt, self._outcome_of(attempt, reader))

    def _expire(self, attempt: Attempt) -> None:
        self._stop(
            attempt,
            unsent=(OutcomeKind.TIMEOUT_BEFORE_SEND, _OVER_BEFORE_SEND),
            sent=(OutcomeKind.NO_ANSWER, _OVER_UNANSWERED),
        )

    def _stop(self, attempt: Attempt, *, unsent: tuple[OutcomeKind, str], sent: tuple[OutcomeKind, str]) -> None:
        """End an attempt from our side. A status line that has come decides whatever the reason to stop."""
        connection, attempt.connection = attempt.connection, None
        if connection is None:
            self._fail(attempt, *unsent)
            return
        del self._served[connection]
        reader = connection.abandon()
        if reader is None or reader.status is None:
            self._fail(attempt, *sent)
            return
        reader.end()
        self._end(attempt, self._outcome_of(attempt, reader))

    def _outcome_of(self, attempt: Attempt, reader: ResponseReader) -> Outcome:
        return read_outcome(
            reader,
            started_at=attempt.started_at,
            duration_us=self._duration_us(attempt),
            now=self._clock.now,
        )

    def _fail(self, attempt: Attempt, kind: OutcomeKind, words: str) -> None:
        self._end(attempt, Outcome(kind, attempt.started_at, self._duration_us(attempt), error=words))

    def _duration_us(self, attempt: Attempt) -> int:
        return round((self._loop.time() - attempt.started) * _US)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.ended = True
        del self._attempts[attempt.delivery]
        self._deadlines.discard(attempt, step=attempt.step)
        if attempt.task is not None:
            attempt.task.cancel()
        self._tell(attempt.delivery, outcome, attempt.on_outcome)

    def _tell(self, delivery: Delivery, outcome: Outcome, on_outcome: OnOutcome) -> None:
        try:
            on_outcome(delivery, outcome)
        except Exception as error:
            # We may stand inside a callback of the loop, which would close a healthy connection over this.
            log.error("on_outcome_failed", run_id=format_run_id(delivery.key), exc_info=error)
