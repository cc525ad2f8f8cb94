"""Hints over NOTIFY, heard on one connection of each process: see store/hints.py."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, TypeAlias

import asyncpg
import msgspec
import structlog

from onbeat.store.hints import Hint
from onbeat.store.postgres.queries import load_queries

log = structlog.get_logger(__name__)

Tell = Callable[[Hint], None]
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

CHANNEL: Final = "onbeat"
ANSWER_TIMEOUT_S: Final = 5.0

_QUERIES = load_queries("hints")


class _Letter(msgspec.Struct, frozen=True, gc=False):
    """A hint on its way. `sender` tells a process its own ones."""

    sender: str
    hint: Hint


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Letter)


class Hints:
    """Sends this process's hints and hears those of others."""

    def __init__(self, url: str | None) -> None:
        """`url`: where to listen. None: a pooler stands in between, which hands on no notifications; nobody hints."""
        self._url = url
        self._sender = secrets.token_hex(4)
        self._listener: asyncpg.Connection[asyncpg.Record] | None = None
        self._watchers: list[Tell] = []
        self.are_wanted = url is not None

    def watch(self, heed: Tell) -> None:
        """Have `heed` called with each hint, of this process and of others, before anybody else hears it."""
        self._watchers.append(heed)

    def note(self, hint: Hint) -> None:
        """What it says is written, or may be."""
        for heed in self._watchers:
            heed(hint)

    def send_to_others(self, are_there: bool) -> None:
        """Send hints from now on, or none because nobody is there to hear them."""
        self.are_wanted = are_there and self._url is not None

    async def send(self, connection: Connection, hint: Hint) -> None:
        """To all others, when this transaction commits."""
        await connection.execute(_QUERIES["send_hint"], _ENCODER.encode(_Letter(self._sender, hint)).decode())

    async def listen(self, tell: Tell) -> bool:
        """Listen, if that is not so already. False: it is not possible, or not now."""
        if self._url is None:
            return False
        try:
            if self._listener is None:
                self._listener = await self._connect(self._url, tell)
            else:
                # A peer that is gone without a word would leave the connection silent for ever.
                await self._listener.execute(_QUERIES["hear_nothing"])
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            log.debug("hints_not_heard", error=str(error) or type(error).__name__)
            self._hang_up()
        return self._listener is not None

    async def _connect(self, url: str, tell: Tell) -> asyncpg.Connection[asyncpg.Record]:
        def hear(_connection: object, _process: int, _channel: str, payload: object) -> None:
            try:
                letter = _DECODER.decode(str(payload))
            except msgspec.DecodeError:  # another program's, or of a release that says more
                return
            if letter.sender != self._sender:
                self.note(letter.hint)
                tell(letter.hint)

        connection = await asyncpg.connect(url, timeout=ANSWER_TIMEOUT_S, command_timeout=ANSWER_TIMEOUT_S)
        try:
            await connection.add_listener(CHANNEL, hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def close(self) -> None:
        """Hear nothing from now on."""
        self._url = None
        self._hang_up()

    def _hang_up(self) -> None:
        if self._listener is not None:
            self._listener.terminate()
            self._listener = None
