"""The contract's Backfills."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.store.factories import NOW, SECOND, Maker, new_run

from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger
from onbeat.store.contract import Store
from onbeat.store.values import (
    BackfillStep,
    DueBackfill,
    FirePlan,
    JobChange,
    Mark,
    MarkCut,
    NewBackfill,
    NewRun,
    Page,
    Recorded,
    RunFilter,
    StoredBackfill,
    StoredJob,
)

FIRST = NOW - 100 * SECOND


def asked(job: StoredJob, **changes: object) -> NewBackfill:
    new = NewBackfill(job.job_id, FIRST, NOW, BackfillOrder.OLDEST, rate_per_s=2, most=10, instants=100)
    return replace(new, **changes)


async def begun(store: Store, job: StoredJob) -> StoredBackfill:
    found = await store.backfills.begin(asked(job), now=NOW)
    assert found is not None
    return found


async def marked(store: Store, make: Maker, *marks: Mark) -> StoredJob:
    job = await make.job()
    await store.fires.record_due(
        now=NOW, limit=10, decide=lambda due: FirePlan(next_fire_at=due.due_at + SECOND, marks=marks)
    )
    return job


def past_run(scheduled_at: int, **changes: object) -> NewRun:
    return new_run(scheduled_at, **({"trigger": Trigger.BACKFILL, "ready_at": NOW} | changes))


async def advance(store: Store, step: BackfillStep, *, looked_at: Sequence[int] = ()) -> list[Recorded | None]:
    seen: list[Recorded | None] = []

    def decide(_due: DueBackfill, looked: Sequence[tuple[int, Recorded | None]]) -> BackfillStep:
        seen.extend(found for _, found in looked)
        return step

    await store.backfills.advance(now=NOW, choose=lambda _due: tuple(looked_at), decide=decide)
    return seen


async def test_a_backfill_begins_once_at_a_time_and_is_numbered_by_job(store: Store, make: Maker) -> None:
    job, other = await make.job(), await make.job()
    first = await begun(store, job)
    assert first == StoredBackfill(
        job.job_id, 1, FIRST, NOW, BackfillOrder.OLDEST, 2, 10, 100, 0, 0, FIRST, NOW, BackfillState.RUNNING, None,
        NOW, NOW, None,
    )  # fmt: skip
    assert await store.backfills.begin(asked(job), now=NOW) is None
    assert (await begun(store, other)).number == 1
    cancelled = await store.backfills.cancel(job.job_id, 1, now=NOW + 5)
    assert cancelled == replace(first, state=BackfillState.CANCELLED, ended_at=NOW + 5)
    assert await store.backfills.cancel(job.job_id, 1, now=NOW + 9) == cancelled
    second = await begun(store, job)
    assert second.number == 2
    assert await store.backfills.find(job.job_id) == [second, cancelled]
    assert await store.backfills.get(job.job_id, 1) == cancelled
    assert await store.backfills.get(job.job_id, 3) is None
    assert await store.backfills.cancel(job.job_id, 3, now=NOW) is None


async def test_runs_and_progress_are_one_transaction(store: Store, make: Maker) -> None:
    job = await make.job()
    await begun(store, job)
    step = BackfillStep(
        FIRST + 6, NOW, NOW + SECOND, looked_at=5, runs=(past_run(FIRST), past_run(FIRST + 5, lane=None))
    )
    assert await advance(store, step, looked_at=[FIRST, FIRST + 5]) == [None, None]
    found = await store.backfills.get(job.job_id, 1)
    assert found is not None
    assert (found.left_from, found.next_at, found.looked_at, found.created) == (FIRST + 6, NOW + SECOND, 5, 2)
    runs = await store.runs.find(RunFilter(job_id=job.job_id), Page())
    assert [(run.key.scheduled_at, run.trigger, run.state, run.lane) for run in runs] == [
        (FIRST + 5, "backfill", RunState.PENDING, None),
        (FIRST, "backfill", RunState.PENDING, 0),
    ]
    assert await advance(store, step) == []  # not due yet
    assert await store.backfills.get(job.job_id, 1) == found


async def test_the_earliest_due_backfill_goes_first_and_the_next_moment_is_told(store: Store, make: Maker) -> None:
    job = await make.job()
    await begun(store, job)
    idle = await store.backfills.advance(now=NOW - 1, choose=lambda _due: (), decide=lambda _due, _looked: _none())
    assert (idle.backfill, idle.runs, idle.next_at) == (None, (), NOW)
    done = BackfillStep(NOW, NOW, NOW, state=BackfillState.DONE)
    answer = await store.backfills.advance(now=NOW, choose=lambda _due: (), decide=lambda _due, _looked: done)
    assert answer.backfill is not None
    assert (answer.backfill.state, answer.backfill.ended_at, answer.next_at) == (BackfillState.DONE, NOW, None)


def _none() -> BackfillStep:
    raise AssertionError("nothing is due")


@pytest.mark.parametrize("where", ["choose", "decide"])
async def test_a_backfill_that_cannot_be_decided_is_cancelled_with_the_reason(
    store: Store, make: Maker, where: str
) -> None:
    job = await make.job()
    await begun(store, job)

    def fail(name: str) -> None:
        if name == where:
            raise ValueError("unreadable")

    await store.backfills.advance(
        now=NOW,
        choose=lambda _due: fail("choose") or (),  # type: ignore[func-returns-value]
        decide=lambda _due, _looked: fail("decide") or _none(),  # type: ignore[func-returns-value]
    )
    found = await store.backfills.get(job.job_id, 1)
    assert found is not None
    assert (found.state, found.reason, found.ended_at) == (BackfillState.CANCELLED, "unreadable", NOW)


async def test_look_up_tells_runs_marks_and_nothing(store: Store, make: Maker) -> None:
    overlap = Mark(FIRST + 30, FIRST + 30, 1, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by=FIRST)
    missed = Mark(FIRST + 40, FIRST + 60, 3, RunState.MISSED)
    job = await marked(store, make, overlap, missed)
    await make.runs(job, past_run(FIRST))
    instants = [FIRST, FIRST + 10, FIRST + 30, FIRST + 40, FIRST + 55, FIRST + 60, FIRST + 61]
    found = await store.backfills.look_up(job.job_id, instants)
    kept = Recorded(missed, job.version, job.definition)
    assert found == [Recorded(), None, Recorded(overlap, job.version, job.definition), kept, kept, kept, None]
    await store.leases.cancel(RunKey(job.job_id, FIRST), now=NOW)
    assert await store.backfills.look_up(job.job_id, [FIRST]) == [Recorded()]


async def test_a_mark_is_cut_and_the_runs_stand_in_the_gaps(store: Store, make: Maker) -> None:
    job = await marked(store, make, Mark(FIRST, FIRST + 40, 5, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by=7))
    await begun(store, job)
    rest = (
        Mark(FIRST, FIRST, 1, RunState.SKIPPED, SkipReason.OVERLAP, 7),
        Mark(FIRST + 20, FIRST + 30, 2, RunState.SKIPPED, SkipReason.OVERLAP, 7),
    )
    runs = (past_run(FIRST + 10), past_run(FIRST + 40, lane=None))
    await advance(store, BackfillStep(NOW, NOW, NOW, runs=runs, cuts=(MarkCut(FIRST, rest),)))
    found = await store.runs.find(RunFilter(job_id=job.job_id), Page())
    assert [(run.key.scheduled_at - FIRST, run.until, run.count, run.state, run.blocked_by) for run in found] == [
        (40, None, 1, RunState.PENDING, None),
        (20, FIRST + 30, 2, RunState.SKIPPED, 7),
        (10, None, 1, RunState.PENDING, None),
        (0, None, 1, RunState.SKIPPED, 7),
    ]


async def test_a_mark_without_rest_is_gone(store: Store, make: Maker) -> None:
    job = await marked(store, make, Mark(FIRST, FIRST, 1, RunState.MISSED))
    await begun(store, job)
    await advance(store, BackfillStep(NOW, NOW, NOW, runs=(past_run(FIRST),), cuts=(MarkCut(FIRST, ()),)))
    (run,) = await store.runs.find(RunFilter(job_id=job.job_id), Page())
    assert (run.key.scheduled_at, run.state) == (FIRST, RunState.PENDING)


async def test_backfills_go_with_their_deleted_job(store: Store, make: Maker) -> None:
    job = await make.job()
    await begun(store, job)
    await store.jobs.change(
        job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED, next_fire_at=None)
    )
    await store.runs.prune(ended_before=NOW + SECOND, limit=10)
    assert await store.backfills.get(job.job_id, 1) is None
