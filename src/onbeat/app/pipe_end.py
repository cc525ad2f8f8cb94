"""The node's end of a pipe to a delivery process: answers its calls, counts what it does, and passes words on."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable

import structlog

from onbeat.client.frames import Frames
from onbeat.client.pipe import (
    Answer,
    Call,
    Cancelled,
    Claim,
    Counted,
    Doubted,
    Drain,
    Extend,
    Granted,
    Permit,
    ReadClock,
    Refused,
    Release,
    Report,
    Reported,
    Statuses,
)
from onbeat.clock import Clock
from onbeat.domain.errors import OnbeatError
from onbeat.domain.ids import RunKey
from onbeat.services.assignment import Assignment
from onbeat.services.leasing import Leasing
from onbeat.telemetry import Metrics

log = structlog.get_logger(__name__)


class PipeEnd:
    """Serves one worker until it hangs up. What is granted after that is given back."""

    def __init__(self, frames: Frames[Call], *, leasing: Leasing, clock: Clock, metrics: Metrics) -> None:
        self._frames = frames
        self._leasing = leasing
        self._clock = clock
        self._metrics = metrics
        self._answering: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._heard_at = -math.inf  # on the boot clock
        self._held: set[bytes] = set()  # tokens of what the worker has

    @property
    def was_heard(self) -> bool:
        """Has the worker ever said anything?"""
        return self._heard_at > -math.inf

    @property
    def silent_s(self) -> float:
        """For how long the worker has said nothing."""
        return self._clock.boottime() - self._heard_at

    async def serve(self) -> None:
        """Answer until the worker is gone. Calls do not wait for each other."""
        try:
            async for call in self._frames.read_all():
                self._heard_at = self._clock.boottime()
                task = asyncio.create_task(self._answer(call))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        finally:
            self._is_cut = True
            self._leasing.stop_waiting()
            self._frames.close()
            await asyncio.gather(*self._answering, return_exceptions=True)
            self._metrics.running.dec(len(self._held))

    def cancel(self, key: RunKey) -> None:
        """This run was asked to stop: whoever has it is told."""
        self._frames.post(Cancelled(key))

    def doubt(self, key: RunKey) -> None:
        """This run may have been asked to stop."""
        self._frames.post(Doubted(key))

    def drain(self) -> None:
        """The node stops."""
        self._frames.post(Drain())

    def hang_up(self) -> None:
        """Without a word: the worker leaves at once."""
        self._frames.close()

    async def _answer(self, call: Call) -> None:
        try:
            answer = await self._do(call)
        except OnbeatError as error:
            answer = Refused(call.number, error.detail)
        except Exception as error:
            log.error("call_failed", call=type(call).__name__, exc_info=error)
            answer = Refused(call.number, "the node could not do it; its log says why")
        if self._is_cut:
            if isinstance(answer, Granted):
                with contextlib.suppress(OnbeatError):  # their leases end by themselves
                    await self._leasing.release([(run.key, run.token) for run in answer.runs])
            return
        # The worker may have read all of an answer whose sending fails, and begun: what was granted is left to its
        # leases, or an at_most_once run would be sent twice.
        with contextlib.suppress(ConnectionError):
            await self._frames.send(answer)

    async def _do(self, call: Call) -> Answer:
        leasing = self._leasing
        match call:
            case Claim(number, queue, limit, wait_s):
                runs = await leasing.claim(queue=queue, limit=limit, wait_s=wait_s)
                self._note_granted(runs)
                return Granted(number, runs)
            case Report(number, items):
                answers = await leasing.finish(items)
                for item in items:
                    self._metrics.observe_attempt(item.outcome)
                self._note_gone(item.token for item in items)
                return Reported(number, answers)
            case Extend(number, held):
                return Statuses(number, await leasing.extend(held))
            case Permit(number, held):
                return Statuses(number, await leasing.permit(held))
            case Release(number, held):
                released = await leasing.release(held)
                self._note_gone(token for _key, token in held)
                return Counted(number, released)
            case ReadClock(number):
                # While the database is away, the node's clock goes on, and so does a process that starts meanwhile.
                with contextlib.suppress(OnbeatError):
                    await self._clock.refresh()
                return Counted(number, self._clock.now())

    def _note_granted(self, runs: list[Assignment]) -> None:
        now = self._clock.now()
        for run in runs:
            self._metrics.observe_start(run.start_lag_us(now=now))
        self._held.update(run.token for run in runs)
        self._metrics.running.inc(len(runs))

    def _note_gone(self, tokens: Iterable[bytes]) -> None:
        gone = self._held.intersection(tokens)
        self._held -= gone
        self._metrics.running.dec(len(gone))
