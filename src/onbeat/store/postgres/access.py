"""API keys, signing secrets and saved answers, on PostgreSQL. Implements the contract's Access."""

from __future__ import annotations

from onbeat.store.contract import RESERVED_FOR_US
from onbeat.store.postgres.database import Connection, Database, LostRaceError
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import Row, decode_strings, encode_strings
from onbeat.store.values import ApiKey, SavedAnswer, SecretVersion

_QUERIES = load_queries("access")


class PostgresAccess:
    """Who may do what with one database."""

    def __init__(self, *, database: Database, slots: int) -> None:
        self._database = database
        self._slots = slots

    async def add_key(self, key: ApiKey) -> None:
        await self._database.run(
            _QUERIES["insert_key"], key.key_id, key.namespace, key.name, key.secret_hash, encode_strings(key.scopes),
            key.created_at, key.expires_at, key.revoked_at, key.last_used_at,
        )  # fmt: skip

    async def get_key(self, key_id: str) -> ApiKey | None:
        async def read(connection: Connection) -> ApiKey | None:
            row = await connection.fetchrow(_QUERIES["get_key"], key_id)
            return None if row is None else _api_key(tuple(row))

        return await self._database.prompt.read(read)

    async def find_keys(self) -> list[ApiKey]:
        async def read(connection: Connection) -> list[ApiKey]:
            return [_api_key(tuple(row)) for row in await connection.fetch(_QUERIES["find_keys"])]

        return await self._database.read(read)

    async def revoke_key(self, key_id: str, *, now: int) -> bool:
        return await self._database.run(_QUERIES["revoke_key"], now, key_id) > 0

    async def touch_key(self, key_id: str, *, now: int) -> None:
        await self._database.prompt.run(_QUERIES["touch_key"], now, key_id)

    async def add_secret(self, secret: SecretVersion, *, retire_others_at: int | None) -> bool:
        async def write(connection: Connection) -> bool:
            added = await connection.execute(
                _QUERIES["insert_secret"], secret.namespace, secret.name, secret.version, secret.ciphertext,
                secret.created_at, secret.retires_at,
            )  # fmt: skip
            if added != "INSERT 0 1":
                return False
            if retire_others_at is not None:
                await connection.execute(
                    _QUERIES["retire_secrets"], retire_others_at, secret.namespace, secret.name, secret.version
                )
            return True

        return await self._database.write(write)

    async def find_secrets(self, namespace: str, name: str | None = None) -> list[SecretVersion]:
        async def read(connection: Connection) -> list[SecretVersion]:
            return [SecretVersion(*row) for row in await connection.fetch(_QUERIES["find_secrets"], namespace, name)]

        return await self._database.prompt.read(read)

    async def reserve_answer(self, scope: str, key: str, fingerprint: bytes, *, now: int) -> SavedAnswer | None:
        async def write(connection: Connection) -> SavedAnswer | None:
            reserved = await connection.execute(
                _QUERIES["reserve_answer"], scope, key, fingerprint, now, now - RESERVED_FOR_US
            )
            if reserved == "INSERT 0 1":
                return None
            row = await connection.fetchrow(_QUERIES["get_answer"], scope, key)
            if row is None:
                raise LostRaceError("the answer was dropped meanwhile")
            return SavedAnswer(*row)

        return await self._database.write(write)

    async def save_answer(self, scope: str, key: str, answer: SavedAnswer) -> None:
        await self._database.run(
            _QUERIES["save_answer"], answer.fingerprint, answer.status, answer.headers, answer.body, scope, key
        )

    async def drop_answer(self, scope: str, key: str) -> None:
        await self._database.run(_QUERIES["drop_answer"], scope, key)

    async def prune_answers(self, *, before: int, limit: int) -> int:
        return await self._database.run(_QUERIES["prune_answers"], before, limit)


def _api_key(row: Row) -> ApiKey:
    return ApiKey(row[0], row[1], row[2], row[3], decode_strings(row[4]), row[5], row[6], row[7], row[8])
