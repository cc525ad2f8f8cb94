"""The engine's SQL, one file per noun.

Statements name their parameters (`:job_id`) as SQLite's do; here they become `$1`, `$2` … in the order in which the
names first appear. A cast is written `::bigint`, so a parameter never begins after a colon.
"""

from __future__ import annotations

import re

from onbeat.store.named_queries import load_named_queries

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")


def load_queries(noun: str) -> dict[str, str]:
    """The statements of `queries/{noun}.sql` by name, with numbered parameters."""
    return {name: number_parameters(text) for name, text in load_named_queries(__name__, noun).items()}


def number_parameters(statement: str) -> str:
    """The statement with `$n` in place of names."""
    numbers: dict[str, int] = {}
    return _PARAMETER.sub(lambda match: f"${numbers.setdefault(match[1], len(numbers) + 1)}", statement)
