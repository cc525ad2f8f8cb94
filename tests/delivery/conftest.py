"""Every asynchronous test here runs on both loops: uvloop, which `onbeat serve` uses, and asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop
from tests.delivery.authority import Authority, make_authority


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asked by pytest-asyncio, once per test."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificates of this run's servers."""
    return make_authority(tmp_path_factory.mktemp("ca"))
