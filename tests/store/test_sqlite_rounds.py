"""A backlog on SQLite is recorded part by part of the slots, and nothing of it is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.store.factories import NOW, SECOND, Maker

from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.sqlite.rounds import PARTS, Rounds
from onbeat.store.values import DueJob, FiredBatch, FirePlan

LATER = NOW + 3_600 * SECOND


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(str(tmp_path / "onbeat.db"))
    yield store
    await store.close()


class Recorder:
    """Takes batches in any order, and notes of which jobs."""

    def __init__(self, store: Store) -> None:
        self.taken: list[int] = []
        self._store = store

    async def take(self, limit: int) -> FiredBatch:
        return await self._store.fires.record_due(now=NOW, limit=limit, decide=self.decide, in_any_order=True)

    def decide(self, due: DueJob) -> FirePlan:
        self.taken.append(due.job.job_id)
        return FirePlan(next_fire_at=LATER)


@pytest.mark.parametrize("slots", [1, 7, PARTS, 256, 1_000])
def test_a_round_goes_through_each_slot_once_and_the_next_begins_anew(slots: int) -> None:
    rounds = Rounds(slots)
    seen: list[int] = []
    for _ in range(2 * min(PARTS, slots)):
        assert rounds.part
        seen += rounds.part
        rounds.next_part()
    assert Counter(seen) == dict.fromkeys(range(slots), 2)


async def test_batches_keep_to_a_part_of_the_slots_until_nothing_of_it_is_due(store: Store) -> None:
    make, recorder = Maker(store), Recorder(store)
    jobs = [(await make.job(next_fire_at=NOW - number % 7 * SECOND)).job_id for number in range(300)]
    parts: list[int] = []
    while True:
        batch = await recorder.take(4)
        if not batch.jobs:
            break
        (part,) = {job_id % store.slots * PARTS // store.slots for job_id in recorder.taken[-batch.jobs :]}
        parts.append(part)
        left = [job_id for job_id in jobs if job_id not in recorder.taken]
        assert batch.next_due_at is not None
        assert (batch.next_due_at <= NOW) == bool(left)  # of all slots, and not of the part
    assert parts == sorted(parts)
    assert sorted(recorder.taken) == sorted(jobs)


async def test_what_comes_due_before_where_a_part_has_come_to_has_its_turn_in_the_next_round(store: Store) -> None:
    make, recorder = Maker(store), Recorder(store)
    for _ in range(40):
        await make.job(next_fire_at=NOW)
    await recorder.take(1)
    late = [(await make.job(next_fire_at=NOW - 60 * SECOND)).job_id for _ in range(40)]
    while (await recorder.take(1)).jobs:
        pass
    assert set(late) <= set(recorder.taken)
    assert len(recorder.taken) == len(set(recorder.taken)) == 80


async def test_a_part_of_which_more_comes_due_than_is_recorded_does_not_keep_its_turn(store: Store) -> None:
    make, taken = Maker(store), list[int]()
    jobs = [await make.job(next_fire_at=NOW) for _ in range(60)]

    def decide(due: DueJob) -> FirePlan:
        taken.append(due.job.job_id)
        return FirePlan(next_fire_at=now + SECOND)

    for second in range(200):
        now = NOW + second * SECOND
        await store.fires.record_due(now=now, limit=1, decide=decide, in_any_order=True)
    assert set(taken) == {job.job_id for job in jobs}


async def test_a_decision_that_fails_parks_its_job_alone(store: Store) -> None:
    make, recorder = Maker(store), Recorder(store)
    jobs = [(await make.job(next_fire_at=NOW)).job_id for _ in range(20)]

    def decide(due: DueJob) -> FirePlan:
        if due.job.job_id == jobs[3]:
            raise ValueError("nobody can say")
        return recorder.decide(due)

    parked: list[int] = []
    while (batch := await store.fires.record_due(now=NOW, limit=100, decide=decide, in_any_order=True)).jobs:
        parked += [job_id for job_id, _reason in batch.parked]
    assert parked == [jobs[3]]
    assert sorted([*recorder.taken, *parked]) == sorted(jobs)
