"""What tests of every kind share: one PostgreSQL server per session, started by the first test that asks for it, and
an empty database of each engine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from tests.support.postgres import MASTER_KEY, Databases, running_postgres

# By default structlog tells the values of all variables with an exception, and what a FastAPI or a node consists of: it
# takes seconds to write that down.
_told = [processor for processor in structlog.get_config()["processors"] if not isinstance(processor, ConsoleRenderer)]
structlog.configure(processors=[*_told, ConsoleRenderer(exception_formatter=plain_traceback)])

# Nothing here calls a public server. Without this each HTTP client, and each sender of each process, reads the
# certificates of all public authorities: 57 ms of CPU, some thousand times.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = tempfile.gettempdir()


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Makes fresh databases on a real server."""
    with running_postgres() as server:
        yield Databases(server)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def either_database(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The setting `data` for an empty database: a test that asks for it runs over both engines."""
    if request.param == "sqlite":
        yield str(tmp_path / "onbeat.sqlite3")
        return
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    databases: Databases = request.getfixturevalue("databases")
    with databases.fresh() as url:
        yield url


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that may take longer than others begin in the first half, one here and one there.

    xdist gives each of its processes one stretch of the list, and those that are done take from the ends of others'. A
    test of a minute that begins last is waited for, and tests with faults that begin together disturb each other.
    """
    processes = int(getattr(config, "workerinput", {}).get("workercount", 1))
    allowed_s = float(config.getini("timeout"))
    long = [item for item in items if _timeout_s(item) > allowed_s]
    others = [item for item in items if _timeout_s(item) <= allowed_s]
    size = len(items) // processes
    for number, item in enumerate(long):
        stretch, place = number % processes, number * size // (2 * len(long))
        others.insert(stretch * size + place, item)
    items[:] = others


def _timeout_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker is not None else 0.0
