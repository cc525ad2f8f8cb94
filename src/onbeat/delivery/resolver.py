"""Turns a host name into addresses. Judges none of them: delivery/dialer.py does, for every answer.

`getaddrinfo` blocks a thread for as long as a dead DNS server pleases and cannot be cancelled. So it has threads of its
own, never the loop's default pool (6 threads on 2 cores, shared with everything), and a name that is being looked up
is not looked up again: one dead name holds one thread, however many runs wait for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

_THREADS: Final = 32


class LookupFailed(Exception):
    """The name did not resolve. The text is fixed words, fit for the run's page."""


class Resolver(Protocol):
    """What the dialer asks."""

    async def resolve(self, host: str, *, port: int) -> Sequence[str]:
        """Every address of `host` as text, preferred ones first; never empty. Raises LookupFailed.

        May be cancelled: the caller keeps the time.
        """
        ...


class SystemResolver:
    """The host's own resolver."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="onbeat-dns")
        self._asked: dict[tuple[str, int], asyncio.Future[tuple[str, ...]]] = {}

    async def resolve(self, host: str, *, port: int) -> Sequence[str]:
        question = (host, port)
        answer = self._asked.get(question)
        if answer is None:
            answer = asyncio.get_running_loop().run_in_executor(self._threads, _ask_system, host, port)
            self._asked[question] = answer
            answer.add_done_callback(lambda done: self._forget(question, done))
        return await asyncio.shield(answer)

    def close(self) -> None:
        """Start no more lookups; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _forget(self, question: tuple[str, int], answer: asyncio.Future[tuple[str, ...]]) -> None:
        del self._asked[question]
        if not answer.cancelled():
            answer.exception()  # whoever asked may have stopped waiting; the failure is then nobody's


def _ask_system(host: str, port: int) -> tuple[str, ...]:
    try:
        # As bytes, since Python would put text through its own, older IDNA step.
        found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICSERV)
    except socket.gaierror as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            raise LookupFailed("there is no such host name") from None
        raise LookupFailed("the name server did not answer") from None
    except OSError:
        raise LookupFailed("the name server did not answer") from None
    addresses = dict.fromkeys(str(address[0]) for *_, address in found)
    if not addresses:
        raise LookupFailed("there is no such host name")
    return tuple(addresses)
