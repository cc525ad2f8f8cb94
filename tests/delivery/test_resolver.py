"""The system's resolver: what it answers for names that need no network, and that one name holds one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from onbeat.delivery import resolver as module
from onbeat.delivery.resolver import LookupFailed, SystemResolver


@pytest.fixture
def system() -> Iterator[SystemResolver]:
    resolver = SystemResolver()
    yield resolver
    resolver.close()


async def test_localhost_resolves_to_loopback(system: SystemResolver) -> None:
    addresses = await system.resolve("localhost", port=80)
    assert addresses
    assert set(addresses) <= {"127.0.0.1", "::1"}


async def test_a_name_that_cannot_exist_is_a_failed_lookup(system: SystemResolver) -> None:
    with pytest.raises(LookupFailed):
        await system.resolve("a..b", port=80)


async def test_a_name_under_lookup_is_not_looked_up_again(
    system: SystemResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    asked: list[str] = []

    def ask(host: str, port: int) -> tuple[str, ...]:
        asked.append(host)
        begun.set()
        go_on.wait(10)
        return ("192.0.2.1",)

    monkeypatch.setattr(module, "_ask_system", ask)
    first = asyncio.ensure_future(system.resolve("host.test", port=80))
    second = asyncio.ensure_future(system.resolve("host.test", port=80))
    await asyncio.to_thread(begun.wait, 10)
    first.cancel()  # whoever gives up does not take the answer from the other
    go_on.set()
    assert await second == ("192.0.2.1",)
    assert asked == ["host.test"]
