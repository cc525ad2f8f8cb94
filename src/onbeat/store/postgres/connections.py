"""Connections to PostgreSQL: how long they may be silent, and what happens to all of them once one is lost.

A network that drops packets ends no connection: it falls silent. So whoever gets no answer in time drops his, and all
that were made before are replaced before their next use, in every pool of the process.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final, TypeAlias, cast

import asyncpg

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

UNHEARD_S: Final = 10
"""How long data may stay unacknowledged, and how long a quiet peer is not asked whether it is there."""

_SOCKET_OPTIONS: Final = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", UNHEARD_S),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 3),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", UNHEARD_S * 1_000),
)
# The server's end of the same: what a node that is gone has locked becomes free.
_SERVER_SETTINGS: Final = {
    "tcp_keepalives_idle": str(UNHEARD_S),
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": str(UNHEARD_S * 1_000),
}


class Way:
    """The way to one server. Pools that share it forget their connections together."""

    def __init__(self) -> None:
        self.number = 0

    def is_lost(self) -> None:
        """No connection that was made until now is used again."""
        self.number += 1


class _Connection(asyncpg.Connection):
    """A connection that knows by which way it was made."""

    way_number = 0


class Pool:
    """Up to `size` connections to the server behind `url`. None is made before it is needed."""

    def __init__(
        self, url: str, *, size: int, connect_s: float, answer_s: float, is_pooled: bool, way: Way | None = None
    ) -> None:
        """`answer_s`: how long a statement may stay unanswered. `is_pooled`: see `database.connect`."""
        self._way = way or Way()
        self._pool = asyncpg.create_pool(
            url,
            min_size=0,
            max_size=size,
            timeout=connect_s,
            command_timeout=answer_s,
            statement_cache_size=0 if is_pooled else 1_000,
            max_inactive_connection_lifetime=300.0,
            server_settings=None if is_pooled else _SERVER_SETTINGS,  # a pooler refuses what it does not know
            connection_class=_Connection,
            init=self._begin_connection,
            reset=_leave_as_it_is,
        )

    async def open(self) -> None:
        """To be called once, before all else."""
        await self._pool

    async def take(self, *, within_s: float) -> Connection:
        """A connection to be given back. Raises TimeoutError, and what asyncpg says of a server that refuses it."""
        async with asyncio.timeout(within_s):
            while True:
                connection = await self._pool.acquire()
                if cast(_Connection, connection).way_number == self._way.number:
                    return connection
                connection.terminate()
                await self._pool.release(connection)

    async def give_back(self, connection: Connection) -> None:
        """Also one that has ended."""
        await self._pool.release(connection)

    def drop_all(self, connection: Connection) -> None:
        """This one fell silent, or leads to a server that cannot serve: what was made as it was is not used again."""
        if cast(_Connection, connection).way_number == self._way.number:
            self._way.is_lost()
        connection.terminate()

    async def close(self, *, within_s: float) -> None:
        """End all connections; what they are doing is waited for a moment."""
        try:
            await asyncio.wait_for(self._pool.close(), within_s)
        except (TimeoutError, OSError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _begin_connection(self, connection: Any) -> None:
        connection.way_number = self._way.number
        # asyncpg has no public way to the socket, and sets none of these itself.
        ours = connection._transport.get_extra_info("socket")
        if ours is None or ours.family not in (socket.AF_INET, socket.AF_INET6):
            return
        for level, name, value in _SOCKET_OPTIONS:
            if hasattr(socket, name):  # not all are there on each platform
                ours.setsockopt(level, getattr(socket, name), value)


async def _leave_as_it_is(_connection: object) -> None:
    # Nothing is set outside a transaction, so there is nothing to reset, and it would cost a round trip.
    return
