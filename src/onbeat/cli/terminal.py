"""What reaches the terminal: JSON, tables and lists of fields. Text from outside never carries control sequences."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Columns where nobody looks: wide enough that no id is ever cut in a pipe."""

# Whole sequences first (CSI, OSC and other strings), then whatever control character is left: C0, DEL, C1, and the
# marks that turn the direction of text around. Source: reliability S24.
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def clean(text: object) -> str:
    """`text` as one line without control characters."""
    return _CONTROL.sub("", str(text).replace("\n", " ").replace("\t", " "))


def print_json(value: object, *, indent: int | None = 2) -> None:
    """One JSON value on standard output. ASCII only, so that no control character passes."""
    print(json.dumps(value, indent=indent), flush=True)


def console(*, to_error: bool = False) -> Console:
    """Where tables go: as wide as the terminal, or wide where there is none."""
    from rich.console import Console

    stream = sys.stderr if to_error else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else PIPE_WIDTH, markup=False, highlight=False, emoji=False
    )


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table of cleaned cells; `empty` is the sentence for no rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column.lower() in ("id", "state"))
    for row in rows:
        table.add_row(*(Text(clean(cell), style=STYLES.get(str(cell), "")) for cell in row))
    console().print(table if table.row_count else empty)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """`name  value` lines; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in fields:
        if value not in (None, "", [], {}):
            grid.add_row(name, Text(clean(value), style=STYLES.get(str(value), "")))
    console().print(grid)


STYLES = {
    "active": "green",
    "succeeded": "green",
    "ok": "green",
    "running": "cyan",
    "pending": "cyan",
    "paused": "yellow",
    "missed": "yellow",
    "skipped": "yellow",
    "warn": "yellow",
    "unknown": "magenta",
    "failed": "red",
    "timed_out": "red",
    "error": "red",
    "bad": "red",
}
"""Colours of states, the same everywhere."""
