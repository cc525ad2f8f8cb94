"""A report as Markdown: `python -m bench.markdown var/bench/<time>.json`, to be put into docs/benchmarks.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.scenario import number
from bench.summary import Row, Spread, Summary


@dataclass(frozen=True, slots=True)
class Report:
    """What a plan found, and where."""

    plan: str
    runs: int
    began_at: str
    ended_at: str
    machine: dict[str, str]
    versions: dict[str, str]
    load_before: tuple[float, float, float]
    """The machine's load averages of 1, 5 and 15 minutes."""
    load_after: tuple[float, float, float]
    summaries: list[Summary]


def table_lines(report: Report) -> list[str]:
    """The whole report."""
    return list(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"Plan `{report.plan}`, {report.runs} run(s), {report.began_at} to {report.ended_at}."
    yield f"Load average {_load(report.load_before)} before, {_load(report.load_after)} after."
    yield ""
    yield "| where and with what | |"
    yield "|---|---|"
    for name, value in (report.machine | report.versions).items():
        yield f"| {name} | {value} |"
    for summary in report.summaries:
        yield ""
        yield from _table(summary)


def _load(averages: tuple[float, float, float]) -> str:
    return ", ".join(f"{average:.1f}" for average in averages)


def _table(summary: Summary) -> Iterator[str]:
    yield f"`python -m bench.{summary.command}`"
    if summary.setting:
        yield f": {summary.setting}; {summary.runs} run(s)"
    yield ""
    yield from _wide_table([row for row in summary.rows if row.of])
    single = [row for row in summary.rows if not row.of]
    if single:
        yield "| figure | least | median | most | unit | asked for | limit in the same run |"
        yield "|---|---:|---:|---:|---|---|---|"
    for row in single:
        measured = " | ".join(number(value) for value in (row.measured.least, row.measured.median, row.measured.most))
        yield f"| {row.name} | {measured} | {row.unit} | {_asked(row)} | {_limit(row.limit_of, row.limit)} |"
    for note in summary.notes:
        yield f"- {note}"
    for failure in summary.failures:
        yield ""
        yield f"A run failed: `{failure.splitlines()[-1] if failure else 'it said nothing'}`"


def _wide_table(rows: list[Row]) -> Iterator[str]:
    """A line for each whose figures they are, by their medians."""
    names = list(dict.fromkeys(row.name for row in rows))
    if not names:
        return
    units = {row.name: row.unit for row in rows}
    yield "| medians | " + " | ".join(f"{name} ({units[name]})" for name in names) + " |"
    yield "|---|" + "---:|" * len(names)
    for of in dict.fromkeys(row.of for row in rows):
        medians = {row.name: number(row.measured.median) for row in rows if row.of == of}
        yield f"| {of} | " + " | ".join(medians.get(name, "") for name in names) + " |"
    yield ""


def _asked(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{row.target.sign} {number(row.target.value)}{'' if row.is_met else ', **not reached**'}"


def _limit(of: str | None, limit: Spread | None) -> str:
    return "" if limit is None else f"{number(limit.median)} ({of})"


def main() -> None:
    """Print it."""
    report = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Report)
    print("\n".join(table_lines(report)))


if __name__ == "__main__":
    main()
