"""The secrets that sign deliveries: named, versioned, encrypted at rest, shown once.

While a secret is being rotated, its former version goes on signing beside the new one, so that receivers change over
in their own time. The secret `default` comes into being with its first use, so that a first job needs no preparation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from onbeat.clock import Clock
from onbeat.delivery.signing import new_secret
from onbeat.domain.model import SECOND_US
from onbeat.services.secret_box import SecretBox
from onbeat.store.contract import Store
from onbeat.store.values import SecretVersion

DEFAULT_NAMESPACE = "default"
DEFAULT_SECRET = "default"  # noqa: S105  a name

ROTATION_GRACE_S = 86_400
"""How long the former secret goes on signing. Source: reliability S12."""

LIVE_VERSIONS = 2
"""At most the current secret and the one before it sign; a second rotation within the grace drops the oldest."""

RELOAD_AFTER_S = 5.0
"""A rotation by another process is seen after at most this long. Source: reliability S16, revoke <= 5 s."""


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """What may be told of a secret: everything but its value."""

    name: str
    version: int
    created_at: int
    retires_at: int | None


@dataclass(slots=True)
class _Loaded:
    versions: list[tuple[str, int | None]]
    at: float


class SigningSecrets:
    """Creates, rotates and hands out signing secrets."""

    def __init__(self, *, store: Store, clock: Clock, box: SecretBox) -> None:
        self._store = store
        self._clock = clock
        self._box = box
        self._loaded: dict[tuple[str, str], _Loaded] = {}
        self._creating = asyncio.Lock()

    async def signing(self, namespace: str, name: str) -> tuple[str, ...]:
        """The secrets that sign now, newest first. Empty: there is no secret of that name."""
        loaded = self._loaded.get((namespace, name))
        if loaded is None or self._clock.boottime() - loaded.at > RELOAD_AFTER_S:
            loaded = await self._load(namespace, name)
            if not loaded.versions and name == DEFAULT_SECRET:
                await self.ensure_default(namespace)
                loaded = await self._load(namespace, name)
        now = self._clock.now()
        live = [text for text, retires_at in loaded.versions if retires_at is None or retires_at > now]
        return tuple(live[:LIVE_VERSIONS])

    async def check_master_key(self) -> None:
        """Raises ConfigError where this process's master key does not open what the database holds.

        The first secret is what tells: where there is none yet it is created, and of many nodes that start at once
        exactly one does so.
        """
        await self.signing(DEFAULT_NAMESPACE, DEFAULT_SECRET)

    async def exists(self, namespace: str, name: str) -> bool:
        """True where a job may name this secret."""
        return name == DEFAULT_SECRET or bool(await self._store.access.find_secrets(namespace, name))

    async def ensure_default(self, namespace: str) -> None:
        """Create the secret `default` unless it is there."""
        async with self._creating:
            if not await self._store.access.find_secrets(namespace, DEFAULT_SECRET):
                await self._add(namespace, DEFAULT_SECRET, version=1, retire_others_at=None)

    async def rotate(self, namespace: str, name: str, *, grace_s: int = ROTATION_GRACE_S) -> str:
        """A new version, created or rotated; the former one signs for `grace_s` more. Answer: the secret, only now."""
        # A version under another master key would be one that no node can sign with: see `check_master_key`.
        await self._load(DEFAULT_NAMESPACE, DEFAULT_SECRET)
        async with self._creating:
            while True:
                await self._load(namespace, name)
                versions = await self._store.access.find_secrets(namespace, name)
                number = max((secret.version for secret in versions), default=0) + 1
                retire_at = self._clock.now() + grace_s * SECOND_US
                text = await self._add(namespace, name, version=number, retire_others_at=retire_at)
                if text is not None:
                    return text

    async def reveal(self, namespace: str, name: str) -> str | None:
        """The current value, for whoever has the data file and its master key; never over the API."""
        secrets = await self.signing(namespace, name)
        return secrets[0] if secrets else None

    async def find(self, namespace: str) -> list[SecretInfo]:
        """Every version of every name, without values."""
        return [
            SecretInfo(secret.name, secret.version, secret.created_at, secret.retires_at)
            for secret in await self._store.access.find_secrets(namespace)
        ]

    async def _add(self, namespace: str, name: str, *, version: int, retire_others_at: int | None) -> str | None:
        """The new secret. None: another node added that version first."""
        text = new_secret()
        secret = SecretVersion(
            namespace=namespace,
            name=name,
            version=version,
            ciphertext=self._box.encrypt(text, context=_context(namespace, name, version)),
            created_at=self._clock.now(),
        )
        is_added = await self._store.access.add_secret(secret, retire_others_at=retire_others_at)
        self._loaded.pop((namespace, name), None)
        return text if is_added else None

    async def _load(self, namespace: str, name: str) -> _Loaded:
        versions = [
            (self._box.decrypt(secret.ciphertext, context=_context(namespace, name, secret.version)), secret.retires_at)
            for secret in await self._store.access.find_secrets(namespace, name)
        ]
        loaded = _Loaded(versions, self._clock.boottime())
        self._loaded[namespace, name] = loaded
        return loaded


def check_secrets(box: SecretBox, secrets: Iterable[SecretVersion]) -> None:
    """Open each of them and say nothing. Raises ConfigError where the box's key is not theirs."""
    for secret in secrets:
        box.decrypt(secret.ciphertext, context=_context(secret.namespace, secret.name, secret.version))


def _context(namespace: str, name: str, version: int) -> str:
    return f"secret|{namespace}|{name}|{version}"
