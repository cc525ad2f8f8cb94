"""Prints the figures of one benchmark, side by side, with the machine and how busy it was; and writes them as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.machine import describe_machine


def show(setting: str, results: Mapping[str, Mapping[str, float]], *, json_path: Path | None) -> None:
    """One line for each of `results`, which all have the same figures."""
    title = f"{setting}, load average {os.getloadavg()[0]:.1f}"
    console = Console()
    console.print(describe_machine())
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for column in next(iter(results.values())):
        table.add_column(column, justify="right")
    for name, figures in results.items():
        table.add_row(name, *(f"{figure:,.1f}" for figure in figures.values()))
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps({"machine": describe_machine(), "setting": title, **results}, indent=2))
