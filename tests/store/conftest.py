"""A fresh database per test, of every engine: the contract's tests run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.store.factories import Maker
from tests.support.citus import spread_database
from tests.support.one_slot import name_calls, watching

from onbeat.store.contract import Store
from onbeat.store.open import open_store

ONE_SLOT = "postgres, one slot"
"""PostgreSQL, in the way in which its tables may be spread over the servers of a Citus cluster."""


@pytest.fixture(params=["sqlite", "postgres", pytest.param(ONE_SLOT, marks=pytest.mark.slow)])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """An empty database."""
    if request.param == "sqlite":
        opened = await open_store(f"sqlite:///{tmp_path}/onbeat.db")
        yield opened
        await opened.close()
        return
    databases = request.getfixturevalue("databases")
    if request.param == ONE_SLOT:
        if request.node.get_closest_marker("order_over_slots") is not None:
            pytest.skip("one slot at a time: an order holds within each slot (test_postgres_one_slot.py)")
        url = await spread_database(databases)
        with watching(monkeypatch) as watch:
            opened = await open_store(url)
            name_calls(opened, monkeypatch)
            yield opened
            await opened.close()
        assert not watch.faults, watch.faults[0]
    else:
        url = await databases.create()
        opened = await open_store(url)
        yield opened
        await opened.close()
    await databases.drop(url)


@pytest.fixture
def make(store: Store) -> Maker:
    """Makes jobs and runs in any state."""
    return Maker(store)
