"""Wall and CPU time of what is measured, of this process and of a PostgreSQL server beside it."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of a table."""

    name: str
    count: int
    wall_s: float
    cpu_s: float
    server_cpu_s: float = 0.0

    @property
    def per_second(self) -> float:
        return self.count / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s * 1e6 / self.count

    @property
    def server_cpu_us(self) -> float:
        return self.server_cpu_s * 1e6 / self.count


class Stopwatch:
    """Wall and CPU seconds since it was made. `server_cpu_s` reads those of a server."""

    def __init__(self, server_cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        self._read_server = server_cpu_s
        self._wall = time.perf_counter()
        self._cpu = _cpu_s()
        self._server = server_cpu_s()

    def stop(self, name: str, count: int) -> Measure:
        wall_s = time.perf_counter() - self._wall
        return Measure(name, count, wall_s, _cpu_s() - self._cpu, self._read_server() - self._server)


def cpu_s_of_server(pid: int) -> float:
    """CPU seconds of a process, its children that live and those that have ended."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # After the name, which may hold anything: state, parent, …; utime, stime, cutime and cstime from the 12th.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(entry.name) == pid:
            ticks += sum(int(field) for field in fields[11:15])
        elif int(fields[1]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_S


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
