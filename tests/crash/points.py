"""The scheduler that dies at a chosen point, as the tests here start it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.support.database import Data
from tests.support.process import ServerProcess, running
from tests.support.starting import start_fork

SERVER = Path(__file__).with_name("crashing_server.py")
NOWHERE = "none"


def dying(point: str, data: Data, *, log: Path, port: int) -> AbstractAsyncContextManager[ServerProcess]:
    """A real process that kills itself at `point` (crashing_server.py)."""
    return running(lambda port: [str(SERVER), str(data), str(port), point], log=log, port=port, start=start_fork)


def lasting(data: Data, *, log: Path, port: int) -> AbstractAsyncContextManager[ServerProcess]:
    """The same scheduler, which does not."""
    return dying(NOWHERE, data, log=log, port=port)
