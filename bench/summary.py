"""Several runs of one scenario as one table: least, median and most of each figure, and of its limit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.figures import Result, Target


@dataclass(frozen=True, slots=True)
class Spread:
    """What several runs found."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """At least one value."""
        return cls(min(values), statistics.median(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One figure over all runs that have it."""

    of: str
    """Whose figure, where the same are told of several."""
    name: str
    unit: str
    measured: Spread
    target: Target | None
    is_met: bool | None
    """By the median. None: nothing was asked for."""
    limit_of: str | None
    limit: Spread | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of a plan."""

    command: str
    setting: str
    runs: int
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """The last lines of runs that failed."""


def summarise(command: str, results: Sequence[Result], failures: Sequence[str]) -> Summary:
    """Figures in the order in which they first appear."""
    names = list(dict.fromkeys((figure.of, figure.name) for result in results for figure in result.figures))
    return Summary(
        command=command,
        setting=results[0].setting if results else "",
        runs=len(results),
        rows=[_row(of, name, results) for of, name in names],
        notes=list(dict.fromkeys(note for result in results for note in result.notes)),
        failures=list(failures),
    )


def _row(of: str, name: str, results: Sequence[Result]) -> Row:
    figures = [figure for result in results for figure in result.figures if (figure.of, figure.name) == (of, name)]
    limits = [figure.limit for figure in figures if figure.limit is not None]
    measured = Spread.of([figure.value for figure in figures])
    first = figures[0]
    return Row(
        of=of,
        name=name,
        unit=first.unit,
        measured=measured,
        target=first.target,
        is_met=None if first.target is None else first.target.is_met_by(measured.median),
        limit_of=limits[0].of if limits else None,
        limit=Spread.of([limit.value for limit in limits]) if limits else None,
    )
