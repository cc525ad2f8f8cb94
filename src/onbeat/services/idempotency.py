"""Idempotency-Key: the same request twice gives the same answer once. Source: IETF draft, reliability P25."""

from __future__ import annotations

import hashlib

from onbeat.clock import Clock
from onbeat.domain.errors import IdempotencyConflict, IdempotencyInFlight
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.store.contract import Store
from onbeat.store.values import SavedAnswer

LONGEST_KEY = 255


def job_ids(scope: str, key: str, request: bytes, count: int) -> list[int]:
    """The ids of the jobs that a request under a key creates. Trying it again, after a crash between the jobs and the
    answer, so finds what the first try saved.
    """
    seed = hashlib.sha256(f"{scope}\0{key}\0".encode() + hashlib.sha256(request).digest())
    ids = []
    for place in range(count):
        place_in_request = seed.copy()
        place_in_request.update(place.to_bytes(8, "big"))
        ids.append(int.from_bytes(place_in_request.digest()[:8], "big") >> (64 - JOB_ID_BITS))
    return ids


class Idempotency:
    """Keeps the first answer of a request for 24 h."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def begin(self, scope: str, key: str, request: bytes) -> SavedAnswer | None:
        """None: go on, and `keep` or `drop` afterwards. Otherwise the answer to repeat."""
        fingerprint = hashlib.sha256(request).digest()
        saved = await self._store.access.reserve_answer(scope, key, fingerprint, now=self._clock.now())
        if saved is None:
            return None
        if saved.fingerprint != fingerprint:
            raise IdempotencyConflict(field="Idempotency-Key", remedy="use a new key for a new request")
        if saved.status == 0:
            raise IdempotencyInFlight(field="Idempotency-Key", remedy="wait a moment and send the request again")
        return saved

    async def keep(self, scope: str, key: str, request: bytes, *, status: int, headers: str, body: bytes) -> None:
        """The request changed something or was refused for good: answer the same from now on."""
        fingerprint = hashlib.sha256(request).digest()
        await self._store.access.save_answer(scope, key, SavedAnswer(fingerprint, status, headers, body))

    async def drop(self, scope: str, key: str) -> None:
        """The request was refused, or failed on our side: it may be sent again."""
        await self._store.access.drop_answer(scope, key)
