"""API keys, signing secrets and saved answers, on SQLite. Implements the contract's Access."""

from __future__ import annotations

import apsw

from onbeat.store.contract import RESERVED_FOR_US
from onbeat.store.rows import Row, decode_strings, encode_strings
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.readers import Readers
from onbeat.store.sqlite.writer import Writer
from onbeat.store.values import ApiKey, SavedAnswer, SecretVersion

_QUERIES = load_queries("access")


class SqliteAccess:
    """Who may do what with one data file."""

    def __init__(self, *, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def add_key(self, key: ApiKey) -> None:
        bindings = (
            key.key_id, key.namespace, key.name, key.secret_hash, encode_strings(key.scopes), key.created_at,
            key.expires_at, key.revoked_at, key.last_used_at,
        )  # fmt: skip
        await self._write("insert_key", bindings)

    async def get_key(self, key_id: str) -> ApiKey | None:
        def read(connection: apsw.Connection) -> ApiKey | None:
            row = connection.execute(_QUERIES["get_key"], (key_id,)).fetchone()
            return None if row is None else _api_key(row)

        return await self._readers.read(read)

    async def find_keys(self) -> list[ApiKey]:
        return await self._readers.read(
            lambda connection: [_api_key(row) for row in connection.execute(_QUERIES["find_keys"])]
        )

    async def revoke_key(self, key_id: str, *, now: int) -> bool:
        return await self._write("revoke_key", (now, key_id)) > 0

    async def touch_key(self, key_id: str, *, now: int) -> None:
        await self._write("touch_key", (now, key_id))

    async def add_secret(self, secret: SecretVersion, *, retire_others_at: int | None) -> bool:
        bindings = (
            secret.namespace, secret.name, secret.version, secret.ciphertext, secret.created_at, secret.retires_at,
        )  # fmt: skip

        def write(connection: apsw.Connection) -> bool:
            connection.execute(_QUERIES["insert_secret"], bindings)
            if not connection.changes():
                return False
            if retire_others_at is not None:
                others = (retire_others_at, secret.namespace, secret.name, secret.version)
                connection.execute(_QUERIES["retire_secrets"], others)
            return True

        return await self._writer.submit(write)

    async def find_secrets(self, namespace: str, name: str | None = None) -> list[SecretVersion]:
        def read(connection: apsw.Connection) -> list[SecretVersion]:
            return [SecretVersion(*row) for row in connection.execute(_QUERIES["find_secrets"], (namespace, name))]

        return await self._readers.read(read)

    async def reserve_answer(self, scope: str, key: str, fingerprint: bytes, *, now: int) -> SavedAnswer | None:
        def write(connection: apsw.Connection) -> SavedAnswer | None:
            connection.execute(_QUERIES["reserve_answer"], (scope, key, fingerprint, now, now - RESERVED_FOR_US))
            if connection.changes():
                return None
            row: Row = connection.execute(_QUERIES["get_answer"], (scope, key)).fetchall()[0]
            return SavedAnswer(*row)

        return await self._writer.submit(write)

    async def save_answer(self, scope: str, key: str, answer: SavedAnswer) -> None:
        await self._write("save_answer", (answer.fingerprint, answer.status, answer.headers, answer.body, scope, key))

    async def drop_answer(self, scope: str, key: str) -> None:
        await self._write("drop_answer", (scope, key))

    async def prune_answers(self, *, before: int, limit: int) -> int:
        return await self._write("prune_answers", (before, limit))

    async def _write(self, query: str, bindings: Row) -> int:
        """Run one statement; answer: how many rows it changed."""

        def write(connection: apsw.Connection) -> int:
            connection.execute(_QUERIES[query], bindings)
            return connection.changes()

        return await self._writer.submit(write)


def _api_key(row: Row) -> ApiKey:
    return ApiKey(row[0], row[1], row[2], row[3], decode_strings(row[4]), row[5], row[6], row[7], row[8])
