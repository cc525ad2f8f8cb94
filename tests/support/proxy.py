"""A TCP proxy between two real peers that can be told to misbehave, each way by itself, while connections are open.

- *Stall*: bytes are taken and kept; no FIN, no RST, nothing moves. What a firewall does that drops packets.
- *Cut*: every open connection ends by RST.
- *Delay*: bytes arrive so much later, in order.
- *Forget*: after a stall, what was open then stays silent, and what is new passes. What a restarted router does.
- *Refuse*: new connections are cut as soon as they are made; open ones are left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

_CHUNK = 65_536
_MOST_KEPT = 64  # chunks one way; a sender that goes on fills its kernel's buffers, as with a real stall
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close() throws away what was not sent, and sends RST


class Direction:
    """One way through every connection of the proxy."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._flows = asyncio.Event()
        self._flows.set()

    @property
    def is_stalled(self) -> bool:
        return not self._flows.is_set()

    def stall(self) -> None:
        """Nothing moves until `resume`; bytes under way are kept."""
        self._flows.clear()

    def resume(self) -> None:
        """What was kept moves on, then what comes."""
        self._flows.set()

    async def pass_through(self) -> None:
        """Until a byte that is here now may leave."""
        await self._flows.wait()


class _Connection:
    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server

    def cut(self) -> None:
        for writer in (self.client, self.server):
            _reset(writer)


@dataclass
class Proxy:
    """Listens on loopback and passes everything on to one address, as far as it is allowed to."""

    to_host: str
    to_port: int
    port: int = 0
    to_server: Direction = field(default_factory=Direction)
    to_client: Direction = field(default_factory=Direction)
    accepted_count: int = 0
    is_refusing: bool = False
    _connections: set[_Connection] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_count(self) -> int:
        """How many connections go through it now."""
        return len(self._connections)

    def stall(self) -> None:
        """Both ways. A new connection is accepted by the kernel and gets no answer either."""
        self.to_server.stall()
        self.to_client.stall()

    def resume(self) -> None:
        """Both ways."""
        self.to_server.resume()
        self.to_client.resume()

    def forget(self) -> None:
        """What is open now stays as it is for ever, silent if it is stalled; what comes later passes freely."""
        self.to_server, self.to_client = Direction(), Direction()

    def cut(self) -> int:
        """RST to both ends of every open connection. Answer: how many there were."""
        connections = list(self._connections)
        for connection in connections:
            connection.cut()
        self._connections.clear()
        return len(connections)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end closes it or it is cut."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted_count += 1
        if self.is_refusing:
            _reset(writer)
            return
        with contextlib.suppress(asyncio.CancelledError):  # by `close`: the server that began this task takes none
            await self._carry(reader, writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.to_server.pass_through()
            there_reader, there = await asyncio.open_connection(self.to_host, self.to_port)
        except OSError:
            _reset(writer)
            return
        connection = _Connection(writer, there)
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(_pump(reader, there, self.to_server))
                both_ways.create_task(_pump(there_reader, writer, self.to_client))
        except* ConnectionError:
            connection.cut()  # a reset of one end is one of the other
        finally:
            self._connections.discard(connection)
            for end in (writer, there):
                end.close()

    async def close(self) -> None:
        """Cut what is open and wait until nothing is left."""
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: Direction) -> None:
    """One way of one connection. The end of the source ends this way only."""
    kept: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_KEPT)
    async with asyncio.TaskGroup() as halves:
        halves.create_task(_take(source, kept, way))
        halves.create_task(_give(kept, sink, way))


async def _take(source: asyncio.StreamReader, kept: asyncio.Queue[tuple[float, bytes]], way: Direction) -> None:
    chunk = b"first"
    while chunk:
        chunk = await source.read(_CHUNK)
        await kept.put((asyncio.get_running_loop().time() + way.delay_s, chunk))


async def _give(kept: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter, way: Direction) -> None:
    while True:
        leaves_at, chunk = await kept.get()
        await asyncio.sleep(max(leaves_at - asyncio.get_running_loop().time(), 0))
        await way.pass_through()
        if not chunk:
            break
        sink.write(chunk)
        await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@contextlib.asynccontextmanager
async def proxying(to_port: int, *, to_host: str = "127.0.0.1") -> AsyncIterator[Proxy]:
    """A proxy in front of that port while the block runs."""
    proxy = Proxy(to_host, to_port)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
