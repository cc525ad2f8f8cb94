"""One peer's turn: N jobs due at one full minute; and once more with its processes killed in the middle."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.figures import percentile
from bench.measures import cpu_s_of_server
from bench.peers.services import open_folder
from bench.sink import Arrival, Sink, receiving
from onbeat.clock import host_time_us
from onbeat.domain.model import SECOND_US

LOOKS_EVERY_S: Final = 0.05
LONGEST_S: Final = 300.0
"""After the due instant; whoever has not finished by then has not finished."""
KILLED_AFTER_S: Final = 2.0
"""After the due instant, or when half of the jobs have arrived if that is earlier."""
QUIET_S: Final = 20.0
"""Without another arrival the work counts as done."""
QUIET_AFTER_KILL_S: Final = 75.0
"""The same after a kill: longer than the 30 s that every lease, lock and visibility timeout here lasts, twice."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a peer is told."""

    url: str
    jobs: int
    due_at_s: int


class Running(Protocol):
    """A peer with its jobs written and its database up; its own processes may run or not."""

    def start(self) -> None:
        """All its processes."""
        ...

    def kill(self) -> None:
        """SIGKILL to all of them at once. What it keeps its jobs in lives on, unless that is the scheduler."""
        ...

    def stop(self) -> None:
        """Leave nothing behind."""
        ...

    def pids(self) -> list[int]:
        """Of its processes."""
        ...

    def service_cpu_s(self) -> float:
        """Of the database's own processes, so far."""
        ...


class Peer(Protocol):
    """One that can be compared."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> str:
        """How it was set up and what makes it durable."""
        ...

    @property
    def lacks(self) -> str:
        """What it does not do."""
        ...

    def open(self, work: Work, folder: Path) -> AbstractContextManager[Running]:
        """Write the jobs. Raises NotInstallable."""
        ...


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of N jobs."""

    jobs: int
    arrived: int
    """Of the jobs, at least once."""
    twice: int
    """Of the jobs, more than once."""
    last_s: float
    """From the due instant to the last first arrival."""
    lags_ms: list[float]
    """Of first arrivals, ascending."""
    own_cpu_s: float
    service_cpu_s: float

    @property
    def lost(self) -> int:
        return self.jobs - self.arrived

    @property
    def fires_per_s(self) -> float:
        return self.arrived / self.last_s


def take_turn(peer: Peer, *, jobs: int, lead_s: float, is_killed: bool = False) -> Turn:
    """Write the jobs, start everything, watch the receiver."""
    with open_folder() as folder, receiving(folder) as sink:
        due_at_s = _full_minute_after(lead_s)
        with peer.open(Work(sink.url, jobs, due_at_s), folder) as running:
            if due_at_s - _now_s() < lead_s / 3:
                return _with_more_lead(peer, jobs, lead_s, is_killed=is_killed)
            with contextlib.ExitStack() as stack:
                stack.callback(running.stop)
                running.start()
                time.sleep(max(0.0, due_at_s - 1 - _now_s()))
                own, service = _own_cpu_s(running), running.service_cpu_s()
                if is_killed:
                    _wait(sink, jobs // 2, due_at_s, quiet_s=QUIET_S, longest_s=KILLED_AFTER_S)
                    running.kill()
                    running.start()
                    own = 0.0
                _wait(sink, jobs, due_at_s, quiet_s=QUIET_AFTER_KILL_S if is_killed else QUIET_S)
                own, service = _own_cpu_s(running) - own, running.service_cpu_s() - service
                if not is_killed:
                    return judge(sink.arrivals(), jobs, due_at_s, own_cpu_s=own, service_cpu_s=service)
                time.sleep(QUIET_S)  # whoever repeats does it while the leases of the dead end
        return judge(sink.arrivals(), jobs, due_at_s, own_cpu_s=own, service_cpu_s=service)


def judge(arrivals: Sequence[Arrival], jobs: int, due_at_s: float, *, own_cpu_s: float, service_cpu_s: float) -> Turn:
    """Counts jobs by their webhook-id."""
    times = Counter(arrival.webhook_id for arrival in arrivals)
    first: dict[str, Arrival] = {}
    for arrival in arrivals:
        first.setdefault(arrival.webhook_id, arrival)
    lags_ms = sorted(arrival.lag_ms for arrival in first.values())
    return Turn(
        jobs=jobs,
        arrived=len(first),
        twice=sum(count > 1 for count in times.values()),
        last_s=max((arrival.at_s for arrival in first.values()), default=due_at_s) - due_at_s,
        lags_ms=lags_ms,
        own_cpu_s=own_cpu_s,
        service_cpu_s=service_cpu_s,
    )


def lag_ms(turn: Turn, share: float) -> float:
    """Of first arrivals."""
    return percentile(turn.lags_ms, share)


def _with_more_lead(peer: Peer, jobs: int, lead_s: float, *, is_killed: bool) -> Turn:
    """Writing the jobs took too long; that is not what is measured."""
    return take_turn(peer, jobs=jobs, lead_s=2 * lead_s, is_killed=is_killed)


def _wait(sink: Sink, count: int, due_at_s: float, *, quiet_s: float, longest_s: float = LONGEST_S) -> None:
    """Until so many different jobs have arrived, nothing has arrived for so long, or it takes too long."""
    reader = _Counting(sink.log)
    quiet_since = _now_s()
    while (seen := reader.look()) < count:
        if reader.has_news:
            quiet_since = _now_s()
        if _now_s() - max(quiet_since, due_at_s) > quiet_s or _now_s() - due_at_s > longest_s:
            return
        time.sleep(LOOKS_EVERY_S)
    assert seen >= count


class _Counting:
    """Different jobs in the receiver's log so far."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("rb")
        self._ids: set[bytes] = set()
        self._rest = b""
        self.has_news = False

    def look(self) -> int:
        new = self._rest + self._file.read()
        *lines, self._rest = new.split(b"\n")
        self.has_news = bool(lines)
        self._ids.update(fields[1] for line in lines if len(fields := line.split()) == 4 and fields[2] != b"-")
        return len(self._ids)


def _own_cpu_s(running: Running) -> float:
    return sum(map(cpu_s_of_server, running.pids()))


def _now_s() -> float:
    return host_time_us() / SECOND_US


def _full_minute_after(lead_s: float) -> int:
    return (int(_now_s() + lead_s) // 60 + 1) * 60
