"""Whom a host keeps waiting: what a full worker asks before it claims for others."""

from __future__ import annotations

import asyncio

import pytest
from tests.delivery.receivers import OK, Receiver, Sending, delivery, in_three_places, says

from onbeat.delivery import sender as sender_module
from onbeat.delivery.request import Delivery

NEVER_S, AT_ONCE_S = 60.0, 0.0
"""How long an exchange takes that is slow: not measured by the time that a test takes."""


@pytest.fixture(autouse=True)
def nothing_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "SLOW_EXCHANGE_S", NEVER_S)


async def test_hosts_keep_those_waiting_who_wait_for_an_answer_or_for_them_to_connect() -> None:
    async with in_three_places() as places:
        sender = places.sending.sender
        assert sender.kept_waiting(for_s=60) == set()
        assert sender.kept_waiting(for_s=0) == {places.sent, places.resolving}
        sender.cancel(places.sent)
        assert places.sent not in sender.kept_waiting(for_s=0)


async def test_a_turn_is_the_hosts_doing_where_its_exchanges_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that answers within SLOW_AFTER_S, but is sent more than its connections carry, would fill a worker."""
    async with in_three_places() as places:
        sender = places.sending.sender
        assert places.in_line not in sender.kept_waiting(for_s=0)
        monkeypatch.setattr(sender_module, "SLOW_EXCHANGE_S", AT_ONCE_S)
        assert sender.kept_waiting(for_s=0) == {places.sent, places.in_line, places.resolving}
        assert sender.kept_waiting(for_s=60) == set()


async def test_whoever_waits_for_a_permit_is_not_kept_waiting_by_its_host() -> None:
    asked = asyncio.Event()

    async def ask(_: Delivery) -> bool:
        asked.set()
        return await asyncio.Event().wait()

    async with Receiver(says(OK)) as receiver, Sending(ask_permit=ask) as sending:
        sending.clock.advance(3.0)
        one = delivery(f"http://127.0.0.1:{receiver.port}/")
        _ = sending.begin(one)
        await asked.wait()
        assert sending.sender.kept_waiting(for_s=0) == set()
