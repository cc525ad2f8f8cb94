"""How a scenario is run alone: `python -m bench.<name>` with its options, a table, and JSON where asked.

A scenario is a module with a function that takes its options and answers a Result. The runner of a whole plan starts
the same command lines, so that there is one way to run a scenario and each has a process of its own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench.figures import Figure, Result
from bench.machine import describe_machine


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The options that every scenario has; `doc` is its module's."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where data is kept; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    return parser


def run_alone(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Result]) -> None:
    """Read the options, measure, print."""
    options = parser.parse_args()
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(options.directory.absolute())
    result = measure(options)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    console = Console()
    console.print(describe_machine())
    console.print(table_of(result, load=os.getloadavg()[0]))
    for note in result.notes:
        console.print(f"- {note}", highlight=False)


def table_of(result: Result, *, load: float) -> Table:
    """One line per figure."""
    table = Table(title=f"{result.setting}; load average {load:.1f}", title_justify="left")
    for column in ("figure", "measured", "unit", "asked for", "limit in the same run"):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for figure in result.figures:
        name = f"{figure.of}: {figure.name}" if figure.of else figure.name
        table.add_row(name, number(figure.value), figure.unit, _target(figure), _limit(figure))
    return table


def number(value: float) -> str:
    """As people read it: about three digits, whole from 100 on."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _target(figure: Figure) -> str:
    if figure.target is None:
        return ""
    met = "" if figure.target.is_met_by(figure.value) else ", not reached"
    return f"{figure.target.sign} {number(figure.target.value)}{met}"


def _limit(figure: Figure) -> str:
    return "" if figure.limit is None else f"{number(figure.limit.value)} ({figure.limit.of})"
