"""Says on which machine and with which versions a benchmark ran."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import apsw


def describe_machine() -> str:
    """One line for the head of every table."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{os.cpu_count()} cores {model}, {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, onbeat {version('onbeat')}"
    )
