"""Ends a PostgreSQL server whose test process has died: `python postgres_guardian.py DIRECTORY`.

Standard input is the read end of a pipe whose other end only the test process has: it ends when that process does,
however it does, also by SIGKILL. A server that stopped in order has left no directory, and nothing is to be done.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

ENDS_WITHIN_S = 10.0


def main() -> None:
    directory = Path(sys.argv[1])
    while os.read(0, 4096):
        pass
    pid = _postmaster_of(directory)
    if pid is not None:
        _end(pid)
    shutil.rmtree(directory, ignore_errors=True)


def _postmaster_of(directory: Path) -> int | None:
    """The server that works in the directory. None: there is none, or its number belongs to another process by now."""
    try:
        pid = int((directory / "data" / "postmaster.pid").read_text().split()[0])
        is_ours = str(directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return None
    return pid if is_ours else None


def _end(pid: int) -> None:
    """At once, without a checkpoint. A server that is frozen cannot hear that, and is killed."""
    must_end = time.monotonic() + ENDS_WITHIN_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT)
        while time.monotonic() < must_end:
            os.kill(pid, 0)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
