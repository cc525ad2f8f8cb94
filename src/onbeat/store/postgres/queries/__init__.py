"""The engine's SQL, one file per noun.

Statements name their parameters (`:job_id`) as SQLite's do; here they become `$1`, `$2` … in the order in which the
names first appear. A cast is written `::bigint`, so a parameter never begins after a colon.

`l.slot = ANY (ARRAY[asked.slot])` says nothing else than `l.slot = asked.slot`, but the planner cannot sort or merge by
it. So where it believes that live_runs is empty, since the table was vacuumed between two bursts, it has no use for the
order of an index, and does not read all of live_runs for each row that is asked for: it looks up each in the index.
Statements that join live_runs with many rows are written so.

Where the tables are spread over servers by slot, a statement must name the one slot whose rows it is about. So each has
a second form, made from the same text: its array of slots becomes one slot, and what stands behind `-- one slot:` is a
part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from onbeat.store.named_queries import load_named_queries

_PARAMETER: Final = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_ONLY_IN_ONE_SLOT: Final = re.compile(r"^ +-- one slot: (.*)$", re.MULTILINE)
_LINE_OF_ONE_SLOT: Final = re.compile(r"^ +-- one slot: .*\n", re.MULTILINE)
_ROWS_WITH_SLOTS: Final = re.compile(r"unnest\(\s*:slots::integer\[\],([^()]*)\)")
_SLOT_OF_A_ROW: Final = re.compile(r"= ANY \(ARRAY\[(\w+\.slot)\]\)")
_ANY_OF_SLOTS: Final = "(:slots::integer[] IS NULL OR slot = ANY(:slots))"


@dataclass(frozen=True, slots=True)
class OneSlotStatement:
    """A statement whose rows are of one slot."""

    name: str
    text: str
    place: int
    """Of the slot among the parameters, from 0."""
    is_added: bool
    """The ordinary statement has no such parameter; it is the last one here."""
    is_many: bool
    """The ordinary statement has an array of slots there."""


def load_queries(noun: str) -> dict[str, str]:
    """The statements of `queries/{noun}.sql` by name, with numbered parameters."""
    return {name: _ordinary(text) for name, text in load_named_queries(__name__, noun).items()}


def load_one_slot_statements() -> dict[str, OneSlotStatement]:
    """By the ordinary statement, the form for one slot of each that has one."""
    found: dict[str, OneSlotStatement] = {}
    for path in files(__name__).iterdir():
        noun, _, ending = path.name.rpartition(".")
        if ending == "sql":
            for name, text in load_named_queries(__name__, noun).items():
                one_slot = _in_one_slot(name, text)
                if one_slot is not None:
                    found[_ordinary(text)] = one_slot
    return found


def number_parameters(statement: str) -> str:
    """The statement with `$n` in place of names."""
    return _numbered(statement, _numbers(statement))


def _ordinary(text: str) -> str:
    return number_parameters(_LINE_OF_ONE_SLOT.sub("", text))


def _in_one_slot(name: str, text: str) -> OneSlotStatement | None:
    """None: it names no slot, or finds it out by itself."""
    numbers = _numbers(_LINE_OF_ONE_SLOT.sub("", text))
    narrowed = _ONLY_IN_ONE_SLOT.sub(r"\1", text)
    narrowed = _ROWS_WITH_SLOTS.sub(r"(SELECT :slot::integer, one.* FROM unnest(\1) AS one)", narrowed)
    narrowed = _SLOT_OF_A_ROW.sub(r"= \1", narrowed)
    narrowed = narrowed.replace(_ANY_OF_SLOTS, "slot = :slot::integer")
    if "slot" not in _PARAMETER.findall(narrowed):
        return None
    is_many = narrowed != text and "slots" in numbers
    is_added = not is_many and "slot" not in numbers
    number = numbers["slots"] if is_many else numbers.setdefault("slot", len(numbers) + 1)
    return OneSlotStatement(name, _numbered(narrowed, numbers | {"slot": number}), number - 1, is_added, is_many)


def _numbers(statement: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for name in _PARAMETER.findall(statement):
        numbers.setdefault(name, len(numbers) + 1)
    return numbers


def _numbered(statement: str, numbers: dict[str, int]) -> str:
    return _PARAMETER.sub(lambda match: f"${numbers[match[1]]}", statement)
