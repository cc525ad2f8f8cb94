"""Services over both engines."""

from __future__ import annotations

import pytest


@pytest.fixture
def data(either_database: str) -> str:
    """The setting `data` for an empty database, one of each engine."""
    return either_database
