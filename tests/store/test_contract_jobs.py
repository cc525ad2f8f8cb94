"""The contract of Jobs."""

from __future__ import annotations

import pytest
from tests.store.factories import FAILURE, NOW, SECOND, Maker, fail, new_job, new_run

from onbeat.domain.errors import KeyTaken
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.contract import Store
from onbeat.store.values import JobChange, JobFilter, Mark, Page, RunFilter, StoredJob

LATER = NOW + 60 * SECOND


async def change(store: Store, job: StoredJob, change: JobChange, *, now: int = LATER) -> StoredJob:
    changed = await store.jobs.change(job.job_id, now=now, decide=lambda _before: change)
    assert changed is not None
    return changed


async def test_created_job_is_read_back_as_it_was_written(store: Store) -> None:
    job = new_job(key="nightly", tags=("a", "ü"), name="Nächtlich", max_running=3)
    (created,) = await store.jobs.create([job], now=NOW)
    assert created is not None
    assert created == await store.jobs.get(job.job_id) == await store.jobs.get_by_key("default", "nightly")
    assert (created.version, created.created_at, created.updated_at) == (1, NOW, NOW)
    assert (created.tags, created.name, created.next_fire_at) == (("a", "ü"), "Nächtlich", NOW)


async def test_create_answers_each_job_in_order_and_none_for_a_taken_key(store: Store) -> None:
    await store.jobs.create([new_job(key="taken")], now=NOW)
    jobs = [new_job(key="taken"), new_job(key="new"), new_job(key="new"), new_job(key="taken", namespace="other")]
    created = await store.jobs.create(jobs, now=NOW)
    assert [job and job.job_id for job in created] == [None, jobs[1].job_id, None, jobs[3].job_id]
    assert await store.jobs.get(jobs[0].job_id) is None
    assert await store.jobs.get(jobs[2].job_id) is None
    assert (await store.counts()).jobs_by_state == {"active": 3}


async def test_a_taken_job_id_writes_nothing_for_that_job(store: Store, make: Maker) -> None:
    job = await make.job()
    deleted = await change(store, await make.job(), JobChange(state=JobState.DELETED, next_fire_at=None))
    other = new_job()
    jobs = [new_job(job_id=job.job_id, key="k"), new_job(job_id=deleted.job_id), other]
    created = await store.jobs.create(jobs, now=NOW)
    assert [stored and stored.job_id for stored in created] == [None, None, other.job_id]
    assert (await store.jobs.get(job.job_id), await store.jobs.get(deleted.job_id)) == (job, deleted)
    assert await store.jobs.get_by_key("default", "k") is None


async def test_job_without_next_fire_has_no_clock(store: Store, make: Maker) -> None:
    await make.job(next_fire_at=None)
    assert await store.fires.next_due_at() is None


async def test_unknown_job_is_none(store: Store) -> None:
    assert await store.jobs.get(5) is None
    assert await store.jobs.get_by_key("default", "nobody") is None
    assert await store.jobs.change(5, now=NOW, decide=lambda _job: JobChange(name="x")) is None


async def test_deleted_job_is_kept_but_holds_no_key_and_is_not_listed(store: Store, make: Maker) -> None:
    job = await make.job(key="k")
    deleted = await change(store, job, JobChange(state=JobState.DELETED, reason="gone"))
    assert (deleted.state, deleted.key, deleted.next_fire_at) == (JobState.DELETED, None, None)
    assert await store.jobs.get(job.job_id) == deleted
    assert await store.jobs.get_by_key("default", "k") is None
    assert await store.jobs.find(JobFilter(), Page()) == []
    assert (await store.jobs.create([new_job(key="k")], now=NOW))[0] is not None


async def test_find_pages_newest_first_without_gap_or_repeat(store: Store, make: Maker) -> None:
    expected = [await make.job(now=NOW + number // 3) for number in range(10)]
    expected.sort(key=lambda job: (job.created_at, job.job_id), reverse=True)
    found: list[StoredJob] = []
    after: tuple[int, ...] | None = None
    while page := await store.jobs.find(JobFilter(), Page(limit=3, after=after)):
        found += page
        after = (page[-1].created_at, page[-1].job_id)
        await make.job(now=NOW + 99)  # a job that is made between two pages is newer than the cursor
    assert found == expected


async def test_find_narrows_by_namespace_state_tag_and_text(store: Store, make: Maker) -> None:
    invoices = await make.job(name="Send Invoices", tags=("billing", "eu"), key="inv-1")
    other = await make.job(name="ÄRGER", namespace="other", tags=("billing",))
    paused = await make.job(name="Reports", state=JobState.PAUSED, key="monthly-REPORT")

    async def names(where: JobFilter) -> set[int]:
        return {job.job_id for job in await store.jobs.find(where, Page())}

    assert await names(JobFilter(namespace="default")) == {invoices.job_id, paused.job_id}
    assert await names(JobFilter(state=JobState.PAUSED)) == {paused.job_id}
    assert await names(JobFilter(namespace="default", state=JobState.PAUSED)) == {paused.job_id}
    assert await names(JobFilter(tag="billing")) == {invoices.job_id, other.job_id}
    assert await names(JobFilter(tag="bill")) == set()
    assert await names(JobFilter(text="INVOICE")) == {invoices.job_id}
    assert await names(JobFilter(text="ärg")) == {other.job_id}
    assert await names(JobFilter(text="monthly-report")) == {paused.job_id}
    assert await names(JobFilter(text="%")) == set()
    assert await names(JobFilter(namespace="other", text="inv")) == set()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Hauptstraße", "STRASSE"),
        ("HAUPTSTRASSE", "straße"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("οδυσσεύς", "ΎΣ"),
        ("İstanbul", "i̇stan"),
        ("Привет", "ПРИВЕТ"),
        ("ﬁnance", "FIN"),
        ("Kelvin", "k"),
        ("Ǆ", "ǆ"),
        ("Ꭰ", "ꭰ"),
        ("請求書", "求"),
        ("50% off_\\", "% OFF_\\"),
    ],
)
async def test_text_is_found_in_any_case_of_any_language(store: Store, make: Maker, name: str, text: str) -> None:
    job = await make.job(name=name)
    assert [found.job_id for found in await store.jobs.find(JobFilter(text=text), Page())] == [job.job_id]
    keyed = await make.job(name="other", key=name)
    assert {found.job_id for found in await store.jobs.find(JobFilter(text=text), Page())} == {
        job.job_id,
        keyed.job_id,
    }
    await change(store, job, JobChange(name="another"))
    assert [found.job_id for found in await store.jobs.find(JobFilter(text=text), Page())] == [keyed.job_id]
    await change(store, keyed, JobChange(key="another"))
    assert await store.jobs.find(JobFilter(text=text), Page()) == []


@pytest.mark.parametrize("tag", ['say "hi"', "back\\slash", "ü", "%", "a\tb", "é", "[]", "{1}", "'"])
async def test_tag_is_found_as_it_was_written(store: Store, make: Maker, tag: str) -> None:
    job = await make.job(tags=("first", tag))
    await make.job(tags=(f"{tag}x", "e\u0301"))
    assert [found.job_id for found in await store.jobs.find(JobFilter(tag=tag), Page())] == [job.job_id]


async def test_change_leaves_what_is_none_and_raises_the_version(store: Store, make: Maker) -> None:
    job = await make.job(key="k", tags=("a",))
    changed = await change(store, job, JobChange(name="New name"))
    assert (changed.name, changed.key, changed.tags, changed.definition) == ("New name", "k", ("a",), job.definition)
    assert (changed.version, changed.updated_at, changed.next_fire_at) == (2, LATER, NOW)
    assert changed == await store.jobs.get(job.job_id)


async def test_change_without_raising_the_version_keeps_it(store: Store, make: Maker) -> None:
    job = await make.job()
    assert (await change(store, job, JobChange(name="n", raises_version=False))).version == 1


async def test_decide_that_returns_none_writes_nothing(store: Store, make: Maker) -> None:
    job = await make.job()
    assert await store.jobs.change(job.job_id, now=LATER, decide=lambda _job: None) == job
    assert await store.jobs.get(job.job_id) == job


async def test_exception_of_decide_reaches_the_caller_and_leaves_nothing(store: Store, make: Maker) -> None:
    job = await make.job()

    def refuse(_job: StoredJob) -> JobChange:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.jobs.change(job.job_id, now=LATER, decide=refuse)
    assert await store.jobs.get(job.job_id) == job


async def test_taken_key_raises_and_changes_nothing(store: Store, make: Maker) -> None:
    await make.job(key="taken")
    job = await make.job(key="mine")
    mark = Mark(NOW, NOW, 1, RunState.SKIPPED, SkipReason.PAUSED)
    with pytest.raises(KeyTaken):
        await change(store, job, JobChange(key="taken", marks=(mark,)))
    assert await store.jobs.get(job.job_id) == job
    assert (await change(store, job, JobChange(key="mine", name="same key"))).key == "mine"


async def test_pause_and_resume_write_state_reason_times_and_clock(store: Store, make: Maker) -> None:
    job = await make.job()
    paused = await change(
        store,
        job,
        JobChange(
            state=JobState.PAUSED, reason="holidays", paused_at=LATER, paused_until=LATER + SECOND, next_fire_at=None
        ),
    )
    assert (paused.reason, paused.paused_at, paused.paused_until) == ("holidays", LATER, LATER + SECOND)
    assert paused.next_fire_at is None
    assert await store.fires.next_due_at() is None
    resumed = await change(store, job, JobChange(state=JobState.ACTIVE, next_fire_at=LATER + 9))
    assert (resumed.reason, resumed.paused_at, resumed.paused_until, resumed.next_fire_at) == (
        None,
        None,
        None,
        LATER + 9,
    )


async def test_job_that_is_not_active_keeps_no_clock(store: Store, make: Maker) -> None:
    job = await make.job()
    await change(store, job, JobChange(state=JobState.PAUSED))
    assert await store.fires.next_due_at() is None


async def test_marks_of_a_change_are_recorded_as_ended_runs(store: Store, make: Maker) -> None:
    job = await make.job()
    mark = Mark(NOW, NOW + 9 * SECOND, 10, RunState.SKIPPED, SkipReason.PAUSED)
    await change(store, job, JobChange(marks=(mark,)))
    view = await make.view((await store.runs.find(RunFilter(), Page()))[0].key)
    assert (view.state, view.reason, view.count, view.until) == (RunState.SKIPPED, "paused", 10, NOW + 9 * SECOND)
    assert view.finished_at == LATER


async def test_change_cancels_pending_runs_and_asks_running_ones_to_stop(store: Store, make: Maker) -> None:
    job = await make.job(max_running=3)
    pending = await make.pending(job, NOW)
    waiting = await make.waiting(job, NOW + SECOND)
    running, token = await make.running(job, NOW + 2 * SECOND, lane=1)
    await change(store, job, JobChange(state=JobState.DELETED, cancels_pending=True, cancels_running=True))
    assert (await make.view(pending)).state is RunState.CANCELLED
    assert (await make.view(waiting)).state is RunState.CANCELLED
    assert (await make.view(running)).cancel_requested
    assert await store.leases.cancel(pending, now=LATER) is RunState.CANCELLED
    await make.finish(running, token, decide=fail())


async def test_recorded_run_keeps_the_definition_of_its_version(store: Store, make: Maker) -> None:
    job = await make.job(max_running=3)
    await make.pending(job, NOW)
    await change(store, job, JobChange(name="only the name"))
    await change(store, job, JobChange(definition='{"version": "second"}', max_running=3))
    await make.pending(job, NOW + SECOND, lane=1)
    await change(store, job, JobChange(definition='{"version": "third"}', max_running=3))
    first, second = await make.claim_one(now=LATER), await make.claim_one(now=LATER)
    assert first is not None
    assert second is not None
    assert (first.job_version, first.definition) == (1, job.definition)
    assert (second.job_version, second.definition) == (3, '{"version": "second"}')
    judge = fail()
    await make.finish(first.key, first.token, FAILURE, decide=judge)
    assert judge.seen[0][1] == job.definition


async def test_raising_max_running_gives_waiting_runs_lanes(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.running(job, NOW)
    waiting = [await make.waiting(job, NOW + number * SECOND) for number in (1, 2, 3)]
    await change(store, job, JobChange(definition='{"n": 3}', max_running=3))
    assert [(await make.view(key)).lane for key in waiting] == [1, 2, None]


async def test_lowering_max_running_stops_nobody_and_starts_nobody(store: Store, make: Maker) -> None:
    job = await make.job(max_running=3)
    held = [await make.running(job, NOW + lane, lane=lane) for lane in range(3)]
    waiting = await make.waiting(job, NOW + 10)
    await change(store, job, JobChange(definition='{"n": 1}', max_running=1))
    for key, token in held[:2]:
        assert (await make.view(key)).state is RunState.RUNNING
        await make.finish(key, token)
        assert (await make.view(waiting)).lane is None
    await make.finish(*held[2])
    assert (await make.view(waiting)).lane == 0


async def test_paused_job_holds_its_pending_runs_back_until_it_is_resumed(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.pending(job)
    await change(store, job, JobChange(state=JobState.PAUSED))
    assert await store.leases.next_ready_at(queue=None, now=NOW) is None
    assert await make.claim_one(now=LATER) is None
    await change(store, job, JobChange(state=JobState.ACTIVE))
    claimed = await make.claim_one(now=LATER)
    assert claimed is not None
    assert claimed.key == key


async def test_run_recorded_while_the_job_is_paused_is_held_back_too(store: Store, make: Maker) -> None:
    job = await make.job(state=JobState.PAUSED)
    await make.runs(job, new_run())
    assert await make.claim_one() is None


async def test_completed_job_still_runs_what_it_recorded(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.pending(job)
    await change(store, job, JobChange(state=JobState.COMPLETED))
    assert await make.claim_one() is not None


async def test_counts_follow_states_and_live_runs(store: Store, make: Maker) -> None:
    job = await make.job(max_running=2)
    paused = await make.job(state=JobState.PAUSED)
    await make.pending(job, NOW)
    await make.running(job, NOW + 1, lane=1)
    await make.waiting(job, NOW + 2)
    counts = await store.counts()
    assert counts.jobs_by_state == {"active": 1, "paused": 1}
    assert (counts.pending, counts.running, counts.oldest_ready_at, counts.next_due_at) == (2, 1, NOW, NOW)
    await change(store, paused, JobChange(state=JobState.ACTIVE))
    assert (await store.counts()).jobs_by_state == {"active": 2}
