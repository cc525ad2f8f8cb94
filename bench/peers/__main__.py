"""Other schedulers beside onbeat, doing the same work in the same run.

    python -m bench.peers [--only WORD] [--jobs 2000] [--json FILE] [--directory DIR]

Three turns each (bench/peers/contest.py), with all jobs due at one full minute: 100 jobs, of which the lag is told;
`--jobs` of them, of which fires per second and CPU are told; and about four seconds' work, in the middle of which all
processes of the scheduler are killed (SIGKILL) and started again at once. Then is told how many planned instants never
arrived and how many arrived twice. Jobs are written and processes started before the minute, which is not measured.
Peers are installed into environments of their own under var/; who cannot be installed here is left out, and why.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from bench.figures import Figure, Result
from bench.peers.contest import KILLED_AFTER_S, Peer, Turn, lag_ms, take_turn
from bench.peers.entrants import ENTRANTS
from bench.peers.environment import NotInstallable
from bench.rig import bare_exchanges_per_s
from bench.scenario import number, parser_of, run_alone
from bench.sink import receiving

LEAD_S = 45.0
"""At least so long before the minute the first job is written."""
FEW = 100
EXCHANGES = 20_000
MOST_KILLED = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """What one peer did."""

    peer: Peer
    few: Turn
    many: Turn
    killed: Turn

    def figures(self) -> list[Figure]:
        """The line of the table."""
        many = self.many
        return [
            Figure("fires/s", many.fires_per_s, "fires/s"),
            Figure("CPU, own", many.own_cpu_s * 1e6 / many.arrived, "µs/fire"),
            Figure("CPU, database", many.service_cpu_s * 1e6 / many.arrived, "µs/fire"),
            Figure(f"CPU, own, of {FEW} jobs", self.few.own_cpu_s * 1e6 / self.few.arrived, "µs/fire"),
            Figure(f"lag of {FEW}, p50", lag_ms(self.few, 0.5), "ms"),
            Figure(f"lag of {FEW}, p99", lag_ms(self.few, 0.99), "ms"),
            Figure(f"lag of {many.jobs:,}, p50", lag_ms(many, 0.5), "ms"),
            Figure(f"lag of {many.jobs:,}, p99", lag_ms(many, 0.99), "ms"),
            Figure("never arrived, no kill", many.lost, "fires"),
            Figure("killed: jobs", self.killed.jobs, "fires"),
            Figure("killed: never arrived", self.killed.lost, "fires"),
            Figure("killed: arrived twice", self.killed.twice, "fires"),
        ]


def measure_peer(peer: Peer, *, jobs: int) -> Entry:
    """All three turns."""
    few = take_turn(peer, jobs=FEW, lead_s=LEAD_S)
    many = take_turn(peer, jobs=jobs, lead_s=LEAD_S)
    kills = min(max(round(many.fires_per_s * 2 * KILLED_AFTER_S), FEW), MOST_KILLED)
    return Entry(peer, few, many, take_turn(peer, jobs=kills, lead_s=LEAD_S, is_killed=True))


def measure(options: argparse.Namespace) -> Result:
    """One after the other."""
    console = Console(stderr=True)
    figures: list[Figure] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as folder, receiving(Path(folder)) as sink:
        receiver = sink.program
        exchanges = Figure(
            "fires/s", bare_exchanges_per_s(sink.port, count=EXCHANGES), "fires/s", of="bare httptools loop"
        )
    for peer in ENTRANTS:
        if options.only is not None and options.only.lower() not in peer.name.lower():
            continue
        try:
            entry = measure_peer(peer, jobs=options.jobs)
        except NotInstallable as reason:
            notes.append(f"{peer.name}: left out, {reason}")
            continue
        except Exception as error:  # the others go on
            notes.append(f"{peer.name}: failed, {error!r}")
            continue
        found = entry.figures()
        told = ", ".join(f"{figure.name} {number(figure.value)}" for figure in found)
        console.print(f"{peer.name}: {told}", highlight=False)
        notes.append(f"{peer.name}: {peer.settings}" + (f"; {peer.lacks}" if peer.lacks else ""))
        figures += [replace(figure, of=peer.name) for figure in found]
    return Result(f"{options.jobs:,} jobs due at one minute, receiver {receiver}", [exchanges, *figures], notes)


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", metavar="WORD", help="peers that have it in their names")
    parser.add_argument("--jobs", type=int, default=2_000)
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
