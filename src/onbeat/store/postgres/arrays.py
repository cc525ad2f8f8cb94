"""Many rows as the parameters of one statement, which takes them apart again with `unnest`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def columns(rows: Iterable[tuple[Any, ...]], *, count: int) -> list[list[Any]]:
    """The `count` columns of rows that begin with a primary key, in its order: the order in which rows are locked."""
    ordered = sorted(rows, key=lambda row: row[:3])
    return [list(column) for column in zip(*ordered, strict=True)] if ordered else [[] for _ in range(count)]
