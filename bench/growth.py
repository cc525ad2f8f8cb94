"""Growth: what a fire costs beside 10,000 jobs, and beside a thousand times as many.

    python -m bench.growth [--jobs 10000,100000,1000000] [--engine sqlite|postgres] [--rate 1000] [--seconds 20]

The same rate is due whatever their number: of ten times as many jobs each fires ten times more seldom, and those of one
second lie far apart in the tables. What counts is CPU, of the node and of PostgreSQL, for each fire. The jobs are
written by the database itself (bench/many_jobs.py); nobody analyses or vacuums the tables before.
"""

from __future__ import annotations

import argparse

from bench.databases import ENGINES
from bench.figures import Figure, Result, at_most, percentile
from bench.rig import Load, run_load
from bench.scenario import parser_of, run_alone

ASKED = at_most(1.3)
"""Design §8."""


def measure(options: argparse.Namespace) -> Result:
    """One number of jobs after the other, each in fresh processes over fresh data."""
    figures: list[Figure] = []
    costs: list[float] = []
    for jobs in map(int, options.jobs.split(",")):
        seen = run_load(Load(rate=options.rate, seconds=options.seconds, engine=options.engine, jobs=jobs))
        costs.append(seen.cost_of_a_fire())
        figures += [
            Figure(f"CPU beside {jobs:,} jobs", costs[-1], "µs/fire"),
            Figure(f"delivered beside {jobs:,} jobs", seen.per_second().value, "fires/s"),
            Figure(f"lag p99 beside {jobs:,} jobs", percentile(sorted(seen.lags_ms), 0.99), "ms"),
        ]
    figures.append(Figure("cost of the most to the fewest jobs", costs[-1] / costs[0], "times", ASKED))
    return Result(f"{options.engine}, one node, {options.rate:,} due a second for {options.seconds} s", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", default="10000,100000,1000000", help="multiples of the rate, ascending")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=20)
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
