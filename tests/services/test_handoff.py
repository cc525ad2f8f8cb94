"""Hand-off: what is reserved is used once or goes back, and nothing is handed to somebody who left."""

from __future__ import annotations

import asyncio

import pytest

from onbeat.domain.ids import RunKey
from onbeat.domain.states import Trigger
from onbeat.services.handoff import TOKENS_AT_ONCE, Handoff, NewLeases
from onbeat.store.values import Lease, LeasedRun


def leased(lease: Lease, number: int = 0) -> LeasedRun:
    return LeasedRun(
        key=RunKey(1, number),
        token=lease.token,
        attempt=1,
        trigger=Trigger.SCHEDULE,
        job_version=1,
        namespace="default",
        job_name="job",
        job_key=None,
        definition="{}",
        payload=None,
        queue=None,
        lease_until=lease.until,
        granted_at=0,
        deadline_at=None,
        late_after=0,
    )


def test_new_leases_are_drawn_when_they_are_looked_at_and_stay_what_they_were() -> None:
    drawn = NewLeases(3 * TOKENS_AT_ONCE + 1, worker="a", until=99)
    assert len(drawn) == 3 * TOKENS_AT_ONCE + 1
    first = drawn[0]
    assert (first.worker, first.until, len(first.token)) == ("a", 99, 16)
    few = drawn[5:10]
    assert [lease.token for lease, _row in zip(drawn, range(200), strict=False)][5:10] == [it.token for it in few]
    assert drawn[0] is first
    assert drawn[-1] is list(drawn)[-1]
    assert len({lease.token for lease in drawn}) == len(drawn)
    assert drawn[len(drawn) :] == []
    with pytest.raises(IndexError):
        _ = drawn[len(drawn)]


async def test_runs_go_to_the_claim_whose_lease_they_carry() -> None:
    handoff = Handoff()
    first = handoff.park("a", queue=None, capacity=1)
    second = handoff.park("b", queue=None, capacity=5)
    reservation = handoff.reserve(until=99)
    leases = [reservation.take(None) for _ in range(3)]
    assert [lease.worker for lease in leases if lease] == ["a", "b", "b"]
    runs = [leased(lease, number) for number, lease in enumerate(leases) if lease]
    assert handoff.settle(reservation, runs) == []
    assert first.runs.result() == runs[:1]
    assert second.runs.result() == runs[1:]


async def test_capacity_is_never_exceeded_and_queues_are_kept_apart() -> None:
    handoff = Handoff()
    handoff.park("a", queue="mail", capacity=2)
    reservation = handoff.reserve(until=99)
    assert reservation.take(None) is None
    assert [reservation.take("mail") is not None for _ in range(3)] == [True, True, False]


async def test_what_was_not_used_can_be_reserved_again() -> None:
    handoff = Handoff()
    handoff.park("a", queue=None, capacity=1)
    unused = handoff.reserve(until=99)
    assert handoff.reserve(until=99).take(None) is None  # set aside for the first transaction
    handoff.settle(unused, [])
    assert handoff.reserve(until=99).take(None) is not None


async def test_runs_for_a_claim_that_left_meanwhile_come_back() -> None:
    handoff = Handoff()
    claim = handoff.park("a", queue=None, capacity=1)
    reservation = handoff.reserve(until=99)
    lease = reservation.take(None)
    assert lease is not None
    handoff.leave(claim)
    run = leased(lease)
    assert handoff.settle(reservation, [run]) == [run]


async def test_a_wake_up_reaches_every_claim_of_the_queue_and_none_leaves_the_line_for_it() -> None:
    handoff = Handoff()
    claims = [handoff.park(name, queue=queue, capacity=1) for name, queue in (("a", None), ("b", None), ("c", "mail"))]
    handoff.wake(None)
    assert [await claim.wake.wait(0) for claim in claims] == [True, True, False]
    reservation = handoff.reserve(until=99)
    assert [reservation.take(None) is not None for _ in range(3)] == [True, True, False]
    assert not any(claim.runs.done() for claim in claims)


async def test_whoever_goes_home_during_a_transaction_takes_along_what_it_hands_over() -> None:
    handoff = Handoff()
    empty, full = (handoff.park(name, queue=queue, capacity=1) for name, queue in (("a", "mail"), ("b", None)))
    reservation = handoff.reserve(until=99)
    lease = reservation.take(None)
    assert lease is not None
    for claim in (empty, full):
        handoff.dismiss(claim)
        assert not claim.runs.done()
    run = leased(lease)
    handoff.settle(reservation, [run])
    assert (empty.runs.result(), full.runs.result()) == ([], [run])


async def test_a_closed_handoff_sends_everybody_home() -> None:
    handoff = Handoff()
    claim = handoff.park("a", queue=None, capacity=1)
    handoff.close()
    assert claim.runs.result() == []


async def test_those_who_wait_get_runs_in_turn() -> None:
    handoff = Handoff()
    for name in ("a", "b", "c"):
        handoff.park(name, queue=None, capacity=3)
    reservation = handoff.reserve(until=99)
    leases = [reservation.take(None) for _ in range(10)]
    assert [lease.worker for lease in leases if lease] == ["a", "b", "c"] * 3


async def test_a_dispatcher_waits_for_workers_that_come_and_go_and_for_no_others() -> None:
    handoff = Handoff()
    assert await handoff.wait_for_room(limit_s=60) == 0  # nobody has had work lately: nobody will be back soon
    handoff.note_work(None)
    waiting = asyncio.create_task(handoff.wait_for_room(limit_s=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    handoff.park("a", queue=None, capacity=3)
    assert await waiting == 3


async def test_a_dispatcher_that_waits_in_vain_goes_on() -> None:
    handoff = Handoff()
    handoff.note_work(None)
    assert await handoff.wait_for_room(limit_s=60) == 0
    handoff.note_work(None)
    assert await handoff.wait_for_room(limit_s=0) == 0


async def test_what_another_transaction_has_reserved_is_no_room() -> None:
    handoff = Handoff()
    handoff.park("a", queue=None, capacity=3)
    handoff.reserve(until=99)
    handoff.park("b", queue=None, capacity=2)
    assert await handoff.wait_for_room(limit_s=0) == 2


async def test_whoever_waits_for_a_queue_without_work_is_no_room() -> None:
    handoff = Handoff()
    handoff.park("a", queue="mail", capacity=2)
    assert await handoff.wait_for_room(limit_s=0) == 0
    handoff.note_work("mail")
    assert await handoff.wait_for_room(limit_s=0) == 2
