"""Run a plan some times and say what came out.

    python -m bench [--plan quick|full|smoke] [--runs 3] [--only WORD] [--directory DIR] [--json FILE]

Each line of the plan is a process of its own. The whole plan is run again and again rather than each line, so that
something else on the machine falls on all of them. What has been found is written after every line; a line that fails
is told and the others go on. `python -m bench.markdown FILE` shows the JSON as it stands in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from bench.figures import Result
from bench.machine import ROOT, machine_facts, program_versions
from bench.markdown import Report, table_lines
from bench.plans import PLANS
from bench.summary import summarise
from onbeat.clock import host_time_us

TOLD_LINES = 15


def run_once(line: str, directory: Path | None) -> Result | str:
    """One scenario in its own process. Answer: what it found, or the last lines that it printed when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "result.json"
        module, *arguments = line.split()
        command = [sys.executable, "-m", f"bench.{module}", *arguments, "--json", str(found)]
        command += [] if directory is None else ["--directory", str(directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode == 0:
            return msgspec.json.decode(found.read_bytes(), type=Result)
        return "\n".join(done.stderr.strip().splitlines()[-TOLD_LINES:])


def run_plan(lines: list[str], *, plan: str, runs: int, directory: Path | None, json_path: Path) -> Report:
    """All of it; the report is written after each line."""
    console = Console()
    results: dict[str, list[Result]] = {line: [] for line in lines}
    failures: dict[str, list[str]] = {line: [] for line in lines}
    began_at, load_before = _now(), os.getloadavg()
    facts = {"machine": machine_facts(directory or Path(tempfile.gettempdir())), "versions": program_versions()}

    def report() -> Report:
        summaries = [summarise(line, results[line], failures[line]) for line in lines]
        return Report(
            plan, runs, began_at, _now(), facts["machine"], facts["versions"], load_before, os.getloadavg(), summaries
        )

    json_path.parent.mkdir(parents=True, exist_ok=True)
    for number in range(runs):
        for line in lines:
            console.print(f"[{_now()}] run {number + 1} of {runs}: {line}", markup=False, highlight=False)
            found = run_once(line, directory)
            if isinstance(found, Result):
                results[line].append(found)
            else:
                failures[line].append(found)
                console.print(f"failed:\n{found}", markup=False, highlight=False, style="red")
            json_path.write_bytes(msgspec.json.format(msgspec.json.encode(report())))
    return report()


def _now() -> str:
    return datetime.fromtimestamp(host_time_us() // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> int:
    """Answer: the exit code, 1 when a line failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=sorted(PLANS), default="quick")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", metavar="WORD", help="lines that have it in them")
    parser.add_argument("--directory", type=Path, help="where data is kept; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="default: var/bench/<time>.json")
    options = parser.parse_args()
    lines = [line for line in PLANS[options.plan] if options.only is None or options.only in line]
    if not lines:
        parser.error(f"no line of the plan {options.plan} has {options.only!r} in it")
    json_path = options.json or ROOT / "var" / "bench" / f"{_now().replace(':', '')}.json"
    report = run_plan(lines, plan=options.plan, runs=options.runs, directory=options.directory, json_path=json_path)
    print("\n".join(table_lines(report)))
    print(f"\nwritten to {json_path}")
    return 1 if any(summary.failures for summary in report.summaries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
