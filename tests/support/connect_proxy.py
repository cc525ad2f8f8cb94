"""An HTTP proxy that does one thing, CONNECT, as real ones do: judge the caller, dial, answer 200, copy bytes.

A test may have it answer in any other way, and sees what it was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

_CHUNK = 65_536
_TUNNEL_OPEN = (b"HTTP/1.1 200 Connection established\r\n\r\n",)

Instead = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""What it does instead of opening a tunnel."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    line: str
    headers: dict[str, str]

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]


def answers(answer: bytes, *, then_closes: bool = True) -> Instead:
    """Says these bytes."""

    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        if not then_closes:
            await asyncio.Event().wait()

    return behave


async def stays_silent(_: asyncio.StreamWriter) -> None:
    """Says nothing and keeps the connection."""
    await asyncio.Event().wait()


@dataclass
class ConnectProxy:
    """Listens on loopback. `names` is its own resolver: a name that is not there is dialled as it stands."""

    authorization: str | None = None  # the proxy-authorization it wants; None: anybody may
    names: Mapping[str, str] = field(default_factory=dict)
    instead: Instead | None = None
    opening: Sequence[bytes] = _TUNNEL_OPEN  # written piece by piece
    asked: list[Asked] = field(default_factory=list)
    through: list[bytes] = field(default_factory=list)  # what callers sent into tunnels
    tunnels: int = 0
    port: int = 0
    _tasks: set[asyncio.Task[object]] = field(default_factory=set)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def wait_for(self, holds: Callable[[list[Asked]], bool], *, timeout_s: float = 30.0) -> None:
        """Until what was asked so far satisfies `holds`."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: holds(self.asked))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._lead(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async def hang_up(self) -> None:
        """Cut every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
        asked = Asked(line, dict(one.split(": ", 1) for one in lines))
        async with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
        if self.instead is not None:
            await self.instead(writer)
            await writer.drain()
            return writer.close()
        if not line.startswith("CONNECT "):
            return writer.write(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
        if self.authorization is not None and asked.headers.get("proxy-authorization") != self.authorization:
            writer.write(b'HTTP/1.1 407 Who\r\nproxy-authenticate: Basic realm="x"\r\ncontent-length: 0\r\n\r\n')
            await writer.drain()
            return writer.close()
        host, _, port = asked.target.rpartition(":")
        try:
            host = self.names.get(host, host.strip("[]"))
            theirs, ours = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return writer.close()
        self.tunnels += 1
        for piece in self.opening:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        try:
            await asyncio.gather(self._copy(reader, ours, seen=self.through), self._copy(theirs, writer))
        finally:
            ours.transport.abort()
        return None

    @staticmethod
    async def _copy(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, seen: list[bytes] | None = None
    ) -> None:
        while piece := await source.read(_CHUNK):
            if seen is not None:
                seen.append(piece)
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()


@contextlib.asynccontextmanager
async def proxying(
    *,
    authorization: str | None = None,
    names: Mapping[str, str] | None = None,
    instead: Instead | None = None,
    opening: Sequence[bytes] = _TUNNEL_OPEN,
) -> AsyncIterator[ConnectProxy]:
    """A proxy that listens while the block runs."""
    proxy = ConnectProxy(authorization=authorization, names=names or {}, instead=instead, opening=opening)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.hang_up()
