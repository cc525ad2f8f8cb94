"""Watches what a store sends: no statement, and no transaction, of the hot path may be about two slots.

It hears what asyncpg sends, past the product: which parameters of a statement name slots it reads from the statement's
text alone.
"""

from __future__ import annotations

import contextvars
import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

from onbeat.store.postgres.connections import Pool

SPREAD = "jobs|clocks|live_runs|ended_runs|ended_ranges|attempts|job_versions|job_counts|after_finish|failing_jobs"
TABLE = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|USING) (?:{SPREAD})\b")
NAMES_SLOT = re.compile(r"\bslot = \$(\d+)\b|\(SELECT \$(\d+)::integer, one\.\*")
FIRST_VALUE = re.compile(rf"INTO (?:{SPREAD}) \(slot, .*?VALUES \(\$(\d+)", re.DOTALL)
SLOTS = re.compile(r"\$\d+::integer\[\]")

HOT = {
    "fires": ("record_due", "next_due_at", "insert_run"),
    "leases": (
        "next_ready_at", "claim", "extend", "permit", "finish", "complete", "report", "release", "expire", "cancel",
        "revive",
    ),
}  # fmt: skip
"""By noun of the contract, the calls that fires and runs go through."""

_call: contextvars.ContextVar[str | None] = contextvars.ContextVar("call", default=None)


class Watch:
    """What was sent on the hot path, by all connections of a store."""

    def __init__(self) -> None:
        self.statements = 0
        self.slots: set[int] = set()
        self.faults: list[str] = []
        self._transactions: dict[int, set[int]] = {}

    def hear(self, connection: int, record: Any) -> None:
        """One statement. Called in the context of the call of the store that sent it."""
        text: str = record.query
        if text.startswith(("BEGIN", "COMMIT", "ROLLBACK;")) or text == "ROLLBACK":
            self._transactions[connection] = set()
        call = _call.get()
        if call is None or not TABLE.search(text):
            return
        self.statements += 1
        named = slots_named(text, record.args)
        if SLOTS.search(text) or len(named) != 1:
            self.faults.append(f"{call} names the slots {sorted(named)}: {text}")
        in_transaction = self._transactions.setdefault(connection, set())
        in_transaction |= named
        self.slots |= named
        if len(in_transaction) > 1:
            self.faults.append(f"{call}: one transaction of the slots {sorted(in_transaction)}: {text}")


def slots_named(text: str, values: Any) -> set[int]:
    """The slots that a statement's text finds among its values."""
    places = {int(number) for match in NAMES_SLOT.finditer(text) for number in match.groups() if number}
    places |= {int(match[1]) for match in FIRST_VALUE.finditer(text)}
    return {values[place - 1] for place in places}


@contextmanager
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Watch every connection that is made until the block ends."""
    watch = Watch()
    begin = Pool._begin_connection

    async def begin_and_listen(self: Pool, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        await begin(self, connection)
        number = id(connection)
        connection.add_query_logger(lambda record: watch.hear(number, record))

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "_begin_connection", begin_and_listen)
        yield watch


def name_calls(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the watch know which call of the store sends what."""
    for noun, names in HOT.items():
        served = getattr(store, noun)
        for name in names:
            monkeypatch.setattr(served, name, _named(getattr(served, name), f"{noun}.{name}"))


def _named(call: Any, name: str) -> Any:
    @functools.wraps(call)
    async def named(*arguments: Any, **options: Any) -> Any:
        token = _call.set(name)
        try:
            return await call(*arguments, **options)
        finally:
            _call.reset(token)

    return named
