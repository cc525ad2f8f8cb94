"""The contract's Pauses, and what Jobs does because of them."""

from __future__ import annotations

import pytest
from tests.store.factories import NOW, SECOND, Maker

from onbeat.domain.states import JobState
from onbeat.store.contract import Store
from onbeat.store.values import JobChange, Pause

LATER = NOW + 60 * SECOND


def pause(tag: str = "", **changes: object) -> Pause:
    return Pause(**({"namespace": "default", "tag": tag, "note": "holidays", "paused_at": NOW} | changes))  # type: ignore[arg-type]


async def test_a_pause_is_kept_until_it_is_dropped(store: Store) -> None:
    await store.pauses.begin(pause("billing", until=LATER, cancels=True))
    await store.pauses.note_spread("default", "billing")
    (kept,) = await store.pauses.find()
    assert kept == pause("billing", until=LATER, cancels=True, is_spread=True)
    assert await store.pauses.end("default", "billing", ended_at=LATER)
    assert not await store.pauses.end("default", "billing", ended_at=LATER + 1)
    assert (await store.pauses.find())[0].ended_at == LATER
    await store.pauses.drop("default", "billing")
    assert await store.pauses.find() == []


async def test_a_pause_begun_again_keeps_its_beginning_and_is_to_be_spread_anew(store: Store) -> None:
    await store.pauses.begin(pause())
    await store.pauses.note_spread("default", "")
    await store.pauses.end("default", "", ended_at=LATER)
    await store.pauses.begin(pause(note="again", paused_at=LATER))
    await store.pauses.drop("default", "")
    (kept,) = await store.pauses.find()
    assert (kept.note, kept.paused_at, kept.is_spread, kept.ended_at) == ("again", NOW, False, None)


@pytest.mark.parametrize(
    ("scope", "namespace", "tags", "is_covered"),
    [
        ("", "default", (), True),
        ("", "default", ("a",), True),
        ("", "other", ("a",), False),
        ("a", "default", ("b", "a"), True),
        ("a", "default", ("ab",), False),
        ("a", "default", (), False),
        ("a", "other", ("a",), False),
    ],
)
async def test_a_job_that_a_pause_covers_is_created_paused(
    store: Store, make: Maker, scope: str, namespace: str, tags: tuple[str, ...], is_covered: bool
) -> None:
    await store.pauses.begin(pause(scope))
    job = await make.job(namespace=namespace, tags=tags, now=LATER)
    assert job == await make.reread(job)
    if is_covered:
        assert (job.state, job.reason, job.next_fire_at) == (JobState.PAUSED, "holidays", None)
        assert (job.paused_at, job.paused_by) == (LATER, scope)
        assert await store.pauses.jobs_held_by("default", scope, limit=10) == [job.job_id]
    else:
        assert (job.state, job.paused_by, job.next_fire_at) == (JobState.ACTIVE, None, NOW)


async def test_a_pause_that_has_ended_covers_nothing(store: Store, make: Maker) -> None:
    await store.pauses.begin(pause())
    await store.pauses.end("default", "", ended_at=NOW)
    assert (await make.job()).state is JobState.ACTIVE


async def test_a_change_that_would_make_a_covered_job_active_goes_over_to_the_pause(store: Store, make: Maker) -> None:
    job = await make.job(tags=("a",))
    await store.jobs.change(
        job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)
    )
    await store.pauses.begin(pause("a"))
    after = await store.jobs.change(
        job.job_id, now=LATER, decide=lambda _job: JobChange(state=JobState.ACTIVE, next_fire_at=LATER + SECOND)
    )
    assert after is not None
    assert (after.state, after.paused_by, after.paused_at, after.next_fire_at) == (JobState.PAUSED, "a", LATER, None)


async def test_a_job_that_gets_a_paused_tag_is_paused_from_before_the_instant_that_its_clock_shows(
    store: Store, make: Maker
) -> None:
    job = await make.job(next_fire_at=NOW)
    pending = await make.pending(job, NOW - SECOND)
    await store.pauses.begin(pause("a"))
    after = await store.jobs.change(job.job_id, now=LATER, decide=lambda _job: JobChange(tags=("a",)))
    assert after is not None
    assert (after.state, after.paused_by, after.paused_at) == (JobState.PAUSED, "a", NOW - 1)
    assert await make.claim_one(now=LATER) is None
    assert (await make.view(pending)).attempt == 0


async def test_pauses_that_are_over_are_found_earliest_first(store: Store, make: Maker) -> None:
    untils = (LATER + 1, LATER, LATER - 1)
    jobs = [await make.job() for _ in untils]
    for job, until in zip(jobs, untils, strict=True):
        change = JobChange(state=JobState.PAUSED, paused_at=NOW, paused_until=until, next_fire_at=None)
        await store.jobs.change(job.job_id, now=NOW, decide=lambda _job, change=change: change)  # type: ignore[misc]
    assert await store.pauses.jobs_over(now=LATER, limit=10) == [jobs[2].job_id, jobs[1].job_id]
    assert await store.pauses.jobs_over(now=LATER, limit=1) == [jobs[2].job_id]


async def test_a_completed_job_that_a_calendar_gives_new_instants_goes_over_to_the_pause(
    store: Store, make: Maker
) -> None:
    await store.calendars.put("default", "feasts", rules="[]", now=NOW)
    job = await make.job(state=JobState.COMPLETED, next_fire_at=None, calendars=("feasts",))
    await store.pauses.begin(pause())
    await store.calendars.put("default", "feasts", rules="[1]", now=NOW)
    await store.calendars.replan(now=LATER, limit=10, revision=2, decide=lambda _job: LATER + SECOND)
    after = await make.reread(job)
    assert (after.state, after.paused_by, after.paused_at, after.next_fire_at) == (JobState.PAUSED, "", LATER, None)
