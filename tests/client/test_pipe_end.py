"""The node's end of the pipe: its answers to a delivery process that dies, stands still or starts at a bad time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.support.scheduler import START, Scheduler, every, scheduling

from onbeat.app.pipe_end import PipeEnd
from onbeat.client.frames import Frames
from onbeat.client.pipe import Call, Claim, Counted, Granted, ReadClock, Word
from onbeat.clock import ManualClock
from onbeat.domain.errors import StoreUnavailable
from onbeat.domain.model import WebhookTarget
from onbeat.telemetry import Metrics

LARGE = "x" * 250_000
"""Two of these are more than a pair of sockets and a writer buffer."""


class UnreadableClock(ManualClock):
    """The clock of a node whose database is away."""

    async def refresh(self) -> None:
        raise StoreUnavailable("the database does not answer")


@dataclass
class Pipe:
    """Both ends: the worker's is a bare socket, which reads no more than it is told to."""

    scheduler: Scheduler
    end: PipeEnd
    metrics: Metrics
    worker: socket.socket
    serving: asyncio.Task[None]

    async def call(self, call: Call) -> None:
        body = msgspec.msgpack.encode(call)
        await asyncio.get_running_loop().sock_sendall(self.worker, len(body).to_bytes(4, "big") + body)

    async def read(self) -> Word:
        """One frame, and not a byte more."""
        size = int.from_bytes(await self._read(4), "big")
        return msgspec.msgpack.decode(await self._read(size), type=Word)

    async def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            read += await asyncio.get_running_loop().sock_recv(self.worker, size - len(read))
        return read

    async def until_served(self) -> None:
        async with asyncio.timeout(10):
            await self.serving


@pytest.fixture
async def pipe(tmp_path: Path) -> AsyncIterator[Pipe]:
    async with scheduling(tmp_path / "onbeat.sqlite3", clock=UnreadableClock(START)) as scheduler:
        ours, worker = socket.socketpair()
        worker.setblocking(False)
        frames: Frames[Call] = await Frames.open(ours, reads=Call)
        metrics = Metrics()
        end = PipeEnd(frames, leasing=scheduler.leasing_for("worker"), clock=scheduler.clock, metrics=metrics)
        with worker:
            pipe = Pipe(scheduler, end, metrics, worker, asyncio.create_task(end.serve()))
            yield pipe
        await pipe.until_served()


def has_bytes(connected: socket.socket) -> bool:
    """Something is there to read, which is left there."""
    try:
        return bool(connected.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


async def make_ready(pipe: Pipe, count: int) -> None:
    for _ in range(count):
        job = await pipe.scheduler.job(every(3_600), target=WebhookTarget(url="http://127.0.0.1:9/", body=LARGE))
        await pipe.scheduler.runs.trigger(job.job_id, payload=None)


async def test_what_a_worker_may_have_read_before_it_died_is_not_offered_again_before_its_lease_ends(
    pipe: Pipe,
) -> None:
    await make_ready(pipe, 4)
    await pipe.call(Claim(1, None, 2, 0.0))
    await pipe.call(Claim(2, None, 2, 0.0))
    async with asyncio.timeout(10):
        while b"onbeat_running_attempts 4.0" not in pipe.metrics.render():
            await asyncio.sleep(0.01)
    read = await pipe.read()  # while the other two are still on their way
    assert isinstance(read, Granted)
    assert len(read.runs) == 2
    pipe.worker.close()
    await pipe.until_served()
    assert await pipe.scheduler.claim() == []


async def test_what_is_granted_to_a_worker_that_is_gone_is_given_back(pipe: Pipe) -> None:
    await make_ready(pipe, 1)
    await pipe.call(Claim(1, None, 1, 0.0))
    pipe.worker.close()
    await pipe.until_served()
    (run,) = await pipe.scheduler.claim()
    assert run.attempt == 1  # the one given back does not count


async def test_a_worker_that_stands_still_with_a_full_pipe_can_be_hung_up_on(pipe: Pipe) -> None:
    await make_ready(pipe, 2)
    await pipe.call(Claim(1, None, 2, 0.0))
    async with asyncio.timeout(10):
        while not has_bytes(pipe.worker):
            await asyncio.sleep(0.01)
    pipe.end.drain()
    pipe.end.hang_up()
    await pipe.until_served()


async def test_a_process_that_starts_while_the_database_is_away_gets_the_node_s_time(pipe: Pipe) -> None:
    await pipe.call(ReadClock(1))
    assert await pipe.read() == Counted(1, START)


async def test_silence_is_measured_from_the_last_call_and_is_endless_before_the_first(pipe: Pipe) -> None:
    assert pipe.end.silent_s > 1e9
    await pipe.call(ReadClock(1))
    await pipe.read()
    assert pipe.end.silent_s == 0
    pipe.scheduler.clock.advance(40)
    assert pipe.end.silent_s == 40
