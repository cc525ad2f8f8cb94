"""Messages between two processes of one host, over a connected pair of sockets.

A frame is its length in 4 bytes, big-endian, and one message in MessagePack. What a message may be is the caller's
affair; both ends are of one version, since one has started the other.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, Final, Generic, TypeVar

import msgspec

Message = TypeVar("Message")

_LENGTH_BYTES: Final = 4


class Frames(Generic[Message]):
    """One end: sends any message, and reads those of one type."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, reads: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(reads)

    @classmethod
    async def open(cls, connected: socket.socket, *, reads: Any) -> Frames[Message]:
        """Take over a connected socket. `reads`: the type, or union of types, of what the other end sends."""
        connected.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connected)
        return cls(reader, writer, reads=reads)

    async def send(self, message: msgspec.Struct) -> None:
        """Send it, waiting while the other end does not read. Raises ConnectionError once that is gone."""
        body = self._encoder.encode(message)
        self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        await self._writer.drain()

    def post(self, message: msgspec.Struct) -> None:
        """Send it without waiting: for a few words that may get lost with the other end."""
        if not self._writer.is_closing():
            body = self._encoder.encode(message)
            self._writer.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)

    async def read_all(self) -> AsyncIterator[Message]:
        """What the other end sends, until it is gone."""
        while True:
            try:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield self._decoder.decode(body)

    def close(self) -> None:
        """Hang up at once. What the other end has not taken is dropped: it may stand still for ever."""
        self._writer.transport.abort()
