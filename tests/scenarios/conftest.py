"""Real `onbeat dev` processes over a database of their own: a data file, and in some modules PostgreSQL, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.database import Data
from tests.support.process import QUICK, ServerProcess, running
from tests.support.starting import Start, start_fork

StartServer = Callable[..., AbstractAsyncContextManager[ServerProcess]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "onbeat.sqlite3"


@pytest.fixture
def start_server(tmp_path: Path, data: Data) -> StartServer:
    """`async with start_server() as server:` runs `onbeat dev`; keyword arguments are settings."""

    return functools.partial(developing, data, log=tmp_path / "server.log", start=start_fork)


def developing(
    data: Data, *, log: Path, start: Start, port: int | None = None, **settings: str
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat dev`; keyword arguments are settings."""
    return running(
        lambda port: ["-m", "onbeat", "dev", "--data", str(data), "--port", str(port)],
        log=log,
        port=port,
        env=QUICK | {f"ONBEAT_{name.upper()}": value for name, value in settings.items()},
        start=start,
    )
