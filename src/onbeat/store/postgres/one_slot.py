"""One slot at a time: how the engine works where its tables are spread over servers by slot (`meta.is_distributed`).

A statement finds its server by the slot that it names, and a transaction is cheap while all of it lies on one. So:

- a batch is divided by slot, and each part has a transaction of its own (`in_each_slot`);
- the transaction's connection sends every statement in its form for one slot (`queries.load_one_slot_statements`), and
  refuses one that is about another slot;
- what is due, ready or lost somewhere is looked for slot by slot (`looks.py`).

Transactions that nobody gave a slot, as those that people ask for, send the forms for one slot where theirs is one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from onbeat.store.postgres.connections import Connection
from onbeat.store.postgres.looks import Looks
from onbeat.store.postgres.queries import OneSlotStatement

MAKES_DUE: Final = frozenset({"put_clock", "put_clocks", "start_clocks", "move_clocks", "insert_jobs"})
"""Statements that may set a clock earlier than it was."""

MAKES_READY: Final = frozenset(
    {"insert_runs", "give_lanes", "make_pending", "release_leases", "revive_run", "hold_runs"}
)
"""Statements after which a run may be claimable that was not."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class WrongSlotError(Exception):
    """A transaction of one slot was to touch another: a fault of ours. Nothing was sent."""


class OneSlotMode:
    """What is known of a database that wants one slot at a time."""

    def __init__(self, statements: Mapping[str, OneSlotStatement], *, looks: Looks) -> None:
        self._statements = statements
        self.looks = looks

    def connection(self, connection: Connection, *, slot: int | None) -> OneSlotConnection:
        """For one transaction, of that slot or of any."""
        return OneSlotConnection(connection, self._statements, slot=slot)

    def note_written(self, connections: Iterable[OneSlotConnection]) -> None:
        """What was written by transactions that are over, or may have been."""
        for connection in connections:
            if connection.due_in:
                self.looks.clocks.forget(connection.due_in)
            if connection.ready_in:
                self.looks.forget_ready(connection.ready_in)


class OneSlotConnection:
    """A connection for the length of a transaction."""

    def __init__(self, connection: Connection, statements: Mapping[str, OneSlotStatement], *, slot: int | None) -> None:
        self._connection = connection
        self._statements = statements
        self._slot = slot
        self.due_in: set[int] = set()
        """Slots in which clocks were set."""
        self.ready_in: set[int] = set()
        """Slots in which runs may have become claimable."""

    def as_connection(self) -> Connection:
        """What the engine's modules call."""
        return cast(Connection, self)

    async def fetch(self, statement: str, *bindings: object, timeout: float | None = None) -> list[Any]:
        statement, bindings = self._narrow(statement, bindings)
        return await self._connection.fetch(statement, *bindings, timeout=timeout)

    async def fetchrow(self, statement: str, *bindings: object, timeout: float | None = None) -> Any:
        statement, bindings = self._narrow(statement, bindings)
        return await self._connection.fetchrow(statement, *bindings, timeout=timeout)

    async def fetchval(self, statement: str, *bindings: object, timeout: float | None = None) -> Any:
        statement, bindings = self._narrow(statement, bindings)
        return await self._connection.fetchval(statement, *bindings, timeout=timeout)

    async def execute(self, statement: str, *bindings: object, timeout: float | None = None) -> str:
        statement, bindings = self._narrow(statement, bindings)
        return await self._connection.execute(statement, *bindings, timeout=timeout)

    def is_closed(self) -> bool:
        return self._connection.is_closed()

    def terminate(self) -> None:
        self._connection.terminate()

    def _narrow(self, statement: str, bindings: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        """The statement in its form for one slot, with what it is given; as it is where it has none."""
        narrow = self._statements.get(statement)
        if narrow is None:
            return statement, bindings
        if narrow.is_added:
            if self._slot is None:
                return statement, bindings
            return narrow.text, (*bindings, self._slot)
        place = narrow.place
        named = bindings[place]
        slots = ({*named} if named is not None else set()) if narrow.is_many else {named}
        if self._slot is not None and not slots <= {self._slot}:
            raise WrongSlotError(f"a statement about the slots {sorted(slots)} in a transaction of slot {self._slot}")
        if narrow.name in MAKES_DUE:
            self.due_in |= slots
        if narrow.name in MAKES_READY:
            self.ready_in |= slots
        if not narrow.is_many:
            return statement, bindings
        slot = self._slot if self._slot is not None else next(iter(slots)) if len(slots) == 1 else None
        if slot is None:
            return statement, bindings
        return narrow.text, (*bindings[:place], slot, *bindings[place + 1 :])


async def in_each_slot(
    items: Sequence[Item],
    *,
    slot_of: Callable[[Item], int],
    work: Callable[[Sequence[Item], int | None], Awaitable[Sequence[Answer]]],
) -> list[Answer]:
    """Do the items of each slot together, one slot after the other. Answer: theirs, in the items' order.

    Where one slot fails, what was done in those before stays done: asking again is safe, as the contract demands.
    """
    numbers: dict[int, list[int]] = {}
    for number, item in enumerate(items):
        numbers.setdefault(slot_of(item), []).append(number)
    answers: dict[int, Answer] = {}
    for slot in sorted(numbers):
        found = await work([items[number] for number in numbers[slot]], slot)
        answers.update(zip(numbers[slot], found, strict=True))
    return [answers[number] for number in range(len(items))]
