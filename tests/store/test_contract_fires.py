"""The contract of Fires."""

from __future__ import annotations

import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Maker, new_lease, new_run

from onbeat.domain.errors import OnbeatError
from onbeat.domain.ids import RunKey
from onbeat.domain.recorded import Spans
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger
from onbeat.store.contract import Store
from onbeat.store.values import DueJob, FirePlan, JobChange, LaneHold, Mark, NewRun, Page, RunFilter, StoredJob

HOUR = 3_600 * SECOND


def plan(*runs: NewRun, **changes: object) -> FirePlan:
    return FirePlan(**{"next_fire_at": NOW + HOUR, "runs": runs, **changes})  # type: ignore[arg-type]


async def set_clock(store: Store, job: StoredJob, next_fire_at: int) -> None:
    """As a hand would that has the database: no service sets a clock back."""
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(next_fire_at=next_fire_at))


async def test_due_clocks_are_taken_earliest_first_up_to_the_limit(store: Store, make: Maker) -> None:
    late = await make.job(next_fire_at=NOW)
    early = await make.job(next_fire_at=NOW - 5)
    await make.job(next_fire_at=NOW + 1)
    seen: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.job.job_id)
        return plan()

    first = await store.fires.record_due(now=NOW, limit=1, decide=decide)
    assert (first.jobs, first.next_due_at) == (1, NOW)
    second = await store.fires.record_due(now=NOW, limit=5, decide=decide)
    assert (second.jobs, second.next_due_at) == (1, NOW + 1)
    assert seen == [early.job_id, late.job_id]
    assert (await store.fires.record_due(now=NOW, limit=5, decide=decide)).jobs == 0


async def test_decision_sees_job_holds_and_newest_waiting_run(store: Store, make: Maker) -> None:
    job = await make.job(max_running=2)
    await make.running(job, NOW - 9, lane=1)
    await make.pending(job, NOW - 8, lane=0, trigger=Trigger.MANUAL)
    await make.waiting(job, NOW - 7)
    await make.waiting(job, NOW - 6)
    await make.waiting(job, NOW - 5, trigger=Trigger.BACKFILL)
    (due,) = await make.due()
    assert due.job == job
    assert due.due_at == NOW
    assert due.holds == (
        LaneHold(0, NOW - 8, RunState.PENDING, Trigger.MANUAL, 0, NOW - 8),
        LaneHold(1, NOW - 9, RunState.RUNNING, Trigger.SCHEDULE, 1, NOW - 9),
    )
    assert due.waiting == NOW - 6


async def test_run_and_advance_of_the_clock_are_one(store: Store, make: Maker) -> None:
    job = await make.job()
    batch = await make.fire(plan(new_run()))
    assert (batch.jobs, batch.runs, batch.pending, batch.leased, batch.next_due_at) == (1, 1, 1, (), NOW + HOUR)
    view = await make.view(RunKey(job.job_id, NOW))
    assert (view.state, view.trigger, view.attempt, view.created_at) == (RunState.PENDING, Trigger.SCHEDULE, 0, NOW)
    assert (await make.reread(job)).next_fire_at == NOW + HOUR
    assert (await make.reread(job)).version == 1


async def test_run_born_with_a_lease_is_running_and_can_be_finished(store: Store, make: Maker) -> None:
    job = await make.job(key="k")
    lease = new_lease()
    batch = await make.fire(plan(new_run(lease=lease, payload='{"a": 1}', max_run_us=HOUR)))
    (leased,) = batch.leased
    assert leased.key == RunKey(job.job_id, NOW)
    assert (leased.token, leased.attempt, leased.lease_until) == (lease.token, 1, lease.until)
    assert (leased.granted_at, leased.deadline_at, leased.payload) == (NOW, NOW + HOUR, '{"a": 1}')
    assert (leased.namespace, leased.job_name, leased.job_key) == ("default", job.name, "k")
    assert (leased.definition, leased.job_version, leased.trigger) == (job.definition, 1, Trigger.SCHEDULE)
    assert batch.pending == 0
    view = await make.view(leased.key)
    assert (view.state, view.worker, view.started_at, view.lane) == (RunState.RUNNING, "worker-1", NOW, 0)
    await make.finish(leased.key, leased.token)
    assert (await make.view(leased.key)).state is RunState.SUCCEEDED


async def test_lease_never_outlives_the_deadline(store: Store, make: Maker) -> None:
    await make.job()
    batch = await make.fire(plan(new_run(lease=new_lease(until=NOW + LEASE_US), max_run_us=SECOND)))
    assert batch.leased[0].lease_until == NOW + SECOND


async def test_run_that_waits_for_a_lane_does_not_count_as_waiting_for_a_worker(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.running(job, NOW - 1)
    batch = await make.fire(plan(new_run(lane=None)))
    assert (batch.runs, batch.pending) == (1, 0)
    assert await make.claim_one() is None


async def test_recorded_fire_is_a_conflict_and_stays_as_it_is(store: Store, make: Maker) -> None:
    live, ended, other = [await make.job(max_running=2) for _ in range(3)]
    await make.pending(live, NOW, payload='"first"')
    await make.ended(ended, NOW)
    batch = await make.fire(plan(new_run(lane=1, lease=new_lease(), payload='"second"')))
    assert (batch.jobs, batch.runs, batch.conflicts) == (3, 1, 2)
    assert [run.key.job_id for run in batch.leased] == [other.job_id]
    claimed = await make.claim_one()
    assert claimed is not None
    assert claimed.payload == '"first"'
    assert (await make.view(RunKey(ended.job_id, NOW))).state is RunState.SUCCEEDED
    assert {(await make.reread(job)).next_fire_at for job in (live, ended, other)} == {NOW + HOUR}


async def test_run_in_line_behind_a_conflict_gets_the_lane_that_the_conflict_did_not_take(
    store: Store, make: Maker
) -> None:
    job = await make.job()
    await make.ended(job, NOW)
    batch = await make.fire(plan(new_run(), new_run(NOW + SECOND, lane=None)))
    assert (batch.runs, batch.conflicts, batch.pending) == (1, 1, 1)
    assert (await make.view(RunKey(job.job_id, NOW + SECOND))).lane == 0


async def test_instant_inside_a_collapsed_mark_is_a_conflict(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.fire(plan(marks=(Mark(NOW, NOW + 9 * SECOND, 10, RunState.MISSED),)))
    assert await make.runs(job, new_run(NOW + 5 * SECOND)) == []
    assert await make.runs(job, new_run(NOW + 9 * SECOND)) == []
    assert len(await make.runs(job, new_run(NOW + 10 * SECOND))) == 1


@pytest.mark.parametrize("recorded_as", ["pending", "ended", "mark", "range"])
async def test_range_with_an_instant_that_has_a_record_is_decided_again_without_it(
    recorded_as: str, store: Store, make: Maker
) -> None:
    job = await make.job(next_fire_at=NOW)
    second, last = NOW + SECOND, NOW + 2 * SECOND
    span = (second, second)
    match recorded_as:
        case "pending":
            await make.pending(job, second)
        case "ended":
            await make.ended(job, second)
        case "mark":
            await make.fire(plan(marks=(Mark(second, second, 1, RunState.MISSED),)))
        case _:
            span = (NOW - SECOND, second)
            await make.fire(plan(marks=(Mark(*span, 3, RunState.MISSED),)))
    await set_clock(store, job, NOW)
    seen: list[Spans] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.recorded)
        marks = [Mark(NOW, last, 3, RunState.MISSED)]
        if due.recorded:
            marks = [Mark(at, at, 1, RunState.MISSED) for at in (NOW, last)]
        return plan(marks=tuple(marks))

    batch = await store.fires.record_due(now=last, limit=10, decide=decide)
    assert (seen[0], seen[-1], len(set(seen))) == ((), (span,), 2)
    assert batch.marks == (2 if span[0] == second else 1)
    found = await store.runs.find(RunFilter(job_id=job.job_id), Page())
    spans = sorted((run.key.scheduled_at, run.until or run.key.scheduled_at) for run in found)
    assert spans == ([(NOW, NOW), span, (last, last)] if span[0] == second else [span, (last, last)])
    assert (await make.reread(job)).next_fire_at == NOW + HOUR


async def test_run_by_hand_is_in_no_way_of_a_range(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.finish(*await make.running(job, NOW + 1, trigger=Trigger.MANUAL))
    await make.pending(job, NOW + 2, trigger=Trigger.MANUAL)
    await make.fire(plan(marks=(Mark(NOW, NOW + 2 * SECOND, 3, RunState.MISSED),)))
    assert (await make.view(RunKey(job.job_id, NOW))).count == 3


async def test_range_marked_by_a_change_is_decided_again_without_what_is_recorded(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.ended(job, NOW)
    last = NOW + 2 * SECOND

    def decide(found: StoredJob) -> JobChange:
        first, count = (NOW + SECOND, 2) if found.recorded else (NOW, 3)
        marks = (Mark(first, last, count, RunState.SKIPPED, SkipReason.PAUSED),)
        return JobChange(state=JobState.COMPLETED, next_fire_at=None, marks=marks)

    await store.jobs.change(job.job_id, now=last, decide=decide)
    assert (await make.view(RunKey(job.job_id, NOW))).state is RunState.SUCCEEDED
    assert (await make.view(RunKey(job.job_id, NOW + SECOND))).count == 2


async def test_marks_become_ended_runs(store: Store, make: Maker) -> None:
    job = await make.job()
    batch = await make.fire(
        plan(
            marks=(
                Mark(NOW - 9 * SECOND, NOW - SECOND, 9, RunState.MISSED),
                Mark(NOW, NOW, 1, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by=NOW - HOUR),
            )
        )
    )
    assert (batch.marks, batch.runs) == (2, 0)
    missed = await make.view(RunKey(job.job_id, NOW - 9 * SECOND))
    assert (missed.state, missed.count, missed.until, missed.reason) == (RunState.MISSED, 9, NOW - SECOND, None)
    skipped = await make.view(RunKey(job.job_id, NOW))
    assert (skipped.state, skipped.reason, skipped.blocked_by) == (RunState.SKIPPED, "overlap", NOW - HOUR)
    assert (skipped.count, skipped.until) == (1, None)


async def test_replaced_run_ends_as_skipped_and_its_lane_is_taken_over(store: Store, make: Maker) -> None:
    job = await make.job()
    before = await make.pending(job, NOW - SECOND)
    replaced = Mark(NOW - SECOND, NOW - SECOND, 1, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by=NOW)
    await make.fire(plan(new_run(lane=0), replaced=(replaced,)))
    view = await make.view(before)
    assert (view.state, view.reason, view.blocked_by) == (RunState.SKIPPED, "overlap", NOW)
    assert (await make.view(RunKey(job.job_id, NOW))).lane == 0


async def test_replaced_run_that_has_started_stays(store: Store, make: Maker) -> None:
    job = await make.job(max_running=2)
    retrying = await make.retrying(job, NOW - SECOND)
    await make.fire(plan(replaced=(Mark(NOW - SECOND, NOW - SECOND, 1, RunState.SKIPPED, SkipReason.OVERLAP),)))
    assert (await make.view(retrying)).state is RunState.PENDING


async def test_replaced_run_that_was_given_back_unstarted_ends(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job, NOW - SECOND)
    await store.leases.release([(key, token)], now=NOW)
    replaced = Mark(NOW - SECOND, NOW - SECOND, 1, RunState.SKIPPED, SkipReason.OVERLAP)
    batch = await make.fire(plan(new_run(lane=0), replaced=(replaced,)))
    assert (batch.runs, batch.parked) == (1, ())
    assert (await make.view(key)).state is RunState.SKIPPED


async def test_displaced_run_gives_its_lane_away_and_waits_again(store: Store, make: Maker) -> None:
    job = await make.job()
    recovering = await make.pending(job, NOW - HOUR, trigger=Trigger.CATCH_UP, ready_at=NOW + HOUR)
    await make.fire(plan(new_run(lane=0, displaces=NOW - HOUR)))
    assert ((await make.view(recovering)).lane, (await make.view(RunKey(job.job_id, NOW))).lane) == (None, 0)
    claimed = await make.claim_one()
    assert claimed is not None
    await make.finish(claimed.key, claimed.token)
    after = await make.view(recovering)
    assert (after.lane, after.ready_at) == (0, NOW + HOUR)


@pytest.mark.order_over_slots
async def test_latest_clocks_are_taken_before_the_earliest(store: Store, make: Maker) -> None:
    jobs = [await make.job(next_fire_at=NOW - age) for age in (50, 40, 30, 20, 10)]
    taken: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        taken.append(due.job.job_id)
        return plan(next_fire_at=NOW + HOUR)

    batch = await store.fires.record_due(now=NOW, limit=3, latest=2, decide=decide)
    assert (batch.jobs, batch.next_due_at) == (3, NOW - 40)
    assert taken == [jobs[4].job_id, jobs[3].job_id, jobs[0].job_id]
    taken.clear()
    assert (await store.fires.record_due(now=NOW, limit=10, latest=8, decide=decide)).jobs == 2
    assert sorted(taken) == sorted([jobs[1].job_id, jobs[2].job_id])


async def test_in_any_order_every_clock_that_is_due_is_taken_once(store: Store, make: Maker) -> None:
    jobs = [await make.job(next_fire_at=NOW - age * SECOND) for age in range(60)]
    later = await make.job(next_fire_at=NOW + 1)
    taken: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        taken.append(due.job.job_id)
        return plan(next_fire_at=NOW + HOUR)

    while (await store.fires.record_due(now=NOW, limit=7, decide=decide, in_any_order=True)).jobs:
        pass
    assert sorted(taken) == sorted(job.job_id for job in jobs)
    assert await store.fires.next_due_at() == NOW + 1
    assert later.job_id not in taken


async def test_recovery_places_count_caught_up_runs_that_have_not_begun_by_second(store: Store, make: Maker) -> None:
    job = await make.job(max_running=9)
    for number in range(3):
        ready_at = NOW + number // 2 * SECOND + number
        await make.pending(job, NOW - number, trigger=Trigger.CATCH_UP, ready_at=ready_at, lane=number)
    await make.running(job, NOW - 10, trigger=Trigger.CATCH_UP, lane=3)
    await make.pending(job, NOW - 11, lane=4)
    assert sorted(await store.fires.recovery_places()) == [(NOW // SECOND, 2), (NOW // SECOND + 1, 1)]
    back = await make.ended(await make.job(), state=RunState.FAILED)
    await store.leases.revive(back, now=NOW, ready_at=NOW + SECOND, late_after=NOW)
    assert sorted(await store.fires.recovery_places()) == [(NOW // SECOND, 2), (NOW // SECOND + 1, 2)]


async def test_cancelled_running_run_is_asked_to_stop(store: Store, make: Maker) -> None:
    job = await make.job()
    key, _token = await make.running(job, NOW - SECOND)
    batch = await make.fire(plan(new_run(lane=None), cancelled=(NOW - SECOND,)))
    assert batch.cancelled == (key,)
    assert (await make.view(key)).cancel_requested


async def test_cancelled_run_that_waits_for_its_next_attempt_ends_and_passes_its_lane_on(
    store: Store, make: Maker
) -> None:
    job = await make.job()
    retrying = await make.retrying(job, NOW - SECOND, ready_at=NOW + HOUR)
    batch = await make.fire(plan(new_run(lane=None), cancelled=(NOW - SECOND,)))
    assert (await make.view(retrying)).state is RunState.CANCELLED
    assert (await make.view(RunKey(job.job_id, NOW))).lane == 0
    assert (batch.cancelled, batch.pending) == ((), 1)


async def test_plan_without_next_fire_removes_the_clock_and_writes_the_state(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.fire(plan(new_run(), next_fire_at=None, state=JobState.COMPLETED, reason="every instant has passed"))
    after = await make.reread(job)
    assert (after.state, after.reason, after.next_fire_at) == (JobState.COMPLETED, "every instant has passed", None)
    assert await make.claim_one() is not None


async def test_decision_that_raises_parks_its_job_and_the_others_go_on(store: Store, make: Maker) -> None:
    good, bad, silent = [await make.job(next_fire_at=NOW - 3 + number) for number in range(3)]

    def decide(due: DueJob) -> FirePlan:
        if due.job.job_id == bad.job_id:
            raise ValueError("the stored zone is unknown: \ud800")
        if due.job.job_id == silent.job_id:
            raise KeyError
        return plan(new_run(due.due_at))

    batch = await store.fires.record_due(now=NOW, limit=10, decide=decide)
    assert batch.runs == 1
    assert [job_id for job_id, _reason in batch.parked] == [bad.job_id, silent.job_id]
    parked = await make.reread(bad)
    assert (parked.state, parked.next_fire_at) == (JobState.ERROR, None)
    assert parked.reason == "the stored zone is unknown: ?"
    assert (await make.reread(silent)).reason == "KeyError"
    assert (await make.reread(good)).state is JobState.ACTIVE
    assert (await store.fires.record_due(now=NOW, limit=10, decide=decide)).parked == ()


@pytest.mark.parametrize("next_fire_at", [NOW, NOW - HOUR])
async def test_clock_that_would_not_advance_parks_its_job(store: Store, make: Maker, next_fire_at: int) -> None:
    job = await make.job()
    batch = await make.fire(plan(new_run(), next_fire_at=next_fire_at))
    assert (batch.runs, len(batch.parked)) == (0, 1)
    assert (await make.reread(job)).state is JobState.ERROR


async def test_plan_that_breaks_the_lane_fence_parks_its_job_only(store: Store, make: Maker) -> None:
    good, bad = await make.job(), await make.job()
    await make.running(bad, NOW - SECOND, lane=0)
    batch = await make.fire(plan(new_run(lane=0)))
    assert (batch.runs, [job_id for job_id, _ in batch.parked]) == (1, [bad.job_id])
    assert await store.runs.get(RunKey(bad.job_id, NOW)) is None
    assert (await make.view(RunKey(good.job_id, NOW))).state is RunState.PENDING


async def test_parked_job_can_be_repaired(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.fire(plan(next_fire_at=NOW - 1))
    await store.jobs.change(
        job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.ACTIVE, next_fire_at=NOW + 5)
    )
    assert (await make.fire(plan(new_run(NOW + 5)), now=NOW + 5)).runs == 1


async def test_insert_run_records_what_has_no_run_yet(store: Store, make: Maker) -> None:
    job = await make.job(max_running=3)
    await make.pending(job, NOW)
    manual = new_run(NOW + 1, trigger=Trigger.MANUAL, lane=1, payload='{"x": 1}', queue="reports")
    written = await make.runs(job, new_run(NOW, lane=2), manual)
    assert [view.key for view in written] == [RunKey(job.job_id, NOW + 1)]
    assert (written[0].trigger, written[0].queue, written[0].state) == (Trigger.MANUAL, "reports", RunState.PENDING)
    claimed = await make.claim_one(now=NOW + SECOND, queue="reports")
    assert claimed is not None
    assert claimed.payload == '{"x": 1}'


async def test_insert_run_leaves_an_ended_fire_alone(store: Store, make: Maker) -> None:
    job = await make.job()
    key = await make.ended(job)
    assert await make.runs(job, new_run()) == []
    assert (await make.view(key)).state is RunState.SUCCEEDED


async def test_insert_run_decides_from_the_same_lanes_with_due_at_now(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.running(job, NOW - SECOND)
    seen: list[DueJob] = []

    def decide(due: DueJob) -> tuple[NewRun, ...]:
        seen.append(due)
        return ()

    assert await store.fires.insert_run(job.job_id, now=NOW + 7, decide=decide) == []
    assert seen[0].due_at == NOW + 7
    assert [hold.scheduled_at for hold in seen[0].holds] == [NOW - SECOND]


async def test_insert_run_for_an_unknown_job_is_none(store: Store) -> None:
    assert await store.fires.insert_run(5, now=NOW, decide=lambda _due: (new_run(),)) is None


async def test_insert_run_that_breaks_the_fence_raises_and_writes_nothing(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.pending(job, NOW)
    with pytest.raises(OnbeatError):
        await make.runs(job, new_run(NOW + 1, lane=None), new_run(NOW + 2, lane=0))
    assert await store.runs.get(RunKey(job.job_id, NOW + 1)) is None


async def test_next_due_at_is_the_earliest_clock(store: Store, make: Maker) -> None:
    assert await store.fires.next_due_at() is None
    await make.job(next_fire_at=NOW + 5)
    await make.job(next_fire_at=NOW + 3)
    assert await store.fires.next_due_at() == NOW + 3


async def test_only_clocks_of_the_given_slots_are_taken(store: Store, make: Maker) -> None:
    jobs = [await make.job(next_fire_at=NOW - age) for age in (40, 30, 20, 10)]
    slot_of = {job.job_id: job.job_id % store.slots for job in jobs}
    assert len(set(slot_of.values())) == 4
    theirs = [slot_of[jobs[1].job_id], slot_of[jobs[3].job_id]]
    taken: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        taken.append(due.job.job_id)
        return plan()

    assert (await store.fires.record_due(now=NOW, limit=9, decide=decide, slots=())).jobs == 0
    batch = await store.fires.record_due(now=NOW, limit=1, decide=decide, slots=theirs)
    assert (batch.jobs, batch.next_due_at) == (1, NOW - 10)
    latest = await store.fires.record_due(now=NOW, limit=9, latest=8, decide=decide, slots=theirs)
    assert (latest.jobs, latest.next_due_at) == (1, NOW + HOUR)
    assert taken == [jobs[1].job_id, jobs[3].job_id]
    assert (await store.fires.record_due(now=NOW, limit=9, decide=decide)).jobs == 2


async def test_a_job_named_by_only_may_be_in_any_slot(store: Store, make: Maker) -> None:
    job = await make.job()
    foreign = [(job.job_id + 1) % store.slots]
    batch = await store.fires.record_due(now=NOW, limit=9, decide=lambda _due: plan(), only=job.job_id, slots=foreign)
    assert (batch.jobs, batch.next_due_at) == (1, None)


async def test_next_due_at_of_slots_is_the_earliest_clock_in_them(store: Store, make: Maker) -> None:
    jobs = [await make.job(next_fire_at=NOW + after) for after in (3, 5)]
    slots = [job.job_id % store.slots for job in jobs]
    assert await store.fires.next_due_at(slots=slots) == NOW + 3
    assert await store.fires.next_due_at(slots=slots[1:]) == NOW + 5
    assert await store.fires.next_due_at(slots=()) is None


async def test_pruning_does_not_reopen_a_fire(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.fire(plan(marks=(Mark(NOW, NOW, 1, RunState.MISSED),)))
    await store.runs.prune(ended_before=NOW + HOUR, limit=10)
    assert (await make.fire(plan(new_run()), now=NOW + 1)).jobs == 0
    assert (await make.reread(job)).next_fire_at == NOW + HOUR


async def test_many_jobs_of_mixed_fate_in_one_batch(store: Store, make: Maker) -> None:
    jobs = [await make.job(max_running=2) for _ in range(30)]
    for job in jobs[::3]:
        await make.pending(job, NOW)
    batch = await make.fire(plan(new_run(lane=1, lease=new_lease())))
    assert (batch.jobs, batch.runs, batch.conflicts, len(batch.leased)) == (30, 20, 10, 20)
    assert {run.key.job_id for run in batch.leased} == {job.job_id for job in jobs} - {job.job_id for job in jobs[::3]}
