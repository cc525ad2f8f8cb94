"""API keys: a prefix of our own, a key id, 256 random bits and a checksum; only a hash is kept. Reliability S16."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from onbeat.clock import Clock
from onbeat.domain.errors import NotAuthenticated, RequestError
from onbeat.domain.model import SECOND_US
from onbeat.store.contract import Store
from onbeat.store.values import ApiKey

PREFIX = "onb_"
SCOPES = ("jobs:read", "jobs:write", "runs:read", "runs:write", "runs:claim", "admin")
CACHED_S = 5.0
"""A revoked key is refused after at most this long."""

TOUCH_EVERY_S = 60.0
"""`last_used_at` is for people: a write per minute and key is enough."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: the key's id and name, its namespace and its scopes."""

    key_id: str
    name: str
    namespace: str
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """`admin` carries every scope."""
        return scope in self.scopes or "admin" in self.scopes


@dataclass(slots=True)
class _Seen:
    key: ApiKey
    loaded_at: float
    touched_at: float


class ApiKeys:
    """Creates, checks and revokes keys."""

    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    async def create(
        self, *, name: str, scopes: tuple[str, ...], namespace: str = "default", expires_in_s: int | None = None
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is shown only now."""
        unknown = [scope for scope in scopes if scope not in SCOPES]
        if unknown or not scopes:
            raise RequestError(
                f"unknown scope {unknown[0]!r}" if unknown else "a key needs at least one scope",
                field="scopes",
                remedy="use " + ", ".join(SCOPES),
            )
        now = self._clock.now()
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = ApiKey(
            key_id=key_id,
            namespace=namespace,
            name=name,
            secret_hash=_hash(secret),
            scopes=scopes,
            created_at=now,
            expires_at=None if expires_in_s is None else now + expires_in_s * SECOND_US,
        )
        await self._store.access.add_key(key)
        body = f"{key_id}_{secret}"
        return key, f"{PREFIX}{body}_{_checksum(body)}"

    async def authenticate(self, text: str) -> Principal:
        """Who that key belongs to. Raises NotAuthenticated, the same for every reason."""
        key_id, secret = _split(text)
        seen = self._seen.get(key_id)
        now_s = self._clock.boottime()
        if seen is None or now_s - seen.loaded_at > CACHED_S:
            key = await self._store.access.get_key(key_id)
            if key is None:
                raise NotAuthenticated
            seen = _Seen(key, now_s, seen.touched_at if seen is not None else -TOUCH_EVERY_S)
            self._seen[key_id] = seen
        key, now = seen.key, self._clock.now()
        valid = hmac.compare_digest(key.secret_hash, _hash(secret))
        if not valid or key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
            raise NotAuthenticated
        if now_s - seen.touched_at >= TOUCH_EVERY_S:
            seen.touched_at = now_s
            await self._store.access.touch_key(key_id, now=now)
        return Principal(key.key_id, key.name, key.namespace, frozenset(key.scopes))

    async def find(self, *, namespace: str | None = None) -> list[ApiKey]:
        """Every key, revoked ones too; of one namespace or, without one, of all."""
        return [key for key in await self._store.access.find_keys() if namespace in (None, key.namespace)]

    async def revoke(self, key_id: str, *, namespace: str | None = None) -> bool:
        """True: revoked now. With `namespace`, keys of others do not exist."""
        key = await self._store.access.get_key(key_id)
        if key is None or namespace not in (None, key.namespace):
            return False
        self._seen.pop(key_id, None)
        return await self._store.access.revoke_key(key_id, now=self._clock.now())


def _hash(secret: str) -> bytes:
    # A fast hash is right here: the secret has 256 random bits, so there is nothing to guess.
    return hashlib.sha256(secret.encode()).digest()


def _checksum(body: str) -> str:
    return f"{binascii.crc32(body.encode()):08x}"


def _split(text: str) -> tuple[str, str]:
    body, _, checksum = text.removeprefix(PREFIX).rpartition("_")
    key_id, _, secret = body.partition("_")
    if not text.isascii() or not text.startswith(PREFIX) or not secret or checksum != _checksum(body):
        raise NotAuthenticated
    return key_id, secret
