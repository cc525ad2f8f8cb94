"""Long runs: many at once, because each takes its time. By Little's law 6,000/s that take 2 s are 12,000.

    python -m bench.long_runs [--rate 6000] [--answers-after 2] [--seconds 300] [--engine ...] [--nodes 1] [--workers 2]

The receiver (bench/sink.py) answers each request after so many seconds. The jobs call many hosts, since no more than 64
connections go to one. How many are at once is counted from the receiver's arrivals; 12,000 need at least two processes
that deliver, as one makes no more than 10,000 attempts at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.databases import ENGINES
from bench.figures import Figure, Result, latencies, percentile
from bench.rig import Load, run_load
from bench.scenario import parser_of, run_alone

ADDRESSES = 250


def count_at_once(started_at_s: Sequence[float], *, lasts_s: float, moments_s: Sequence[float]) -> list[int]:
    """How many of those that began at `started_at_s` (ascending) and last so long were there at each moment."""
    counts: list[int] = []
    begun = ended = 0
    for moment in moments_s:
        while begun < len(started_at_s) and started_at_s[begun] <= moment:
            begun += 1
        while ended < len(started_at_s) and started_at_s[ended] + lasts_s <= moment:
            ended += 1
        counts.append(begun - ended)
    return counts


def measure(options: argparse.Namespace) -> Result:
    """One load."""
    seen = run_load(
        Load(
            rate=options.rate,
            seconds=options.seconds,
            engine=options.engine,
            nodes=options.nodes,
            workers=options.workers,
            attempts=options.attempts,
            addresses=ADDRESSES,
            slow_addresses=ADDRESSES,
            slow_s=options.answers_after,
        )
    )
    from_s = seen.from_s + options.answers_after
    moments_s = [from_s + step / 10 for step in range(int((seen.to_s - from_s) * 10))]
    started_s = sorted(arrival.at_s for arrival in seen.arrivals)
    at_once = sorted(count_at_once(started_s, lasts_s=options.answers_after, moments_s=moments_s))
    figures = [
        Figure("runs at once, median", percentile(at_once, 0.5), "runs"),
        Figure("runs at once, most", at_once[-1], "runs"),
        seen.per_second(),
        Figure("runs finished", seen.finished / (seen.to_s - seen.from_s), "runs/s"),
        *latencies("start lag", seen.lags_ms),
        *seen.costs(),
    ]
    return Result(f"{seen.setting}, which answers after {options.answers_after:g} s", figures)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="`onbeat worker`; 0: the nodes deliver themselves")
    parser.add_argument("--rate", type=int, default=6_000)
    parser.add_argument("--answers-after", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--attempts", type=int, default=7_000, help="at once, of each process that delivers")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
