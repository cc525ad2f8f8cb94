"""A worker's way to the scheduler over HTTP: the same five calls as in process.

Heartbeats have a connection of their own, so that a long claim or a large report never delays them. Nothing here
retries: the loop that makes a call repeats it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Final

import httpx
import msgspec

from onbeat.client.certificates import has_certificates
from onbeat.client.wire import (
    WireClaimed,
    WireFinished,
    WireStatus,
    finish_to_wire,
    finished_from_wire,
    from_wire,
    held_to_wire,
)
from onbeat.clock import boottime_s
from onbeat.domain.errors import NotAllowed, NotAuthenticated, OnbeatError, RequestError, StoreUnavailable
from onbeat.services.assignment import LARGEST_CALL, Assignment, Held
from onbeat.store.values import Finish, Finished, LeaseStatus

CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0

LARGEST_REPORT_BYTES: Final = 4 * 1_048_576
"""Of JSON in one report: a quarter of what a server reads. What a receiver answers makes up to 55 kB of it. A report
that is refused for its size would be refused each time.
"""


class _Statuses(msgspec.Struct, frozen=True):
    runs: tuple[WireStatus, ...]


class _Results(msgspec.Struct, frozen=True):
    runs: tuple[WireFinished, ...]


class _Released(msgspec.Struct, frozen=True):
    released: int


class _Time(msgspec.Struct, frozen=True):
    now: int


class HttpLink:
    """Implements services.assignment.WorkerLink. Use as an async context manager."""

    def __init__(self, server: str, *, key: str | None, worker: str, tls: ssl.SSLContext | None = None) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        timeout = httpx.Timeout(CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._worker = worker
        self._calls, self._beats = (
            httpx.AsyncClient(
                base_url=server,
                headers=headers | {"content-type": "application/json"},
                timeout=timeout,
                trust_env=False,
                verify=tls if tls is not None else has_certificates(server),
            )
            for _ in range(2)
        )
        self._claims_stopped = asyncio.Event()

    async def __aenter__(self) -> HttpLink:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._calls.aclose()
        await self._beats.aclose()

    def stop_claiming(self) -> None:
        """Hang up on a claim that waits; the server gives back what it may have granted meanwhile."""
        self._claims_stopped.set()

    async def read_clock(self) -> int:
        """The server's time at some moment of the exchange, for a DatabaseClock."""
        return msgspec.json.decode(await self._get("/v1/time"), type=_Time).now

    async def claim(self, *, queue: str | None, limit: int, wait_s: float) -> list[Assignment]:
        """Up to `limit` attempts, and no more than one call grants. Nothing, once claims were stopped."""
        if self._claims_stopped.is_set():
            return []
        body = {"worker": self._worker, "queue": queue, "limit": min(limit, LARGEST_CALL), "wait_s": wait_s}
        started = boottime_s()
        call = asyncio.ensure_future(self._post(self._calls, "/v1/runs/claim", body, wait_s=wait_s))
        stop = asyncio.ensure_future(self._claims_stopped.wait())
        try:
            await asyncio.wait({call, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return []
            claimed = msgspec.json.decode(call.result(), type=WireClaimed)
        finally:
            call.cancel()
            stop.cancel()
        received = boottime_s()
        # The way there and back may have taken any part of what the server did not wait: all of it counts as age.
        travelled_s = max(received - started - claimed.waited_s, 0.0)
        return [
            from_wire(run, granted_boottime=received - travelled_s - max(claimed.now - run.granted_at, 0) / 1e6)
            for run in claimed.runs
        ]

    async def extend(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """Heartbeat."""
        return await self._statuses(self._beats, "/v1/runs/heartbeat", held)

    async def permit(self, held: Sequence[Held]) -> list[LeaseStatus]:
        """May these attempts begin?"""
        return await self._statuses(self._beats, "/v1/runs/permit", held)

    async def finish(self, items: Sequence[Finish]) -> list[Finished]:
        """Report the end of attempts. Where a later part fails, all of it may be reported again."""
        finished: list[Finished] = []
        for part in _in_reports([msgspec.json.encode(finish_to_wire(item)) for item in items]):
            answer = await self._post(self._calls, "/v1/runs/finish", {"runs": part})
            finished += [finished_from_wire(run) for run in msgspec.json.decode(answer, type=_Results).runs]
        return finished

    async def release(self, held: Sequence[Held]) -> int:
        """Give attempts back."""
        released = 0
        for part in _in_calls(held):
            answer = await self._post(self._calls, "/v1/runs/release", {"runs": [held_to_wire(item) for item in part]})
            released += msgspec.json.decode(answer, type=_Released).released
        return released

    async def _statuses(self, client: httpx.AsyncClient, path: str, held: Sequence[Held]) -> list[LeaseStatus]:
        statuses: list[LeaseStatus] = []
        for part in _in_calls(held):
            answer = await self._post(client, path, {"runs": [held_to_wire(item) for item in part]})
            statuses += [run.status for run in msgspec.json.decode(answer, type=_Statuses).runs]
        return statuses

    async def _get(self, path: str) -> bytes:
        try:
            answer = await self._calls.get(path)
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"the server does not answer: {error!r}") from None
        return _accepted(answer)

    async def _post(self, client: httpx.AsyncClient, path: str, body: object, *, wait_s: float = 0.0) -> bytes:
        timeout = httpx.Timeout(CALL_TIMEOUT_S + wait_s, connect=CONNECT_TIMEOUT_S)
        try:
            answer = await client.post(path, content=msgspec.json.encode(body), timeout=timeout)
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"the server does not answer: {error!r}") from None
        return _accepted(answer)


def _in_calls(held: Sequence[Held]) -> list[Sequence[Held]]:
    """One call, also where nothing is held, or as many as it takes."""
    return [held[start : start + LARGEST_CALL] for start in range(0, max(len(held), 1), LARGEST_CALL)]


def _in_reports(items: Sequence[bytes]) -> list[list[msgspec.Raw]]:
    """One report, or as many as it takes."""
    parts: list[list[msgspec.Raw]] = [[]]
    size = 0
    for item in items:
        size += len(item)
        if size > LARGEST_REPORT_BYTES and parts[-1]:
            parts.append([])
            size = len(item)
        parts[-1].append(msgspec.Raw(item))
    return parts


def _accepted(answer: httpx.Response) -> bytes:
    if answer.status_code == 200:
        return answer.content
    detail = f"the server answered {answer.status_code}: {answer.text[:200]}"
    if answer.status_code == 401:
        raise NotAuthenticated(detail)
    if answer.status_code == 403:
        raise NotAllowed(detail)
    if answer.status_code >= 500 or answer.status_code == 429:
        raise StoreUnavailable(detail)
    if answer.status_code in (400, 422):
        raise RequestError(detail)
    raise OnbeatError(detail)
