"""Receivers made of raw sockets, so that a test can say any bytes whatever; and the things a sender needs in tests."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from onbeat.clock import ManualClock
from onbeat.delivery.limits import DialLimits, SenderLimits
from onbeat.delivery.request import Delivery
from onbeat.delivery.resolver import LookupFailed
from onbeat.delivery.sender import Permit, Sender
from onbeat.domain.egress import EgressRules
from onbeat.domain.egress_proxy import EgressProxy
from onbeat.domain.ids import RunKey
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import Outcome
from onbeat.domain.states import Trigger

NOW = 1_800_000_000_000_000  # 2027-01-15T08:00:00Z
KEY = b"k" * 32
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
DEADLINE_S = 10.0  # for the test itself: a hang is a failure


@dataclass(slots=True)
class Seen:
    """A request as it came off the wire."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


Behaviour = Callable[[Seen, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request. True: go on with the next on this connection."""


def says(answer: bytes, *, then_closes: bool = False) -> Behaviour:
    """Writes these bytes."""

    async def behave(_: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(answer)
        return not then_closes

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """A different behaviour per request; the last one for all that follow."""
    left = list(behaviours)

    async def behave(seen: Seen, writer: asyncio.StreamWriter) -> bool:
        return await (left.pop(0) if len(left) > 1 else left[0])(seen, writer)

    return behave


async def stays_silent(_: Seen, writer: asyncio.StreamWriter) -> bool:
    """Never answers; ends when the other side does."""
    await writer.wait_closed()
    return False


async def resets(_: Seen, writer: asyncio.StreamWriter) -> bool:
    """Ends with a reset instead of an answer."""
    writer.transport.abort()
    return False


def never_ends(beginning: bytes, repeated: bytes) -> Behaviour:
    """Writes for as long as anybody reads."""

    async def behave(_: Seen, writer: asyncio.StreamWriter) -> bool:
        writer.write(beginning)
        while not writer.transport.is_closing():
            writer.write(repeated)
            try:
                await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        return False

    return behave


@dataclass
class Receiver:
    """A server on loopback that does what it is told and remembers what it saw."""

    behaviour: Behaviour
    tls: ssl.SSLContext | None = None
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> Receiver:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while True:
                seen = await _read_request(reader, connection=number)
                self.seen.append(seen)
                self.arrived.set()
                if not await self.behaviour(seen, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


async def _read_request(reader: asyncio.StreamReader, *, connection: int) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = dict(one.split(": ", 1) for one in lines)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(line, headers, body, connection)


@dataclass
class StubResolver:
    """Answers from a table. A name that is not in it does not exist; None never gets an answer."""

    answers: dict[str, Sequence[str] | None]
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str, *, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise LookupFailed("there is no such host name")
        answer = self.answers[host]
        if answer is None:
            await asyncio.Event().wait()
        return answer or ()


def delivery(
    url: str,
    *,
    number: int = 0,
    attempt: int = 1,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    body: str | None = None,
    payload: str | None = None,
    run_payload: str | None = None,
    keys: tuple[bytes, ...] = (KEY,),
    timeout_s: float = DEADLINE_S,
    granted: float = 0.0,
    connect_timeout_s: float | None = None,
    deadline: float | None = None,
    job_id: int | None = None,
    job_name: str = "Daily",
) -> Delivery:
    """A delivery of its own job, granted at boot time 0."""
    target = WebhookTarget(url=url, method=method, headers=headers or {}, body=body, payload=payload)
    return Delivery(
        key=RunKey(abs(hash(target.url)) % 2**62 if job_id is None else job_id, NOW - 1_500_000 + number),
        token=b"t" * 16,
        attempt=attempt,
        trigger=Trigger.SCHEDULE,
        job_key="daily",
        job_name=job_name,
        target=target,
        keys=keys,
        timeout_s=timeout_s,
        granted=granted,
        payload=run_payload,
        connect_timeout_s=connect_timeout_s,
        deadline=deadline,
    )


async def always(_: Delivery) -> bool:
    """Grants every permit."""
    return True


# Long enough that a stall of a busy machine is no timeout; tests of timeouts wait for them.
SMALL = SenderLimits(dial=DialLimits(resolve_s=1.0, connect_s=1.0, tls_s=5.0), timer_step_s=0.005)


@dataclass
class Sending:
    """A sender and its outcomes, closed at the end."""

    rules: EgressRules = field(default_factory=EgressRules.for_development)
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW))
    ask_permit: Permit = always
    resolver: StubResolver = field(default_factory=lambda: StubResolver({}))
    tls: ssl.SSLContext | None = None
    limits: SenderLimits = SMALL
    proxy: EgressProxy | None = None

    async def __aenter__(self) -> Sending:
        self.sender = Sender(
            rules=self.rules,
            clock=self.clock,
            ask_permit=self.ask_permit,
            resolver=self.resolver,
            ssl_context=self.tls,
            limits=self.limits,
            proxy=self.proxy,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.sender.close()
        assert self.sender.in_flight == 0

    def begin(self, one: Delivery) -> asyncio.Future[Outcome]:
        """Send one delivery; its outcome, later. A second outcome would raise inside the future."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.sender.send([one], lambda _, given: outcome.set_result(given))
        return outcome

    async def outcome_of(self, one: Delivery) -> Outcome:
        """Send one delivery and wait for its outcome."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.begin(one)


@dataclass(frozen=True)
class InThreePlaces:
    """Three deliveries under way: one waits for its answer, one for its turn, one for the name of its host."""

    receiver: Receiver
    sending: Sending
    sent: Delivery
    in_line: Delivery
    resolving: Delivery
    outcomes: list[asyncio.Future[Outcome]]


@contextlib.asynccontextmanager
async def in_three_places() -> AsyncIterator[InThreePlaces]:
    """From the moment when the first has been read."""
    limits = SenderLimits(connections_per_origin=1)
    resolver = StubResolver({"slow.test": None})
    async with Receiver(stays_silent) as receiver, Sending(limits=limits, resolver=resolver) as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        three = delivery(url, number=1), delivery(url, number=2), delivery("http://slow.test/")
        outcomes = [sending.begin(one) for one in three]
        await receiver.arrived.wait()
        yield InThreePlaces(receiver, sending, *three, outcomes)
