"""What moves from one database into one of the other engine: every table that is not made out of others, its columns,
and in which form rows travel.

A row travels as SQLite holds it (flags are 0 and 1, "no queue" is None), without its slot, which the target makes of
the job's id and its own number of slots. Both sides read in that form, so a sum over the rows of each tells whether
they are the same, in whatever order they lie.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol

import msgspec

from onbeat.store.rows import Row, storable_text

BATCH_ROWS: Final = 20_000
"""In one transaction: what a killed copy has to write again, and about 20 MB of memory."""

CHECKSUM_BYTES: Final = 16
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class MovedTable:
    """One table. `columns` are in the order in which rows travel."""

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    has_slot: bool = True
    flags: tuple[str, ...] = ()
    """0 or 1 in SQLite, boolean in PostgreSQL."""
    blanks: tuple[str, ...] = ()
    """NULL in SQLite, '' in PostgreSQL."""
    free_texts: tuple[str, ...] = ()
    """What workers, receivers and people wrote: SQLite takes a NUL in it, PostgreSQL does not."""

    def positions(self, columns: Iterable[str]) -> tuple[int, ...]:
        """Where these columns stand in a row."""
        return tuple(self.columns.index(column) for column in columns)


@dataclass(frozen=True, slots=True)
class Installation:
    """What a database says of itself as a whole. A copy is the same installation."""

    installation_id: str
    slots: int
    created_at: int
    almanac_revision: int


class Source(Protocol):
    """A database that is read while nobody works on it."""

    @property
    def installation(self) -> Installation: ...

    async def count(self, table: MovedTable) -> int:
        """How many rows it has."""
        ...

    def read(self, table: MovedTable, *, skip: int = 0) -> AsyncIterator[list[Row]]:
        """All rows but the first `skip`, in batches, in an order that stays the same while the table does."""
        ...

    async def check_at_rest(self) -> None:
        """Raises ConfigError where a node works on it."""
        ...


class Target(Source, Protocol):
    """A database that is being filled. What was appended stays, also when the process is killed; nobody serves it
    before `finish`.
    """

    async def append(self, table: MovedTable, rows: list[Row]) -> None:
        """Write the rows that follow those that are there, all or none of them, with what is made out of them."""
        ...

    async def finish(self) -> None:
        """From here on nodes may serve it."""
        ...


_NAMED: Final = ("namespace", "name")
_RUN: Final = ("job_id", "scheduled_at")

SECRETS: Final = MovedTable(
    "secrets",
    key=("namespace", "name", "version"),
    columns=("namespace", "name", "version", "ciphertext", "created_at", "retires_at"),
    has_slot=False,
)

MOVED_TABLES: Final = (
    MovedTable(
        "jobs",
        key=("job_id",),
        columns=(
            "job_id", "namespace", "key", "name", "tags", "version", "state", "reason", "definition", "max_running",
            "created_at", "updated_at", "paused_at", "paused_until", "paused_by",
        ),
        free_texts=("reason",),
    ),
    MovedTable("job_versions", key=("job_id", "version"), columns=("job_id", "version", "definition")),
    MovedTable("clocks", key=("job_id",), columns=("job_id", "next_fire_at")),
    MovedTable("after_finish", key=("job_id",), columns=("job_id", "every_us", "until")),
    MovedTable("failing_jobs", key=("job_id",), columns=("job_id", "failures", "failing_since")),
    MovedTable(
        "live_runs",
        key=_RUN,
        columns=(
            "job_id", "scheduled_at", "state", "trigger", "job_version", "attempt", "lane", "held", "cancel_requested",
            "queue", "payload", "ready_at", "late_after", "max_run_us", "created_at", "first_started_at",
            "attempt_started_at", "granted_at", "deadline_at", "lease_token", "lease_until", "worker", "last_token",
            "outcome", "status", "error", "duration_us", "moved_us", "priority", "free_attempts", "revived_at",
            "accepted_at", "progress_percent", "progress_message", "progress_at",
        ),
        flags=("held", "cancel_requested"),
        blanks=("queue",),
        free_texts=("worker", "error", "progress_message"),
    ),
    MovedTable(
        "ended_runs",
        key=_RUN,
        columns=(
            "job_id", "scheduled_at", "state", "late", "trigger", "job_version", "attempt", "created_at", "started_at",
            "attempt_started_at", "finished_at", "duration_us", "max_run_us", "status", "outcome", "worker",
            "last_token", "queue", "payload", "error", "response", "reason", "count", "until", "blocked_by", "moved_us",
        ),
        flags=("late",),
        blanks=("queue",),
        free_texts=("worker", "error"),
    ),
    MovedTable(
        "attempts",
        key=(*_RUN, "attempt"),
        columns=(
            "job_id", "scheduled_at", "attempt", "kind", "started_at", "duration_us", "worker", "status", "error",
            "token", "response",
        ),
        free_texts=("worker", "error"),
    ),
    MovedTable(
        "backfills",
        key=("job_id", "number"),
        columns=(
            "job_id", "number", "from_at", "to_at", "sequence", "rate_per_s", "most", "instants", "looked_at",
            "created", "left_from", "left_to", "state", "reason", "next_at", "created_at", "ended_at",
        ),
        free_texts=("reason",),
    ),
    MovedTable(
        "calendars",
        key=_NAMED,
        columns=(*_NAMED, "version", "rules", "replan_after", "created_at", "updated_at"),
        has_slot=False,
    ),
    MovedTable("calendar_uses", key=(*_NAMED, "job_id"), columns=(*_NAMED, "job_id"), has_slot=False),
    MovedTable(
        "blackouts", key=_NAMED, columns=(*_NAMED, "version", "rules", "created_at", "updated_at"), has_slot=False
    ),
    MovedTable(
        "pauses",
        key=("namespace", "tag"),
        columns=("namespace", "tag", "note", "paused_at", "until", "cancels", "is_spread", "ended_at"),
        has_slot=False,
        flags=("cancels", "is_spread"),
        free_texts=("note",),
    ),
    MovedTable(
        "api_keys",
        key=("key_id",),
        columns=(
            "key_id", "namespace", "name", "secret_hash", "scopes", "created_at", "expires_at", "revoked_at",
            "last_used_at",
        ),
        has_slot=False,
    ),
    SECRETS,
    MovedTable(
        "saved_answers",
        key=("scope", "key"),
        columns=("scope", "key", "fingerprint", "status", "headers", "body", "created_at"),
        has_slot=False,
    ),
)  # fmt: skip


class RowSum:
    """How many rows were added, and a sum of their hashes: the same for the same rows in any order."""

    __slots__ = ("_sum", "rows")

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, rows: list[Row]) -> None:
        self.rows += len(rows)
        self._sum += sum(
            int.from_bytes(blake2b(_encode(row), digest_size=CHECKSUM_BYTES).digest(), "big") for row in rows
        )

    @property
    def checksum(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._sum % 2 ** (8 * CHECKSUM_BYTES):0{2 * CHECKSUM_BYTES}x}"


def without_nul(rows: list[Row], *, at: tuple[int, ...]) -> list[Row]:
    """The rows as every engine can hold them; `at`: where texts stand that may hold a NUL."""
    return [_storable(row, at) if any("\0" in (row[place] or "") for place in at) else row for row in rows]


def _storable(row: Row, at: tuple[int, ...]) -> Row:
    return tuple(storable_text(value) if place in at else value for place, value in enumerate(row))
