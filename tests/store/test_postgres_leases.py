"""Leases on PostgreSQL under several nodes at once: one wins, every answer is true, nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import asyncpg
import pytest
from tests.store.factories import FAILURE, LEASE_US, NOW, SECOND, Judge, Maker, never, new_lease, new_run, outcome
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.values import (
    AfterFinish,
    DueJob,
    EndRun,
    Finish,
    Finished,
    FinishResult,
    FirePlan,
    JobChange,
    LeaseStatus,
    NewRun,
    RetryRun,
    StoredJob,
)

LATER = NOW + LEASE_US + SECOND
"""Leases that were given at NOW have run out."""
ENDED_STATES = frozenset(RunState) - {RunState.PENDING, RunState.RUNNING}


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    url = await databases.create()
    yield url
    await databases.drop(url)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[Store]]:
    """Three nodes on one database."""
    opened = [await open_store(url) for _ in range(3)]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def make(nodes: list[Store]) -> Maker:
    return Maker(nodes[0])


@pytest.fixture
async def other(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection on which tests hold locks."""
    connection = await asyncpg.connect(url)
    yield connection
    await connection.close()


async def at_once(chance: random.Random, *works: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run these at once, begun in any order and a few milliseconds apart."""

    async def begin(work: Coroutine[Any, Any, Any], delay_s: float) -> Any:
        await asyncio.sleep(delay_s)
        return await work

    return list(await asyncio.gather(*(begin(work, chance.random() * 0.004) for work in works)))


def pause(_job: StoredJob) -> JobChange:
    return JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)


async def test_sixteen_claimers_take_every_run_once(nodes: list[Store], make: Maker) -> None:
    made = set()
    for number in range(400):
        job = await make.job(next_fire_at=None)
        made.add(await make.pending(job, NOW - number, priority=number % 10))
    claimed: list[RunKey] = []

    async def claim_all(store: Store, batch: int) -> None:
        while leased := await store.leases.claim([new_lease() for _ in range(batch)], now=NOW, queue=None):
            claimed.extend(run.key for run in leased)

    await asyncio.gather(*(claim_all(store, batch) for store, batch in zip(nodes * 6, range(1, 17), strict=False)))
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == made


async def test_claim_passes_over_runs_that_another_takes(
    nodes: list[Store], make: Maker, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    keys = [
        await make.pending(await make.job(next_fire_at=None), NOW - 100 + place, priority=9 - place // 4)
        for place in range(12)
    ]
    async with other.transaction():
        # The whole line of the highest priority, and the head of the next one.
        await other.execute(
            "SELECT 1 FROM live_runs WHERE scheduled_at = ANY($1) FOR UPDATE", [key.scheduled_at for key in keys[:5]]
        )
        leased = await nodes[1].leases.claim([new_lease() for _ in range(5)], now=NOW, queue=None)
        assert [run.key for run in leased] == keys[5:10]
    left = await nodes[1].leases.claim([new_lease() for _ in range(12)], now=NOW, queue=None)
    assert [run.key for run in left] == keys[:5] + keys[10:]


async def test_nothing_is_claimed_after_a_pause_is_acknowledged(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(4)
    for _ in range(30):
        job = await make.job(max_running=20)
        for lane in range(12):
            await make.pending(job, NOW + 1 + lane, lane=lane, ready_at=NOW)
        held: list[tuple[RunKey, bytes]] = []

        async def claim_all(store: Store, held: list[tuple[RunKey, bytes]] = held) -> None:
            while leased := await store.leases.claim([new_lease()], now=NOW, queue=None):
                held.extend((run.key, run.token) for run in leased)

        async def pause_it(job: StoredJob = job) -> int:
            await nodes[2].jobs.change(job.job_id, now=NOW, decide=pause)
            return (await nodes[2].counts()).running

        _, _, running = await at_once(chance, claim_all(nodes[0]), claim_all(nodes[1]), pause_it())
        assert (await nodes[2].counts()).running == running == len(held)
        statuses = await nodes[0].leases.permit(held, now=NOW)
        assert set(statuses) <= {LeaseStatus.HELD_BACK}
        await nodes[0].leases.finish([Finish(key, token, outcome()) for key, token in held], now=NOW, decide=never)


async def test_permit_and_pause_at_once(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(5)
    for _ in range(40):
        job = await make.job()
        key, token = await make.running(job)

        async def pause_it(job: StoredJob = job) -> None:
            await nodes[1].jobs.change(job.job_id, now=NOW + 1, decide=pause)

        await at_once(chance, nodes[0].leases.permit([(key, token)], now=NOW + 1), pause_it())
        assert await nodes[0].leases.permit([(key, token)], now=NOW + 2) == [LeaseStatus.HELD_BACK]


async def test_finish_expire_cancel_and_revive_at_once(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(6)
    seen: set[tuple[object, ...]] = set()
    for _ in range(120):
        job = await make.job()
        key, token = await make.running(job)
        waiting = await make.waiting(job, NOW + 1)
        ends = chance.choice([outcome(), FAILURE])
        finished, expired, cancelled, revived = await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, ends)], now=LATER, decide=Judge(EndRun(RunState.TIMED_OUT))),
            nodes[1].leases.expire(now=LATER, limit=100, decide=Judge(EndRun(RunState.FAILED))),
            nodes[2].leases.cancel(key, now=LATER),
            nodes[chance.randrange(3)].leases.revive(key, now=LATER, late_after=LATER),
        )
        (answer,) = finished
        final = (await make.view(key)).state
        seen.add((answer.result, bool(expired), cancelled, revived))
        _check_answers(answer, expired, cancelled, revived, final)
        # Nobody is left behind: either the run came back before the lane was passed on, or the next one has the lane.
        views = [await make.view(key), await make.view(waiting)]
        assert [view.lane for view in views if view.state in (RunState.PENDING, RunState.RUNNING)].count(0) == 1
        assert await nodes[0].leases.finish([Finish(key, token, ends)], now=LATER, decide=never) == [
            Finished(key, FinishResult.REPEATED, final, LATER if final is RunState.PENDING else None)
            if answer.result is FinishResult.ENDED
            else Finished(key, answer.result if final in ENDED_STATES else FinishResult.LEASE_LOST, final)
        ]
        for left in (key, waiting):
            await nodes[0].leases.cancel(left, now=LATER)
    assert len(seen) > 3, "the race was always decided in one way"


def _check_answers(
    answer: Finished, expired: list[Finished], cancelled: RunState, revived: RunState, final: RunState
) -> None:
    """One of finish and expire ended the run; the others saw what was true when they came."""
    by_finish = answer.result is FinishResult.ENDED
    assert by_finish != bool(expired)
    ended_as = answer.state if by_finish else expired[0].state
    if not by_finish:
        assert answer.result in (FinishResult.RUN_TERMINAL, FinishResult.LEASE_LOST)
    states = {RunState.RUNNING, RunState.PENDING, ended_as, RunState.CANCELLED}
    assert cancelled in states
    assert revived in states
    if revived is RunState.PENDING:
        assert ended_as is not RunState.SUCCEEDED
        assert final is (RunState.CANCELLED if cancelled is RunState.CANCELLED else RunState.PENDING)
    else:
        assert final is ended_as


async def test_two_nodes_finish_the_same_runs_in_opposite_order(nodes: list[Store], make: Maker) -> None:
    items = []
    for number in range(120):
        key, token = await make.running(await make.job(next_fire_at=None))
        items.append(Finish(key, token, outcome() if number % 3 else FAILURE))
    failed = Judge(EndRun(RunState.FAILED))
    first, second = await asyncio.gather(
        nodes[0].leases.finish(items, now=NOW, decide=failed),
        nodes[1].leases.finish(items[::-1], now=NOW, decide=failed),
    )
    for one, another in zip(first, reversed(second), strict=True):
        assert {one.result, another.result} == {FinishResult.ENDED, FinishResult.REPEATED}
        assert one.state == another.state


async def test_a_fire_that_waits_for_a_lane_is_never_stranded(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(7)

    def decide(due: DueJob) -> FirePlan:
        lane = None if due.holds else 0
        return FirePlan(next_fire_at=None, runs=(new_run(due.due_at, lane=lane, ready_at=NOW),))

    for _ in range(12):
        jobs = [await make.job(next_fire_at=NOW + 1) for _ in range(25)]
        held = [await make.running(job) for job in jobs]
        chance.shuffle(held)
        finishes = [
            nodes[number % 2].leases.finish(
                [Finish(key, token, outcome()) for key, token in held[number::5]], now=NOW + 1, decide=never
            )
            for number in range(5)
        ]
        await at_once(chance, *finishes, nodes[2].fires.record_due(now=NOW + 1, limit=100, decide=decide))
        for job in jobs:
            view = await make.view(RunKey(job.job_id, NOW + 1))
            assert (view.state, view.lane) == (RunState.PENDING, 0)
        await _clear(nodes[0])


async def test_two_ends_at_once_under_a_lowered_limit_pass_the_lane_on(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(8)
    for _ in range(60):
        job = await make.job(max_running=2, next_fire_at=None)
        held = [await make.running(job, NOW + lane, lane=lane) for lane in range(2)]
        waiting = await make.waiting(job, NOW + 5)
        lowered = JobChange(definition='{"max_running": 1}', max_running=1)
        await nodes[0].jobs.change(job.job_id, now=NOW, decide=lambda _job, lowered=lowered: lowered)  # type: ignore[misc]
        await at_once(
            chance,
            *(
                store.leases.finish([Finish(key, token, outcome())], now=NOW, decide=never)
                for store, (key, token) in zip(nodes, held, strict=False)
            ),
        )
        assert (await make.view(waiting)).lane == 0


async def test_lanes_freed_at_once_go_to_as_many_runs(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(9)
    for _ in range(30):
        job = await make.job(max_running=3, next_fire_at=None)
        held = [await make.running(job, NOW + lane, lane=lane) for lane in range(3)]
        waiting = [await make.waiting(job, NOW + 10 + number) for number in range(5)]
        await at_once(
            chance,
            *(
                store.leases.finish([Finish(key, token, outcome())], now=NOW, decide=never)
                for store, (key, token) in zip(nodes, held, strict=True)
            ),
        )
        lanes = [(await make.view(key)).lane for key in waiting]
        assert lanes[3:] == [None, None]
        assert sorted(lane for lane in lanes if lane is not None) == [0, 1, 2]


async def test_a_raised_limit_and_a_finish_at_once(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(10)
    for _ in range(30):
        job = await make.job(next_fire_at=None)
        key, token = await make.running(job)
        waiting = [await make.waiting(job, NOW + 10 + number) for number in range(3)]
        raised = JobChange(definition='{"max_running": 2}', max_running=2)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[1].jobs.change(job.job_id, now=NOW, decide=lambda _job, raised=raised: raised),  # type: ignore[misc]
        )
        lanes = [(await make.view(key)).lane for key in waiting]
        assert sorted(lane for lane in lanes[:2] if lane is not None) == [0, 1]
        assert lanes[2] is None


async def test_retry_of_a_job_that_is_deleted_at_the_same_time(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(11)

    def delete(_job: StoredJob) -> JobChange:
        return JobChange(state=JobState.DELETED, next_fire_at=None, cancels_pending=True)

    for _ in range(40):
        job = await make.job()
        key, token = await make.running(job)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, FAILURE)], now=NOW, decide=Judge(RetryRun(NOW))),
            nodes[1].jobs.change(job.job_id, now=NOW, decide=delete),
        )
        assert (await make.view(key)).state is RunState.CANCELLED


async def test_release_of_a_run_that_is_cancelled_at_the_same_time(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(12)
    for _ in range(40):
        key, token = await make.running(await make.job())
        given_back, state = await at_once(
            chance, nodes[0].leases.release([(key, token)], now=NOW), nodes[1].leases.cancel(key, now=NOW)
        )
        assert given_back == 1
        assert state in (RunState.RUNNING, RunState.CANCELLED)
        assert (await make.view(key)).state is RunState.CANCELLED


async def test_job_that_answers_gone_is_paused_whatever_fires_meanwhile(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(13)

    def decide(due: DueJob) -> FirePlan:
        lane = None if due.holds else 0
        return FirePlan(next_fire_at=due.due_at + SECOND, runs=(new_run(due.due_at, lane=lane, ready_at=NOW),))

    for _ in range(40):
        job = await make.job(next_fire_at=NOW + 1)
        key, token = await make.running(job)
        gone = Judge(EndRun(RunState.FAILED, "gone", pauses_job="the receiver answered 410 Gone"))
        finished, _ = await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, FAILURE)], now=NOW + 1, decide=gone),
            nodes[1].fires.record_due(now=NOW + 1, limit=10, decide=decide),
        )
        assert [answer.result for answer in finished] == [FinishResult.ENDED]
        after = await make.reread(job)
        assert (after.state, after.next_fire_at, after.version) == (JobState.PAUSED, None, 2)
        recorded = await nodes[0].runs.get(RunKey(job.job_id, NOW + 1))
        assert after.paused_at == (NOW if recorded is None else NOW + 1)
        assert await nodes[2].leases.claim([new_lease()], now=NOW + SECOND, queue=None) == []


async def test_last_two_runs_ended_at_once_set_the_clock(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(14)
    for _ in range(40):
        job = await make.job(max_running=2, next_fire_at=None, after_finish=AfterFinish(5 * SECOND))
        held = [await make.running(job, NOW + lane, lane=lane) for lane in range(2)]
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(*held[0], outcome())], now=NOW, decide=never),
            nodes[1].leases.finish([Finish(*held[1], FAILURE)], now=NOW, decide=Judge(EndRun(RunState.FAILED))),
        )
        assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND


async def test_clock_after_a_finish_that_races_a_run_by_hand(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(15)

    def by_hand(due: DueJob) -> tuple[NewRun, ...]:
        return (new_run(NOW + 1, lane=None if due.holds else 0),)

    for _ in range(40):
        job = await make.job(next_fire_at=None, after_finish=AfterFinish(5 * SECOND))
        key, token = await make.running(job)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[1].fires.insert_run(job.job_id, now=NOW, decide=by_hand),
        )
        assert (await make.reread(job)).next_fire_at is None
        assert (await make.view(RunKey(job.job_id, NOW + 1))).lane == 0


async def test_clock_after_a_finish_that_races_a_fire(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(16)
    for _ in range(40):
        job = await make.job(after_finish=AfterFinish(5 * SECOND))
        key, token = await make.running(job, NOW + 1)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[1].fires.record_due(now=NOW, limit=10, decide=lambda _due: FirePlan(next_fire_at=None)),
        )
        assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND
        await nodes[0].jobs.change(job.job_id, now=NOW, decide=pause)


async def test_clock_after_a_finish_that_races_a_pause(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(17)
    for _ in range(40):
        job = await make.job(next_fire_at=None, after_finish=AfterFinish(5 * SECOND))
        key, token = await make.running(job)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[1].jobs.change(job.job_id, now=NOW, decide=pause),
        )
        after = await make.reread(job)
        assert (after.state, after.next_fire_at) == (JobState.PAUSED, None)


async def test_job_that_becomes_one_that_fires_after_a_finish_during_a_finish(nodes: list[Store], make: Maker) -> None:
    chance = random.Random(18)
    change = JobChange(
        definition='{"after": "finish"}', max_running=1, next_fire_at=None, after_finish=AfterFinish(5 * SECOND)
    )
    for _ in range(40):
        job = await make.job(next_fire_at=NOW + 60 * SECOND)
        key, token = await make.running(job)
        await at_once(
            chance,
            nodes[0].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[1].jobs.change(job.job_id, now=NOW, decide=lambda _job: change),
        )
        assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND


async def test_expire_passes_over_rows_that_others_hold(
    nodes: list[Store], make: Maker, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    keys = [(await make.running(await make.job(next_fire_at=None), NOW + number))[0] for number in range(5)]
    async with other.transaction():
        await other.execute("SELECT 1 FROM live_runs WHERE scheduled_at = $1 FOR UPDATE", keys[0].scheduled_at)
        answers = await nodes[0].leases.expire(now=LATER, limit=100, decide=Judge(EndRun(RunState.FAILED)))
        assert {answer.key for answer in answers} == set(keys[1:])
    answers = await nodes[0].leases.expire(now=LATER, limit=100, decide=Judge(EndRun(RunState.FAILED)))
    assert [answer.key for answer in answers] == keys[:1]


async def test_every_lost_lease_is_expired_by_one_of_several_nodes(nodes: list[Store], make: Maker) -> None:
    keys = [(await make.running(await make.job(next_fire_at=None)))[0] for _ in range(100)]

    async def expire_all(store: Store) -> list[Finished]:
        answers: list[Finished] = []
        while batch := await store.leases.expire(now=LATER, limit=7, decide=Judge(RetryRun(LATER))):
            answers += batch
        return answers

    answers = list(itertools.chain(*await asyncio.gather(*(expire_all(store) for store in nodes))))
    answers += await expire_all(nodes[0])
    assert sorted(answer.key for answer in answers) == sorted(keys)
    assert all([(await make.view(key)).attempt == 1 for key in keys])


async def _clear(store: Store) -> None:
    """End what is claimable."""
    while leased := await store.leases.claim([new_lease() for _ in range(100)], now=LATER, queue=None):
        await store.leases.finish([Finish(run.key, run.token, outcome()) for run in leased], now=LATER, decide=never)
