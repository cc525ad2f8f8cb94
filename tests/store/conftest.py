"""A fresh database per test, of every engine: the contract's tests run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.store.factories import Maker

from onbeat.store.contract import Store
from onbeat.store.open import open_store

OPENERS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda directory: f"sqlite:///{directory}/onbeat.db",
}


@pytest.fixture(params=sorted(OPENERS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty database."""
    opened = await open_store(OPENERS[request.param](tmp_path))
    yield opened
    await opened.close()


@pytest.fixture
def make(store: Store) -> Maker:
    """Makes jobs and runs in any state."""
    return Maker(store)
