"""A real HTTP receiver on loopback that remembers what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from onbeat.clock import host_time_us
from onbeat.domain.ids import parse_run_id
from onbeat.testing.events import Delivery


@dataclass(frozen=True)
class Call:
    """One request that arrived whole."""

    path: str
    headers: dict[str, str]
    body: bytes
    arrived_at: int = 0

    @property
    def run_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def scheduled_at(self) -> str:
        return self.headers["onbeat-scheduled-at"]

    @property
    def attempt(self) -> int:
        return int(self.headers["onbeat-attempt"])


@dataclass(frozen=True)
class Reply:
    """A status with headers of its own."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


Answer = Callable[[Call], Awaitable[int | Reply]]


async def _accept(_call: Call) -> int:
    return 200


@dataclass
class Receiver:
    """Answers with what `answer` says and keeps every call."""

    answer: Answer = _accept
    calls: list[Call] = field(default_factory=list)
    port: int = 0
    _statuses: dict[int, int] = field(default_factory=dict)
    _connections: set[asyncio.Task[object]] = field(default_factory=set)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def deliveries(self) -> list[Delivery]:
        """Every call as the history checker reads it."""
        return [
            Delivery(parse_run_id(call.run_id), call.attempt, call.arrived_at, self._statuses.get(number), call.path)
            for number, call in enumerate(self.calls)
        ]

    async def wait_for(self, holds: Callable[[list[Call]], bool], *, timeout_s: float = 30.0) -> None:
        """Until the calls so far satisfy `holds`."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: holds(self.calls))

    async def hang_up(self) -> None:
        """Close every connection, also those that wait for an answer."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one keep-alive connection, one after the other."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                received = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
                }
                body = await reader.readexactly(int(received.get("content-length", "0")))
                call = Call(path=head[0].split(" ")[1], headers=received, body=body, arrived_at=host_time_us())
                async with self._changed:
                    number = len(self.calls)
                    self.calls.append(call)
                    self._changed.notify_all()
                answer = await self.answer(call)
                reply = Reply(answer) if isinstance(answer, int) else answer
                headers = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
                self._statuses[number] = reply.status  # before the write: what is cut after it may still have arrived
                writer.write(f"HTTP/1.1 {reply.status} X\r\n{headers}content-length: 2\r\n\r\nok".encode())
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def receiving(answer: Answer = _accept) -> AsyncIterator[Receiver]:
    """A receiver that listens while the block runs."""
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve_connection, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await receiver.hang_up()
