"""The processes that work on this database, for people: who lives, who fell silent, whose clock is off."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from onbeat.clock import Clock
from onbeat.domain.model import SECOND_US
from onbeat.services.membership import DEAD_AFTER_S, SILENT_AFTER_S
from onbeat.store.contract import Store
from onbeat.store.values import NodeInfo


class NodeDetail(msgspec.Struct, frozen=True):
    """What a node says of itself; another release may say less or more."""

    version: str | None = None
    pid: int | None = None
    workers: int | None = None
    slots: int | None = None  # how many it serves
    clock_skew_us: int | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A process as its last heartbeat shows it."""

    info: NodeInfo
    detail: NodeDetail
    is_alive: bool


class NodeList:
    """Looks at the heartbeats."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def find(self) -> list[NodeStatus]:
        """All by name, for a day also those that died: they took no leave."""
        silent_after_s = DEAD_AFTER_S if self._store.is_shared else SILENT_AFTER_S
        alive_since = self._clock.now() - round(silent_after_s * SECOND_US)
        return [
            NodeStatus(info, _read_detail(info.detail), info.seen_at > alive_since)
            for info in await self._store.nodes.find(seen_after=0)
        ]


def _read_detail(text: str) -> NodeDetail:
    try:
        return msgspec.json.decode(text, type=NodeDetail)
    except msgspec.DecodeError:  # of a release that meant something else by these names
        return NodeDetail()
