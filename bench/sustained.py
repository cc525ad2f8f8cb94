"""The highest rate that nodes keep up with: nearly all of it arrives, and the slowest hundredth within a second.

    python -m bench.sustained [--engine sqlite|postgres] [--nodes 1] [--delivery-processes 0] [--seconds 15]

How it is set up says bench/rig.py. First more is due than any machine of this kind can do, which says what arrives when
a node is behind; from eight tenths of that upwards, steps of a seventh are tried until one is not kept up with, and
downwards where the first one is not. Beyond that rate, where `end_to_end` measures, less arrives: of what is overdue
for more than 5 s a part is recorded first and claimed afterwards, which costs a write more.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from bench.databases import ENGINES
from bench.end_to_end import ASKED
from bench.figures import Figure, Result, at_most, latencies, percentile
from bench.rig import Load, Seen, run_load
from bench.scenario import parser_of, run_alone

ARRIVES = 0.97
"""Of what is due; what is on its way when the measuring begins and ends is no fault."""
P99_MS = 1_000
STEP = 8 / 7


def is_kept_up_with(seen: Seen) -> bool:
    """Whether a rate is one that can go on."""
    arrived = seen.per_second().value >= ARRIVES * seen.load.rate
    return arrived and percentile(sorted(seen.lags_ms), 0.99) <= P99_MS


def measure(options: argparse.Namespace) -> Result:
    """One rate after the other, each in fresh processes over fresh data."""
    load = Load(
        rate=options.beyond,
        seconds=options.seconds,
        engine=options.engine,
        nodes=options.nodes,
        delivery_processes=options.delivery_processes,
        attempts=options.attempts,
    )
    behind = run_load(load)
    best, tried = _climb(replace(load, rate=round(behind.per_second().value * 0.8)), most=options.steps)
    asked = ASKED[options.engine]
    figures = [
        Figure("fires/s when behind", behind.per_second().value, "fires/s", limit=behind.per_second().limit),
        Figure("kept up with", best.load.rate if best else 0, "fires/s", asked, behind.per_second().limit),
    ]
    if best:
        figures += [*latencies("start lag", best.lags_ms, targets={0.99: at_most(P99_MS)}), *best.costs()]
    notes = ["rates that were tried: " + ", ".join(f"{rate:,}" for rate in tried)]
    return Result((best or behind).setting, figures, notes)


def _climb(load: Load, *, most: int) -> tuple[Seen | None, list[int]]:
    best: Seen | None = None
    tried: list[int] = []
    rate = load.rate
    for _ in range(most):
        tried.append(rate)
        seen = run_load(replace(load, rate=rate))
        kept_up = is_kept_up_with(seen)
        if kept_up and (best is None or rate > best.load.rate):
            best = seen
        # Upwards while it is kept up with; downwards until the first that is.
        if len(tried) > 1 and kept_up == (tried[1] < tried[0]):
            break
        rate = round(rate * STEP if kept_up else rate / STEP)
    return best, tried


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--nodes", type=int, default=1, help="`onbeat serve`; more than one only on PostgreSQL")
    parser.add_argument("--delivery-processes", type=int, default=0, help="of each node, beside it")
    parser.add_argument("--beyond", type=int, default=13_000, help="fires a second, more than can be done")
    parser.add_argument("--seconds", type=int, default=15, help="that are measured, of each rate")
    parser.add_argument("--steps", type=int, default=12, help="at most")
    parser.add_argument("--attempts", type=int, default=2_000, help="at once, of each process that delivers")
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
