"""What tests of every kind share: one PostgreSQL server per session, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.postgres import Databases, running_postgres


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """Makes fresh databases on a real server."""
    with running_postgres() as server:
        yield Databases(server)
