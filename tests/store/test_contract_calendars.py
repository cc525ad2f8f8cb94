"""The contract of Calendars: versions, users, and clocks that are planned again."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.store.factories import NOW, SECOND, Maker, new_job

from onbeat.domain.states import JobState
from onbeat.store.contract import Store
from onbeat.store.values import KEEP, JobChange, KeepClock, Replanned, StoredCalendar, StoredJob

NOTHING = Replanned(jobs=0, parked=(), more=False)


def never(job: StoredJob) -> int | KeepClock | None:
    raise AssertionError(f"asked for the clock of {job.job_id}")


async def put(
    store: Store, name: str = "c", rules: str = "{}", *, namespace: str = "default", now: int = NOW
) -> StoredCalendar:
    return await store.calendars.put(namespace, name, rules=rules, now=now)


async def test_calendar_is_read_back_and_other_rules_raise_its_version(store: Store) -> None:
    first = await put(store, rules='{"weekdays": [0]}')
    assert first == StoredCalendar("default", "c", 1, '{"weekdays": [0]}', NOW, NOW)
    assert await put(store, rules='{"weekdays": [0]}', now=NOW + 5) == first
    second = await put(store, rules="{}", now=NOW + 9)
    assert second == replace(first, version=2, rules="{}", updated_at=NOW + 9)
    assert await store.calendars.get("default", "c") == second
    assert await store.calendars.get("elsewhere", "c") is None


async def test_all_calendars_are_found_by_namespace_and_name(store: Store) -> None:
    for namespace, name in (("b", "x"), ("a", "y"), ("a", "x")):
        await put(store, name, namespace=namespace)
    found = [(calendar.namespace, calendar.name) for calendar in await store.calendars.find()]
    assert found == [("a", "x"), ("a", "y"), ("b", "x")]


async def test_calendar_is_deleted_only_while_no_job_uses_it(store: Store, make: Maker) -> None:
    await put(store)
    job = await make.job(calendars=("c", "other"))
    elsewhere = await make.job(namespace="elsewhere", calendars=("c",))
    assert await store.calendars.delete("default", "c") == 1
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(name="keeps its uses"))
    assert await store.calendars.delete("default", "c") == 1
    await store.jobs.change(
        job.job_id, now=NOW, decide=lambda _job: JobChange(definition="{}", max_running=1, calendars=("other",))
    )
    assert await store.calendars.delete("default", "c") == 0
    assert await store.calendars.delete("default", "c") is None
    assert await store.jobs.get(elsewhere.job_id) is not None


async def test_deleted_job_uses_no_calendar(store: Store, make: Maker) -> None:
    await put(store)
    job = await make.job(calendars=("c",))
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED))
    assert await store.calendars.delete("default", "c") == 0


async def test_job_that_was_not_written_uses_no_calendar(store: Store) -> None:
    await put(store)
    await store.jobs.create([new_job(key="k"), new_job(key="k", calendars=("c",))], now=NOW)
    assert await store.calendars.delete("default", "c") == 0


async def test_jobs_of_a_changed_calendar_are_planned_again_in_batches(store: Store, make: Maker) -> None:
    jobs = [await make.job(calendars=("c", "d")) for _ in range(5)]
    stranger = await make.job(calendars=("d",))
    await put(store)
    asked: list[int] = []

    def decide(job: StoredJob) -> int:
        asked.append(job.job_id)
        return NOW + 7 * SECOND

    batches = [await store.calendars.replan(now=NOW + SECOND, limit=2, revision=1, decide=decide) for _ in range(3)]
    assert [(batch.jobs, batch.more) for batch in batches] == [(2, True), (2, True), (1, False)]
    assert asked == sorted(job.job_id for job in jobs)
    assert await store.calendars.replan(now=NOW, limit=2, revision=1, decide=never) == NOTHING
    for job in jobs:
        assert await make.reread(job) == replace(job, next_fire_at=NOW + 7 * SECOND)
    assert await make.reread(stranger) == stranger


async def test_same_rules_again_plan_nothing(store: Store, make: Maker) -> None:
    await make.job(calendars=("c",))
    await put(store)
    await store.calendars.replan(now=NOW, limit=10, revision=1, decide=lambda _job: KEEP)
    await put(store, now=NOW + SECOND)
    assert await store.calendars.replan(now=NOW, limit=10, revision=1, decide=never) == NOTHING


async def test_whoever_knows_former_rules_plans_nothing(store: Store, make: Maker) -> None:
    job = await make.job(calendars=("c",))
    await put(store)
    known = await store.almanac_revision()
    await put(store, rules="[1]")
    assert await store.calendars.replan(now=NOW, limit=10, revision=known, decide=never) == Replanned(0, (), True)
    assert await make.reread(job) == job
    done = await store.calendars.replan(now=NOW, limit=10, revision=known + 1, decide=lambda _job: KEEP)
    assert (done.jobs, done.more) == (1, False)


async def test_every_change_of_a_calendar_or_a_blackout_raises_the_revision_and_nothing_else_does(store: Store) -> None:
    seen = [await store.almanac_revision()]

    async def note() -> None:
        seen.append(await store.almanac_revision())

    for noun in (store.calendars, store.blackouts):
        await noun.put("default", "c", rules="{}", now=NOW)
        await note()
        await noun.put("default", "c", rules="{}", now=NOW)
        await note()
        await noun.put("default", "c", rules="[1]", now=NOW)
        await note()
        await noun.delete("default", "nobody")
        await note()
        await noun.delete("default", "c")
        await note()
    assert [after - before for before, after in pairwise(seen)] == [1, 0, 1, 0, 1] * 2


async def test_a_calendar_that_is_in_use_keeps_the_revision(store: Store, make: Maker) -> None:
    await put(store)
    await make.job(calendars=("c",))
    before = await store.almanac_revision()
    assert await store.calendars.delete("default", "c") == 1
    assert await store.almanac_revision() == before


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.ERROR])
async def test_only_active_and_completed_jobs_are_asked(store: Store, make: Maker, state: JobState) -> None:
    job = await make.job(calendars=("c",), state=state)
    await put(store)
    assert (await store.calendars.replan(now=NOW, limit=10, revision=1, decide=never)).jobs == 1
    assert await make.reread(job) == job


async def test_clock_moves_starts_and_stops_with_the_state(store: Store, make: Maker) -> None:
    active = await make.job(calendars=("c",))
    kept = await make.job(calendars=("c",))
    done = await make.job(calendars=("c",), state=JobState.COMPLETED, next_fire_at=None)
    await put(store)
    answers: dict[int, int | KeepClock | None] = {
        active.job_id: None,
        kept.job_id: KEEP,
        done.job_id: NOW + SECOND,
    }
    await store.calendars.replan(now=NOW + 3, limit=10, revision=1, decide=lambda job: answers[job.job_id])
    assert await make.reread(kept) == kept
    assert await make.reread(active) == replace(active, state=JobState.COMPLETED, next_fire_at=None, updated_at=NOW + 3)
    assert await make.reread(done) == replace(
        done, state=JobState.ACTIVE, next_fire_at=NOW + SECOND, updated_at=NOW + 3
    )


async def test_job_over_which_the_decision_fails_is_parked_and_the_others_go_on(store: Store, make: Maker) -> None:
    bad, good = await make.job(calendars=("c",)), await make.job(calendars=("c",))
    await put(store)

    def decide(job: StoredJob) -> int:
        if job.job_id == bad.job_id:
            raise ValueError("there is no calendar of that name")
        return NOW + SECOND

    done = await store.calendars.replan(now=NOW, limit=10, revision=1, decide=decide)
    assert done.parked == ((bad.job_id, "there is no calendar of that name"),)
    parked = await make.reread(bad)
    assert (parked.state, parked.reason, parked.next_fire_at) == (
        JobState.ERROR,
        "there is no calendar of that name",
        None,
    )
    assert (await make.reread(good)).next_fire_at == NOW + SECOND
