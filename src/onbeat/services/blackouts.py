"""Blackouts: save, look at, delete. What they do to fires is decided in dispatch, from the next batch on."""

from __future__ import annotations

from onbeat.clock import Clock
from onbeat.domain.blackout import BlackoutRules, check_blackout, encode_blackout
from onbeat.domain.errors import BlackoutNotFound
from onbeat.services.almanac import Almanac
from onbeat.store.contract import Store
from onbeat.store.values import StoredBlackout


class Blackouts:
    """What people do with blackouts. Nothing that is recorded already changes."""

    def __init__(self, *, store: Store, clock: Clock, almanac: Almanac) -> None:
        self._store = store
        self._clock = clock
        self._almanac = almanac

    async def put(self, namespace: str, name: str, rules: BlackoutRules) -> StoredBlackout:
        """Create the blackout, or give it these rules. Raises DefinitionError."""
        check_blackout(rules)
        saved = await self._store.blackouts.put(namespace, name, rules=encode_blackout(rules), now=self._clock.now())
        await self._almanac.load(now=self._clock.now())
        return saved

    async def get(self, namespace: str, name: str) -> StoredBlackout:
        """Raises BlackoutNotFound."""
        stored = await self._store.blackouts.get(namespace, name)
        if stored is None:
            raise BlackoutNotFound(f"there is no blackout named {name!r}")
        return stored

    async def find(self, namespace: str) -> list[StoredBlackout]:
        """Every blackout of a namespace, by name, past ones too."""
        return [stored for stored in await self._store.blackouts.find() if stored.namespace == namespace]

    async def delete(self, namespace: str, name: str) -> None:
        """Raises BlackoutNotFound."""
        if not await self._store.blackouts.delete(namespace, name):
            raise BlackoutNotFound(f"there is no blackout named {name!r}")
        await self._almanac.load(now=self._clock.now())
