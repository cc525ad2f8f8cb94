"""The contract of Runs."""

from __future__ import annotations

import msgspec
from tests.store.factories import FAILURE, NOW, SECOND, Maker, fail, new_lease, outcome, retry

from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind, Response
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.contract import Store
from onbeat.store.values import FirePlan, JobChange, Mark, Page, RunFilter, RunView, StoredJob

HOUR = 3_600 * SECOND


async def mark(make: Maker, job: StoredJob, *marks: Mark) -> None:
    await make.store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(marks=marks))


async def read_all(store: Store, where: RunFilter, *, limit: int) -> list[RunView]:
    found: list[RunView] = []
    after: tuple[int, ...] | None = None
    while page := await store.runs.find(where, Page(limit=limit, after=after)):
        found += page
        after = (page[-1].key.scheduled_at, page[-1].key.job_id)
    return found


async def test_unknown_run_is_none_and_has_no_attempts(store: Store, make: Maker) -> None:
    job = await make.job()
    assert await store.runs.get(RunKey(job.job_id, NOW)) is None
    assert await store.runs.attempts(RunKey(job.job_id, NOW)) == []


async def test_instant_inside_a_collapsed_mark_shows_that_mark(store: Store, make: Maker) -> None:
    job = await make.job()
    missed = Mark(NOW, NOW + 60 * SECOND, 61, RunState.MISSED)
    paused = Mark(NOW + 100 * SECOND, NOW + 200 * SECOND, 11, RunState.SKIPPED, SkipReason.PAUSED)
    await mark(make, job, missed, paused)
    for instant in (NOW, NOW + 30 * SECOND, NOW + 60 * SECOND):
        view = await make.view(RunKey(job.job_id, instant))
        assert (view.key.scheduled_at, view.state, view.count, view.until) == (
            NOW,
            RunState.MISSED,
            61,
            NOW + 60 * SECOND,
        )
    assert (await make.view(RunKey(job.job_id, NOW + 150 * SECOND))).reason == "paused"
    for instant in (NOW - 1, NOW + 61 * SECOND, NOW + 201 * SECOND):
        assert await store.runs.get(RunKey(job.job_id, instant)) is None
    other = await make.job()
    assert await store.runs.get(RunKey(other.job_id, NOW + SECOND)) is None


async def test_cancel_of_an_instant_inside_a_mark_answers_its_state(store: Store, make: Maker) -> None:
    job = await make.job()
    await mark(make, job, Mark(NOW, NOW + 60 * SECOND, 61, RunState.MISSED))
    assert await store.leases.cancel(RunKey(job.job_id, NOW + SECOND), now=NOW) is RunState.MISSED
    assert await store.leases.revive(RunKey(job.job_id, NOW + SECOND), now=NOW, late_after=NOW) is RunState.MISSED


async def test_live_and_ended_runs_are_listed_together_newest_first(store: Store, make: Maker) -> None:
    job, other = await make.job(max_running=3), await make.job()
    keys = [
        await make.ended(job, NOW),
        await make.ended(other, NOW),
        await make.pending(job, NOW + 2),
        await make.ended(other, NOW + 1, state=RunState.FAILED),
        (await make.running(other, NOW + 3))[0],
    ]
    found = await store.runs.find(RunFilter(), Page())
    assert [view.key for view in found] == sorted(keys, key=lambda key: (key.scheduled_at, key.job_id), reverse=True)


async def test_pages_are_stable_while_new_runs_come_in(store: Store, make: Maker) -> None:
    jobs = [await make.job() for _ in range(3)]
    keys = {await make.ended(job, NOW + instant) for job in jobs for instant in range(5)}
    keys |= {await make.pending(job, NOW + 5) for job in jobs}
    page = await store.runs.find(RunFilter(), Page(limit=4))
    await make.ended(await make.job(), NOW + 99)
    after = (page[-1].key.scheduled_at, page[-1].key.job_id)
    rest = await store.runs.find(RunFilter(), Page(limit=100, after=after))
    seen = [view.key for view in page + rest]
    assert len(seen) == len(set(seen)) == 18
    assert set(seen) == keys
    for limit in (1, 2, 7):
        assert len(await read_all(store, RunFilter(), limit=limit)) == 19
        assert len(await read_all(store, RunFilter(job_id=jobs[1].job_id), limit=limit)) == 6


async def test_cursor_of_a_list_over_all_jobs_serves_a_list_of_one_job(store: Store, make: Maker) -> None:
    low, high = await make.job(), await make.job()
    assert low.job_id < high.job_id
    await make.ended(low, NOW)
    await make.ended(high, NOW)
    after = (NOW, high.job_id)
    assert len(await store.runs.find(RunFilter(job_id=low.job_id), Page(after=after))) == 1
    assert await store.runs.find(RunFilter(job_id=high.job_id), Page(after=after)) == []


async def test_find_narrows_by_job_state_late_and_time(store: Store, make: Maker) -> None:
    job, other = await make.job(max_running=9), await make.job(max_running=9)
    good = await make.ended(job, NOW)
    bad = await make.ended(job, NOW + 1, state=RunState.FAILED)
    pending = await make.pending(job, NOW + 2)
    late, token = await make.running(other, NOW + 3, late_after=NOW - 1)
    await make.finish(late, token)
    late_live, _ = await make.running(other, NOW + 4, late_after=NOW - 1)

    async def keys(where: RunFilter) -> list[RunKey]:
        return [view.key for view in await store.runs.find(where, Page())]

    assert await keys(RunFilter(job_id=job.job_id)) == [pending, bad, good]
    assert await keys(RunFilter(states=frozenset({RunState.FAILED}))) == [bad]
    assert await keys(RunFilter(states=frozenset({RunState.FAILED, RunState.PENDING}))) == [pending, bad]
    assert await keys(RunFilter(states=frozenset({RunState.SUCCEEDED}))) == [late, good]
    assert await keys(RunFilter(job_id=job.job_id, states=frozenset({RunState.FAILED, RunState.MISSED}))) == [bad]
    assert await keys(RunFilter(late=True)) == [late_live, late]
    assert await keys(RunFilter(late=False)) == [pending, bad, good]
    assert await keys(RunFilter(job_id=other.job_id, late=True)) == [late_live, late]
    assert await keys(RunFilter(late=True, states=frozenset({RunState.SUCCEEDED}))) == [late]
    assert await keys(RunFilter(scheduled_from=NOW + 1, scheduled_to=NOW + 3)) == [pending, bad]
    assert await keys(RunFilter(job_id=job.job_id, scheduled_from=NOW + 1, scheduled_to=NOW + 2)) == [bad]
    assert await keys(RunFilter(job_id=77)) == []


async def test_prune_deletes_the_oldest_up_to_its_limit_with_their_attempts(store: Store, make: Maker) -> None:
    job = await make.job()
    failed = await make.ended(job, NOW, state=RunState.FAILED)
    kept, token = await make.running(job, NOW + 1)
    second = await make.ended(await make.job(), NOW + 2)
    await make.finish(kept, token, FAILURE, decide=fail(), now=NOW + HOUR)
    assert await store.runs.prune(ended_before=NOW, limit=10) == 0
    assert await store.runs.prune(ended_before=NOW + 1, limit=1) == 1
    assert await store.runs.get(failed) is None
    assert await store.runs.attempts(failed) == []
    assert await store.runs.get(second) is not None
    assert await store.runs.prune(ended_before=NOW + 1, limit=10) == 1
    assert len(await store.runs.attempts(kept)) == 1
    assert await store.runs.prune(ended_before=NOW + 1, limit=10) == 0


async def test_prune_keeps_the_definition_that_a_live_run_uses(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.pending(job)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(definition='"new"', max_running=1))
    await store.runs.prune(ended_before=NOW + HOUR, limit=10)
    claimed = await make.claim_one()
    assert claimed is not None
    assert (claimed.key, claimed.definition) == (key, job.definition)


async def test_deleted_jobs_go_with_their_last_run(store: Store, make: Maker) -> None:
    with_runs, bare, active = await make.job(), await make.job(), await make.job()
    await make.pending(with_runs)
    for job in (with_runs, bare):
        await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED))
    await store.runs.prune(ended_before=NOW + 1, limit=10)
    assert await store.jobs.get(bare.job_id) is None
    assert await store.jobs.get(with_runs.job_id) is not None
    await store.leases.cancel(RunKey(with_runs.job_id, NOW), now=NOW)
    await store.runs.prune(ended_before=NOW + 1, limit=10)
    assert await store.jobs.get(with_runs.job_id) is None
    assert await store.jobs.get(active.job_id) is not None
    assert (await store.counts()).jobs_by_state == {"active": 1}


async def test_every_instant_is_accounted_for_once_over_marks_and_rows(store: Store, make: Maker) -> None:
    job = await make.job()
    marks = (Mark(NOW - 10 * SECOND, NOW - SECOND, 10, RunState.MISSED),)

    def plan(next_fire_at: int) -> FirePlan:
        return FirePlan(next_fire_at=next_fire_at, marks=marks)

    await make.fire(plan(NOW + SECOND))
    await make.fire(plan(NOW + 2 * SECOND), now=NOW + SECOND)
    found = await store.runs.find(RunFilter(job_id=job.job_id), Page())
    assert [(view.key.scheduled_at, view.count) for view in found] == [(NOW - 10 * SECOND, 10)]


async def test_view_of_a_waiting_retry_shows_its_last_attempt(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job(), lease=new_lease(worker="w9"))
    await make.finish(key, token, FAILURE, decide=retry(NOW + 5))
    view = await make.view(key)
    assert (view.outcome, view.status, view.error, view.duration_us) == (
        "http_status",
        503,
        "the receiver answered 503",
        1_500,
    )
    assert (view.worker, view.attempt_started_at, view.finished_at) == ("w9", NOW, None)


async def test_revivable_runs_are_found_oldest_first_page_by_page(store: Store, make: Maker) -> None:
    job, other = await make.job(), await make.job()
    keys = [
        await make.ended(which, NOW + number, state=state)
        for number, state in enumerate((RunState.FAILED, RunState.TIMED_OUT, RunState.CANCELLED, RunState.UNKNOWN))
        for which in (job, other)
    ]
    await make.ended(job, NOW + 10)
    await make.pending(job, NOW + 11)
    await mark(make, job, Mark(NOW - 60 * SECOND, NOW - SECOND, 60, RunState.MISSED))
    keys.sort(key=lambda key: (key.scheduled_at, key.job_id))

    async def walk(where: RunFilter, *, limit: int) -> list[RunKey]:
        found: list[RunKey] = []
        after: tuple[int, ...] | None = None
        while page := await store.runs.find_revivable(where, Page(limit=limit, after=after)):
            found += [view.key for view in page]
            after = (found[-1].scheduled_at, found[-1].job_id)
        return found

    for limit in (1, 3, 100):
        assert await walk(RunFilter(), limit=limit) == keys
        for which in (job, other):
            of_job = [key for key in keys if key.job_id == which.job_id]
            assert await walk(RunFilter(job_id=which.job_id), limit=limit) == of_job
    failed = frozenset({RunState.FAILED, RunState.SUCCEEDED})
    assert await walk(RunFilter(states=failed), limit=9) == keys[:2]
    assert await walk(RunFilter(scheduled_from=NOW + 1, scheduled_to=NOW + 3), limit=9) == keys[2:6]
    assert await walk(RunFilter(late=True), limit=9) == []
    of_the_second = RunFilter(job_id=keys[1].job_id)
    behind_the_first = await store.runs.find_revivable(of_the_second, Page(after=(NOW, keys[0].job_id)))
    assert behind_the_first[0].key == keys[1]


async def test_the_last_response_of_a_run_is_that_of_its_last_attempt(store: Store, make: Maker) -> None:
    job = await make.job(max_running=9)

    async def attempts_of(instant: int, *outcomes: Outcome) -> RunKey:
        lane = instant - NOW
        key, token = await make.running(job, instant, lane=lane)
        for number, seen in enumerate(outcomes, start=1):
            is_last = number == len(outcomes)
            await make.finish(key, token, seen, decide=fail() if is_last else retry(NOW))
            if not is_last:
                leased = await make.claim_one()
                assert leased is not None
                token = leased.token
        return key

    first, second = (
        outcome(OutcomeKind.HTTP_STATUS, status=500, response=Response(body=text)) for text in (b"a", b"b")
    )
    refused = outcome(OutcomeKind.REFUSED)
    answered = await attempts_of(NOW, first, second)
    unanswered = await attempts_of(NOW + 1, first, refused)
    succeeded = await attempts_of(NOW + 4, first, outcome(response=Response(body=b"good")))
    waiting, token = await make.running(job, NOW + 2, lane=2)
    await make.finish(waiting, token, second, decide=retry(NOW + HOUR))
    fresh = await make.pending(job, NOW + 3, lane=3)
    found = await store.runs.last_responses([answered, unanswered, succeeded, waiting, fresh, RunKey(1, 1)])
    assert {key: msgspec.json.decode(text, type=Response).body for key, text in found.items()} == {
        answered: b"b",
        succeeded: b"good",
        waiting: b"b",
    }
    await store.leases.revive(answered, now=NOW, late_after=NOW)
    assert set(await store.runs.last_responses([answered])) == {answered}
