"""Real `onbeat dev` and `onbeat serve` processes, with what they print."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DEADLINE_S = 30.0


@dataclass
class Started:
    """A process of ours and the lines it printed so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _arrived: queue.Queue[str | None] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line that matches, of those printed before or yet to come."""
        for known in self.lines:
            if match := re.search(pattern, known):
                return match
        while (line := self._arrived.get(timeout=DEADLINE_S)) is not None:
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"it ended without a line like {pattern!r}:\n" + "\n".join(self.lines))

    @property
    def url(self) -> str:
        return self.wait_for(r"http://127\.0\.0\.1:\d+")[0]

    def stop(self) -> int:
        """SIGTERM; answer: the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=DEADLINE_S)


@contextlib.contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[Started]:
    """`onbeat <arguments>`, gone at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONBEAT_")}
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("onbeat")), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environment,
    )
    try:
        yield Started(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=DEADLINE_S)
