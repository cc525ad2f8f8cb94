"""Which connection an attempt gets: an idle one, a new one, or a place in the line of its origin.

Owns every connection from the dial to its end, and how many there may be. What is said over them is the sender's.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

import structlog

from onbeat.delivery.attempt import Attempt
from onbeat.delivery.connection import Connection, ExchangeOwner
from onbeat.delivery.dialer import Dialer
from onbeat.delivery.failure import DialFailed
from onbeat.delivery.limits import SenderLimits
from onbeat.delivery.pool import Pool
from onbeat.delivery.request import Origin
from onbeat.domain.outcome import OutcomeKind

log = structlog.get_logger(__name__)


class ConnectionUser(ExchangeOwner, Protocol):
    """Whom connections are for."""

    def connection_found(self, attempt: Attempt, connection: Connection) -> None:
        """The attempt has this open connection for itself."""
        ...

    def connection_failed(self, attempt: Attempt, kind: OutcomeKind, reason: str) -> None:
        """There is no connection for the attempt, which has not ended yet."""
        ...


class Connections:
    """Gives out connections, takes them back, keeps idle ones for a while."""

    def __init__(self, *, dialer: Dialer, limits: SenderLimits, user: ConnectionUser) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialer = dialer
        self._limits = limits
        self._user = user
        self._pools: dict[Origin, Pool] = {}
        self._pool_of: dict[Connection, Pool] = {}
        self._idle_count = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._last_gone = asyncio.Event()
        self._closed = False

    def find(self, attempt: Attempt) -> None:
        """Find a connection for an attempt, now or later; its user is told."""
        origin = attempt.template.origin
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(origin, max_connections=self._limits.connections_per_origin)
        connection = self._take_idle(pool)
        if connection is not None:
            self._user.connection_found(attempt, connection)
        elif pool.has_place:
            self._open(attempt, pool)
        else:
            pool.waiting.append(attempt)

    def replace(self, connection: Connection, attempt: Attempt) -> None:
        """Open a new connection for the attempt whose old one died under it.

        Not counted against the limit: the old one still holds its place for a moment.
        """
        self._open(attempt, self._pool_of[connection])

    def release(self, connection: Connection) -> None:
        """Give an open connection to whoever waits for it, or keep it for a while."""
        pool = self._pool_of.get(connection)
        if pool is None or not connection.is_open:
            return
        attempt = pool.next_waiting()
        if attempt is not None:
            self._user.connection_found(attempt, connection)
        elif self._closed or self._idle_count >= self._limits.idle_connections:
            connection.close()
        else:
            connection.idle_since = self._loop.time()
            pool.idle.append(connection)
            self._idle_count += 1
            if self._sweep is None:
                self._sweep = self._loop.call_later(self._limits.idle_s, self._close_idle)

    def connection_closed(self, connection: Connection) -> None:
        """See ConnectionHolder."""
        pool = self._pool_of.pop(connection, None)
        if pool is None:
            return  # lost before its dial was over, which gives the place back
        if connection in pool.idle:
            pool.idle.remove(connection)
            self._idle_count -= 1
        self._give_place_back(pool)
        if self._closed and not self._pool_of:
            self._last_gone.set()

    def refuse_idle(self) -> None:
        """From here on nothing is kept: what is released is closed."""
        self._closed = True

    async def close(self) -> None:
        """End every connection, whatever it is doing. Answers when all of them are gone."""
        self._closed = True
        for connection in list(self._pool_of):
            connection.abandon()
        if self._pool_of:
            await self._last_gone.wait()
        if self._sweep is not None:
            self._sweep.cancel()

    # ---- new ones

    def _open(self, attempt: Attempt, pool: Pool) -> None:
        def make(connected: socket.socket) -> Connection:
            return Connection(owner=self._user, holder=self, connected=connected)

        pool.taken += 1
        limit_s = attempt.delivery.connect_timeout_s
        task = self._loop.create_task(self._dialer.dial(attempt.template.url, protocol=make, limit_s=limit_s))
        attempt.task = task
        attempt.waits_since = self._loop.time()
        # Not a coroutine around the dial: a task that is cancelled before its first step runs none of its own code,
        # and the place would be lost.
        task.add_done_callback(lambda done: self._end_dial(attempt, pool, done))

    def _end_dial(self, attempt: Attempt, pool: Pool, dialled: asyncio.Task[Connection]) -> None:
        attempt.task = attempt.waits_since = None
        connection, failure = None, DialFailed(OutcomeKind.REFUSED, "the host could not be reached")
        if not dialled.cancelled():
            error = dialled.exception()
            if error is None:
                connection = dialled.result()
            elif isinstance(error, DialFailed):
                failure = error
            else:
                log.error("dial_failed", host=attempt.template.url.host, exc_info=error)
        if connection is None or not connection.is_open:
            self._give_place_back(pool)
            if not attempt.ended:
                self._user.connection_failed(attempt, failure.kind, failure.reason)
            return
        self._pool_of[connection] = pool
        if attempt.ended:
            self.release(connection)
        else:
            self._user.connection_found(attempt, connection)

    # ---- places and idle ones

    def _take_idle(self, pool: Pool) -> Connection | None:
        while pool.idle:
            connection = pool.idle.pop()
            self._idle_count -= 1
            if connection.is_open:
                return connection
        return None

    def _close_idle(self) -> None:
        self._sweep = None
        used_before = self._loop.time() - self._limits.idle_s
        for pool in self._pools.values():
            while pool.idle and pool.idle[0].idle_since <= used_before:
                pool.idle.pop(0).close()
                self._idle_count -= 1
        if self._idle_count:
            self._sweep = self._loop.call_later(self._limits.idle_s / 2, self._close_idle)

    def _give_place_back(self, pool: Pool) -> None:
        pool.taken -= 1
        while pool.has_place and (attempt := pool.next_waiting()) is not None:
            self._open(attempt, pool)
        if pool.is_unused:
            self._pools.pop(pool.origin, None)
