"""A fresh database per test, of every engine: the contract's tests run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.store.factories import Maker

from onbeat.store.contract import Store
from onbeat.store.open import open_store


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty database."""
    if request.param == "sqlite":
        opened = await open_store(f"sqlite:///{tmp_path}/onbeat.db")
        yield opened
        await opened.close()
        return
    databases = request.getfixturevalue("databases")
    url = await databases.create()
    opened = await open_store(url)
    yield opened
    await opened.close()
    await databases.drop(url)


@pytest.fixture
def make(store: Store) -> Maker:
    """Makes jobs and runs in any state."""
    return Maker(store)
