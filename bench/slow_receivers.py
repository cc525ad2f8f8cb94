"""Slow receivers: does a host that answers late hold up the others?

    python -m bench.slow_receivers [--rate 1000] [--hosts 10] [--slow 1] [--answers-after 10] [--seconds 30]

The jobs call so many hosts in equal parts, and the first `--slow` of them answer late: they are asked for more than the
64 connections of one host can bear. Measured is the lag of the fires for the other hosts. The limit, in the same run:
the same load with no host that is slow.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from bench.databases import ENGINES
from bench.figures import Figure, Limit, Result, latencies, percentile
from bench.rig import Load, run_load
from bench.scenario import parser_of, run_alone

SHARES = (0.5, 0.99, 1.0)


def measure(options: argparse.Namespace) -> Result:
    """The same load twice, first with no slow host."""
    load = Load(
        rate=options.rate,
        seconds=options.seconds,
        engine=options.engine,
        attempts=options.attempts,
        addresses=options.hosts,
        slow_addresses=options.slow,
        slow_s=options.answers_after,
    )
    slow_hosts = {f"127.0.0.{number + 1}" for number in range(options.slow)}
    quick = run_load(replace(load, slow_s=0.0))
    seen = run_load(load)
    quick_ms = sorted(arrival.lag_ms for arrival in quick.arrivals if arrival.address not in slow_hosts)
    others = [arrival for arrival in seen.arrivals if arrival.address not in slow_hosts]
    planned_per_s = options.rate * (options.hosts - options.slow) / options.hosts
    figures = [
        *latencies(
            "lag of the other hosts",
            [arrival.lag_ms for arrival in others],
            shares=SHARES,
            limits={share: Limit("no slow host", percentile(quick_ms, share)) for share in SHARES},
        ),
        Figure(
            "delivered to the other hosts",
            len(others) / (seen.to_s - seen.from_s),
            "fires/s",
            limit=Limit("planned", planned_per_s),
        ),
        Figure("delivered to the slow", (len(seen.arrivals) - len(others)) / (seen.to_s - seen.from_s), "fires/s"),
        *seen.costs(),
    ]
    told = f"{options.slow} of {options.hosts} hosts answer after {options.answers_after:g} s"
    return Result(f"{seen.setting}; {told}", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--slow", type=int, default=1)
    parser.add_argument("--answers-after", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--attempts", type=int, default=1_000, help="at once")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
