"""The contract of Blackouts, and of marks that grow."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.store.factories import NOW, SECOND, Maker, new_run

from onbeat.domain.ids import RunKey
from onbeat.domain.states import RunState, SkipReason
from onbeat.store.contract import Store
from onbeat.store.values import FirePlan, JobChange, Mark, Page, RunFilter, StoredBlackout, StoredJob


async def test_blackout_is_read_back_and_other_rules_raise_its_version(store: Store) -> None:
    first = await store.blackouts.put("default", "b", rules="{}", now=NOW)
    assert first == StoredBlackout("default", "b", 1, "{}", NOW, NOW)
    assert await store.blackouts.put("default", "b", rules="{}", now=NOW + 5) == first
    second = await store.blackouts.put("default", "b", rules="[]", now=NOW + 9)
    assert second == replace(first, version=2, rules="[]", updated_at=NOW + 9)
    assert await store.blackouts.get("default", "b") == second
    assert await store.blackouts.get("elsewhere", "b") is None
    await store.blackouts.put("a", "z", rules="{}", now=NOW)
    assert [(found.namespace, found.name) for found in await store.blackouts.find()] == [("a", "z"), ("default", "b")]
    assert await store.blackouts.delete("default", "b")
    assert not await store.blackouts.delete("default", "b")


def dark(second: int, *, last: int | None = None) -> Mark:
    until = second if last is None else last
    return Mark(NOW + second * SECOND, NOW + until * SECOND, until - second + 1, RunState.SKIPPED, SkipReason.BLACKOUT)


async def fire(make: Maker, second: int, *marks: Mark, runs: Any = (), next_second: int | None = None) -> None:
    following = NOW + (second + 1 if next_second is None else next_second) * SECOND
    await make.fire(FirePlan(next_fire_at=following, marks=marks, runs=runs), now=NOW + second * SECOND)


async def rows(make: Maker, job: StoredJob) -> list[tuple[int, int, int, str]]:
    found = await make.store.runs.find(RunFilter(job_id=job.job_id), Page())
    return sorted(
        (
            (run.key.scheduled_at - NOW) // SECOND,
            ((run.until or run.key.scheduled_at) - NOW) // SECOND,
            run.count,
            run.reason or run.state.value,
        )
        for run in found
    )


async def test_marks_of_one_blackout_become_one_row(make: Maker) -> None:
    job = await make.job()
    for second in range(5):
        await fire(make, second, dark(second))
    await fire(make, 5, dark(5, last=9), next_second=10)
    assert await rows(make, job) == [(0, 9, 10, "blackout")]
    for second in (0, 4, 9):
        view = await make.view(RunKey(job.job_id, NOW + second * SECOND))
        assert (view.count, view.state) == (10, RunState.SKIPPED)


async def test_a_run_in_between_begins_another_row(make: Maker) -> None:
    job = await make.job()
    await fire(make, 0, dark(0))
    await make.pending(job, NOW + SECOND // 2, lane=None)
    await fire(make, 1, dark(1))
    await fire(make, 2, dark(2))
    await fire(make, 3, runs=(new_run(NOW + 3 * SECOND, lane=0),))
    await fire(make, 4, dark(4))
    dark_rows = [row[:3] for row in await rows(make, job) if row[3] == "blackout"]
    assert dark_rows == [(0, 0, 1), (1, 2, 2), (4, 4, 1)]


async def test_an_ended_run_in_between_begins_another_row(make: Maker) -> None:
    job = await make.job()
    await fire(make, 0, dark(0))
    await make.ended(job, NOW + SECOND)
    await fire(make, 2, dark(2))
    assert [row[:3] for row in await rows(make, job)] == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]


async def test_another_reason_or_version_begins_another_row(make: Maker) -> None:
    job = await make.job()
    missed = Mark(NOW, NOW, 1, RunState.MISSED)
    await fire(make, 0, missed)
    await fire(make, 1, dark(1))
    await make.store.jobs.change(
        job.job_id, now=NOW, decide=lambda _job: JobChange(definition='{"version": "next"}', max_running=1)
    )
    await fire(make, 2, dark(2))
    await fire(make, 3, replace(dark(3), reason=SkipReason.OVERLAP))
    await fire(make, 4, dark(4))
    assert [row[:3] for row in await rows(make, job)] == [(second, second, 1) for second in range(5)]


async def test_marks_of_one_plan_keep_their_order(make: Maker) -> None:
    job = await make.job()
    await fire(make, 0, dark(0))
    missed = Mark(NOW + 3 * SECOND, NOW + 4 * SECOND, 2, RunState.MISSED)
    await fire(make, 9, dark(1, last=2), missed, dark(5, last=9), next_second=10)
    found = [row[:3] for row in await rows(make, job)]
    assert sum(count for _first, _last, count in found) == 10
    assert (3, 4, 2) in found
    assert (5, 9, 5) in found
    assert (0, 2, 3) in found


async def test_grown_row_is_pruned_by_its_last_end(make: Maker) -> None:
    job = await make.job()
    await fire(make, 0, dark(0))
    await fire(make, 9, dark(9), next_second=20)
    assert await make.store.runs.prune(ended_before=NOW + 5 * SECOND, limit=10) == 0
    assert await make.store.runs.prune(ended_before=NOW + 10 * SECOND, limit=10) == 1
    assert await rows(make, job) == []
