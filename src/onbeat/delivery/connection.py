"""One connection, one exchange at a time: bytes out, a ResponseReader fed, its owner told how it ended."""

from __future__ import annotations

import asyncio
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Iterable
from typing import Final, Protocol, cast

from onbeat.delivery.response import ResponseReader

_ANY_INT: Final = b"\0\0\0\0"


class ExchangeOwner(Protocol):
    """Who asked, and is told what came of it."""

    def exchange_ended(self, connection: Connection, reader: ResponseReader, *, unread: bool) -> None:
        """The exchange is over. The reader says what came, perhaps nothing at all.

        `unread`: it is certain that no byte of the request reached the receiver's host (see `_is_unread`).
        """
        ...


class ConnectionHolder(Protocol):
    """Who keeps the connection."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone; an exchange has been reported before."""
        ...


class Connection(asyncio.Protocol):
    """A keep-alive connection. Reads nothing that was not asked for: bytes between exchanges close it."""

    def __init__(self, *, owner: ExchangeOwner, holder: ConnectionHolder, connected: socket.socket) -> None:
        self.exchanges = 0
        self.idle_since = 0.0
        self._owner = owner
        self._holder = holder
        self._socket = connected
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._request_bytes = 0
        self._is_tls = False

    @property
    def is_open(self) -> bool:
        """False as soon as either side has begun to close, as far as the loop has seen."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def watched(self) -> socket.socket | None:
        """The socket, where silence is expected on it. None: right after a TLS handshake the server's tickets come."""
        return None if self._is_tls and not self.exchanges else self._socket

    def exchange(self, request: bytes, *, method: str) -> None:
        """Send a request. From here on the receiver may have seen it."""
        assert self._transport is not None
        assert self._reader is None
        self._reader = ResponseReader(method=method)
        self._request_bytes = len(request)
        self.exchanges += 1
        self._transport.write(request)

    def abandon(self) -> ResponseReader | None:
        """Close at once, without a word to the owner about the exchange. Answer: what has come of it."""
        reader, self._reader = self._reader, None
        if self._transport is not None:
            self._transport.abort()
        return reader

    def close(self) -> None:
        """Close an idle connection; over TLS, say goodbye."""
        if self._transport is not None:
            self._transport.close()

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._is_tls = transport.get_extra_info("ssl_object") is not None

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            self.abandon()
        elif reader.feed(data):
            unacknowledged = self._unacknowledged()
            self._reader = None
            if unacknowledged >= self._request_bytes:
                reader.disown()
            if unacknowledged or not reader.reusable:
                self.abandon()
            self._owner.exchange_ended(self, reader, unread=False)

    def eof_received(self) -> None:
        self._end_exchange(unread=self._is_unread())

    def connection_lost(self, error: Exception | None) -> None:
        self._end_exchange(unread=False)
        self._transport = None
        self._holder.connection_closed(self)

    def _end_exchange(self, *, unread: bool) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.end()
            self.abandon()
            self._owner.exchange_ended(self, reader, unread=unread)

    def _is_unread(self) -> bool:
        """Is it certain that the peer had closed before our request reached its host?

        A server closes idle connections when it likes, so a request can cross its FIN on the way. Sending it once more
        is safe only if it was not read, and silence does not prove that: the server may have acted and died. But every
        segment acknowledges what its sender's kernel had received by then. If the FIN has arrived and not one byte of
        the request is acknowledged, the FIN left before the request came in, and a socket that is closed for reading
        and writing gives nothing to its program any more. A reset proves nothing: it may overtake acknowledgements,
        and a server that read half of a request sends one too. Asked of the kernel, in bytes: what it holds of this
        connection that was never acknowledged, and what the transport has not handed to it.
        """
        if self._reader is None or self._reader.began or self._transport is None:
            return False
        return self._unacknowledged() >= self._request_bytes

    def _unacknowledged(self) -> int:
        """How many bytes have not reached the peer's host: what the kernel and the transport hold of them.

        Of an answer too this tells something. Its last segment acknowledges what its sender's kernel had by then: if
        not one byte of the request had come, it answers something else; if a part had, the rest may yet be taken for
        another request.
        """
        assert self._transport is not None
        try:
            answer = fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, _ANY_INT)
        except (OSError, ValueError):
            return 0  # a kernel that does not tell: then nothing is certain
        held = 0 if answer == _ANY_INT else int(struct.unpack("i", answer)[0])
        return held + self._transport.get_write_buffer_size()


def find_unusable(connections: Iterable[Connection]) -> set[Connection]:
    """Those of these connections on which no request may be sent any more: either side has begun to close, or something
    is there to read, a goodbye or bytes that nobody asked for. Asks the kernel, of all of them at once.

    The loop reads after it writes, so a second answer to the last request may lie unread, and would be taken for the
    answer to the next one.
    """
    readable = select.poll()
    unusable: set[Connection] = set()
    by_number: dict[int, Connection] = {}
    for connection in connections:
        if not connection.is_open:
            unusable.add(connection)
        elif (watched := connection.watched) is not None:
            number = watched.fileno()
            by_number[number] = connection
            readable.register(number, select.POLLIN)
    unusable.update(by_number[number] for number, _event in readable.poll(0))
    return unusable
