"""Several nodes advance backfills at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.store.factories import NOW, SECOND, Maker, new_run
from tests.support.postgres import Databases

from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.states import RunState, Trigger
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.values import (
    BackfillStep,
    DueBackfill,
    FirePlan,
    Mark,
    MarkCut,
    NewBackfill,
    NewRun,
    Page,
    Recorded,
    RunFilter,
)

NODES = 3
INSTANTS = 12
FIRST = NOW - INSTANTS * SECOND


@pytest.fixture
async def nodes(databases: Databases) -> AsyncIterator[list[Store]]:
    """Several stores on one database, each with connections of its own."""
    url = await databases.create()
    opened = [await open_store(url) for _ in range(NODES)]
    yield opened
    for store in opened:
        await store.close()
    await databases.drop(url)


def asked(job_id: int) -> NewBackfill:
    return NewBackfill(job_id, FIRST, NOW, BackfillOrder.OLDEST, rate_per_s=50, most=INSTANTS, instants=INSTANTS)


def next_instant(due: DueBackfill) -> tuple[int, ...]:
    return (due.backfill.left_from,)


def one_run(due: DueBackfill, looked: Sequence[tuple[int, Recorded | None]]) -> BackfillStep:
    """Makes the next instant up, out of the mark that it lies in."""
    ((instant, record),) = looked
    following = instant + SECOND
    state = BackfillState.RUNNING if following < NOW else BackfillState.DONE
    cuts: tuple[MarkCut, ...] = ()
    runs: tuple[NewRun, ...] = ()
    if record is None or record.mark is not None:
        runs = (new_run(instant, trigger=Trigger.BACKFILL, lane=None if due.due.holds else 0),)
    if record is not None and record.mark is not None:
        mark = record.mark
        rest = Mark(following, mark.until, mark.count - 1, mark.state)
        cuts = (MarkCut(mark.scheduled_at, (rest,) if mark.count > 1 else ()),)
    return BackfillStep(following, NOW, NOW, looked_at=1, runs=runs, cuts=cuts, state=state)


async def test_one_of_several_that_begin_at_once_does(nodes: list[Store]) -> None:
    make = Maker(nodes[0])
    for _ in range(20):
        job = await make.job()
        begun = await asyncio.gather(*[store.backfills.begin(asked(job.job_id), now=NOW) for store in nodes])
        assert [found.number for found in begun if found is not None] == [1]


async def test_nodes_that_race_make_every_instant_up_once(nodes: list[Store]) -> None:
    make = Maker(nodes[0])
    jobs = [await make.job(next_fire_at=NOW + SECOND) for _ in range(4)]
    missed = Mark(FIRST, NOW - SECOND, INSTANTS, RunState.MISSED)
    await make.fire(FirePlan(next_fire_at=NOW + 9 * SECOND, marks=(missed,)), now=NOW + SECOND)
    for job in jobs:
        assert await nodes[0].backfills.begin(asked(job.job_id), now=NOW) is not None

    async def work(store: Store) -> int:
        created = 0
        while True:
            answer = await store.backfills.advance(now=NOW, choose=next_instant, decide=one_run)
            created += len(answer.runs)
            if answer.next_at is None:
                return created

    assert sum(await asyncio.gather(*map(work, nodes))) == len(jobs) * INSTANTS
    for job in jobs:
        found = await nodes[0].backfills.get(job.job_id, 1)
        assert found is not None
        assert (found.state, found.looked_at, found.created) == (BackfillState.DONE, INSTANTS, INSTANTS)
        runs = await nodes[0].runs.find(RunFilter(job_id=job.job_id), Page())
        assert [run.key.scheduled_at for run in runs] == [NOW - number * SECOND for number in range(1, INSTANTS + 1)]
        assert {(run.state, run.count) for run in runs} == {(RunState.PENDING, 1)}
        assert [run.lane for run in runs if run.lane is not None] == [0]


async def test_cancelled_backfill_creates_nothing_more(nodes: list[Store]) -> None:
    make = Maker(nodes[0])
    for number in range(20):
        job = await make.job()
        await nodes[0].backfills.begin(asked(job.job_id), now=NOW)
        step, cancelled = await asyncio.gather(
            nodes[1].backfills.advance(now=NOW, choose=next_instant, decide=one_run),
            nodes[2].backfills.cancel(job.job_id, 1, now=NOW),
        )
        assert cancelled is not None
        assert (cancelled.state, cancelled.created) == (BackfillState.CANCELLED, len(step.runs)), number
        after = await nodes[1].backfills.advance(now=NOW, choose=next_instant, decide=one_run)
        assert (after.backfill, after.runs, after.next_at) == (None, (), None)
