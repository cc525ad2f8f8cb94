"""End to end: fires per second of whole nodes, from the due clock to the finished run, with signed deliveries.

    python -m bench.end_to_end [--engine sqlite|postgres] [--nodes 1] [--workers 0] [--rate 6000] [--seconds 30]

How it is set up says bench/rig.py. With `--workers` N the nodes deliver nothing and N `onbeat worker` processes do;
with `--delivery-processes` N each node has N children that do.
Limits, measured in the same run: a bare `httptools` loop against the same receiver, the rows of a fire written in
batches to the same database by nobody else, and on SQLite the design with nothing of onbeat in it (`bare_design`).
CPU is told per fire and by process.
"""

from __future__ import annotations

import argparse

from bench.bare_design import run_bare_design
from bench.databases import ENGINES
from bench.figures import Figure, Limit, Result, at_least, at_most, latencies
from bench.rig import Load, Seen, run_load
from bench.scenario import parser_of, run_alone

ASKED = {"sqlite": at_least(12_000), "postgres": at_least(8_000)}
"""Design §8, of one node that delivers itself."""
BARE_FIRES = 60_000


def measure(options: argparse.Namespace) -> Result:
    """One load."""
    seen = run_load(
        Load(
            rate=options.rate,
            seconds=options.seconds,
            engine=options.engine,
            nodes=options.nodes,
            workers=options.workers,
            delivery_processes=options.delivery_processes,
            attempts=options.attempts,
            jobs=options.jobs,
        )
    )
    asked = ASKED[options.engine] if not options.workers and options.rate >= ASKED[options.engine].value else None
    delivered = seen.per_second()
    per_s = seen.to_s - seen.from_s
    rows = Limit("bare rows", seen.rows_per_s)
    figures = [
        Figure(delivered.name, delivered.value, delivered.unit, asked, delivered.limit),
        *(_beside_bare_design(options, seen) if options.engine == "sqlite" else ()),
        Figure("runs finished", seen.finished / per_s, "runs/s", limit=rows),
        Figure("handed straight to a worker", 100 * seen.handed_over / max(seen.finished, 1), "%"),
        *latencies("start lag", seen.lags_ms, targets={0.99: at_most(1_000)} if asked else None),
        *seen.costs(),
    ]
    return Result(seen.setting, figures)


def _beside_bare_design(options: argparse.Namespace, seen: Seen) -> list[Figure]:
    fires = min(BARE_FIRES, options.rate * options.seconds)
    bare, _receiver = run_bare_design(fires=fires, attempts=options.attempts)
    per_s, cost = seen.per_second().value, seen.cost_of_a_fire()
    return [
        Figure("of the bare design", 100 * per_s / bare.per_second, "%", limit=Limit("fires/s", bare.per_second)),
        Figure("CPU beside the bare design", cost / bare.cpu_us, "times", limit=Limit("µs/fire", bare.cpu_us)),
    ]


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--nodes", type=int, default=1, help="`onbeat serve`; more than one only on PostgreSQL")
    parser.add_argument("--workers", type=int, default=0, help="`onbeat worker`; 0: the nodes deliver themselves")
    parser.add_argument("--delivery-processes", type=int, default=0, help="of each node, beside it")
    parser.add_argument("--rate", type=int, default=6_000, help="fires that are due at every full second")
    parser.add_argument("--seconds", type=int, default=30, help="that are measured")
    parser.add_argument("--attempts", type=int, default=2_000, help="at once, of each process that delivers")
    parser.add_argument("--jobs", type=int, default=0, help="a multiple of the rate; default: each fires once")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
