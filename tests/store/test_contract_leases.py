"""The contract of Leases: claim, extend, permit, release."""

from __future__ import annotations

import asyncio

from tests.store.factories import FAILURE, LEASE_US, NOW, SECOND, Maker, new_lease, new_run, retry

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.store.contract import Store
from onbeat.store.values import EndRun, FinishResult, JobChange, LeaseStatus

OTHER = b"\x00" * 16


async def test_claim_takes_the_first_ready_runs_at_most_one_per_lease(store: Store, make: Maker) -> None:
    keys = [await make.pending(await make.job(), NOW - number) for number in range(4)]
    leases = [new_lease(worker=f"w{number}") for number in range(3)]
    claimed = await store.leases.claim(leases, now=NOW, queue=None)
    assert [run.key for run in claimed] == [keys[3], keys[2], keys[1]]
    assert [run.token for run in claimed] == [lease.token for lease in leases]
    assert (await make.view(keys[3])).worker == "w0"
    assert await store.leases.claim([], now=NOW, queue=None) == []


async def test_claimed_run_carries_what_a_delivery_needs(store: Store, make: Maker) -> None:
    job = await make.job(key="k")
    await make.pending(job, NOW - SECOND, payload='"p"', trigger=Trigger.MANUAL, max_run_us=100 * SECOND)
    claimed = await make.claim_one()
    assert claimed is not None
    assert (claimed.attempt, claimed.granted_at, claimed.lease_until) == (1, NOW, NOW + LEASE_US)
    assert (claimed.deadline_at, claimed.late_after) == (NOW + 100 * SECOND, NOW + 29 * SECOND)
    assert (claimed.namespace, claimed.job_name, claimed.job_key) == ("default", job.name, "k")
    assert (claimed.definition, claimed.payload, claimed.trigger) == (job.definition, '"p"', Trigger.MANUAL)
    view = await make.view(claimed.key)
    assert (view.state, view.started_at, view.attempt_started_at) == (RunState.RUNNING, NOW, NOW)
    assert (view.lease_until, view.deadline_at, view.late) == (NOW + LEASE_US, NOW + 100 * SECOND, False)


async def test_claim_passes_over_what_is_not_ready_without_lane_or_of_another_queue(store: Store, make: Maker) -> None:
    job = await make.job()
    await make.pending(job, NOW + 1)
    await make.waiting(job, NOW - 2)
    await make.pending(await make.job(), NOW - 3, queue="reports")
    assert await make.claim_one() is None
    assert await make.claim_one(queue="invoices") is None
    assert await make.claim_one(queue="reports") is not None
    assert await make.claim_one(now=NOW + 1) is not None


async def test_claimed_run_cannot_be_claimed_again(store: Store, make: Maker) -> None:
    await make.pending(await make.job())
    assert await make.claim_one() is not None
    assert await make.claim_one() is None


async def test_second_attempt_keeps_first_start_and_deadline(store: Store, make: Maker) -> None:
    key = await make.retrying(await make.job(), ready_at=NOW + SECOND)
    assert await make.claim_one() is None
    claimed = await make.claim_one(now=NOW + SECOND)
    assert claimed is not None
    assert (claimed.attempt, claimed.deadline_at) == (2, NOW + 86_400 * SECOND)
    view = await make.view(key)
    assert (view.started_at, view.attempt_started_at) == (NOW, NOW + SECOND)


async def test_claimed_lease_never_outlives_the_deadline(store: Store, make: Maker) -> None:
    await make.pending(await make.job(), max_run_us=SECOND)
    claimed = await make.claim_one()
    assert claimed is not None
    assert claimed.lease_until == NOW + SECOND


async def test_run_that_starts_after_grace_is_late(store: Store, make: Maker) -> None:
    key = await make.pending(await make.job(), NOW)
    claimed = await make.claim_one(now=NOW + 31 * SECOND)
    assert claimed is not None
    assert (await make.view(key)).late
    await make.finish(key, claimed.token, now=NOW + 32 * SECOND)
    assert (await make.view(key)).late


async def test_next_ready_at_is_the_earliest_of_the_queue(store: Store, make: Maker) -> None:
    assert await store.leases.next_ready_at(queue=None, now=NOW) is None
    await make.pending(await make.job(), NOW + 5)
    await make.pending(await make.job(), NOW + 3, queue="reports")
    await make.waiting(await make.job(), NOW + 1)
    assert await store.leases.next_ready_at(queue=None, now=NOW) == NOW + 5
    assert await store.leases.next_ready_at(queue="reports", now=NOW) == NOW + 3


async def test_heartbeat_extends_exactly_the_current_live_leases(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    gone, gone_token = await make.running(await make.job(), lease=new_lease(until=NOW + 1))
    until = NOW + 2 * LEASE_US
    answers = await store.leases.extend(
        [(key, token), (key, OTHER), (gone, gone_token), (RunKey(1, 1), token)], now=NOW + 2, until=until
    )
    assert answers == [LeaseStatus.LIVE, LeaseStatus.LEASE_LOST, LeaseStatus.LEASE_LOST, LeaseStatus.LEASE_LOST]
    assert (await make.view(key)).lease_until == until
    assert (await make.view(gone)).lease_until == NOW + 1


async def test_lease_is_live_up_to_and_with_its_last_moment(store: Store, make: Maker) -> None:
    held = await make.running(await make.job(), lease=new_lease(until=NOW + 5))
    assert await store.leases.extend([held], now=NOW + 5, until=NOW + 9) == [LeaseStatus.LIVE]


async def test_heartbeat_never_extends_beyond_the_deadline(store: Store, make: Maker) -> None:
    held = await make.running(await make.job(), max_run_us=40 * SECOND)
    await store.leases.extend([held], now=NOW, until=NOW + 60 * SECOND)
    assert (await make.view(held[0])).lease_until == NOW + 40 * SECOND


async def test_heartbeat_of_a_run_that_is_asked_to_stop_says_so_and_extends(store: Store, make: Maker) -> None:
    held = await make.running(await make.job())
    await store.leases.cancel(held[0], now=NOW)
    assert await store.leases.extend([held], now=NOW, until=NOW + 50 * SECOND) == [LeaseStatus.CANCEL]
    assert (await make.view(held[0])).lease_until == NOW + 50 * SECOND


async def test_permit_is_live_only_for_a_current_lease_of_an_active_job(store: Store, make: Maker) -> None:
    live = await make.running(await make.job())
    cancelled = await make.running(await make.job())
    await store.leases.cancel(cancelled[0], now=NOW)
    expired = await make.running(await make.job(), lease=new_lease(until=NOW + 1))
    held_back = []
    for state in (JobState.PAUSED, JobState.DELETED):
        job = await make.job()
        held_back.append(await make.running(job))
        await store.jobs.change(job.job_id, now=NOW, decide=lambda _job, state=state: JobChange(state=state))  # type: ignore[misc]
    answers = await store.leases.permit([live, (live[0], OTHER), cancelled, expired, *held_back], now=NOW + 2)
    assert answers == [
        LeaseStatus.LIVE,
        LeaseStatus.LEASE_LOST,
        LeaseStatus.CANCEL,
        LeaseStatus.LEASE_LOST,
        LeaseStatus.HELD_BACK,
        LeaseStatus.HELD_BACK,
    ]


async def test_permit_of_a_completed_one_shot_job_is_live(store: Store, make: Maker) -> None:
    job = await make.job()
    held = await make.running(job)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.COMPLETED))
    assert await store.leases.permit([held], now=NOW) == [LeaseStatus.LIVE]


async def test_released_run_is_claimable_at_once_and_its_attempt_does_not_count(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    assert await store.leases.release([(key, token), (key, OTHER), (RunKey(1, 1), token)], now=NOW + 1) == 1
    view = await make.view(key)
    assert (view.state, view.attempt, view.ready_at, view.lane) == (RunState.PENDING, 0, NOW + 1, 0)
    assert await store.runs.attempts(key) == []
    claimed = await make.claim_one(now=NOW + 1)
    assert claimed is not None
    assert claimed.attempt == 1
    assert claimed.token != token


async def test_worker_that_gave_a_lease_back_can_change_nothing_more(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job())
    await store.leases.release([(key, token)], now=NOW)
    assert await store.leases.release([(key, token)], now=NOW) == 0
    assert (await make.finish(key, token)).result is FinishResult.LEASE_LOST
    assert await store.leases.extend([(key, token)], now=NOW, until=NOW + 9) == [LeaseStatus.LEASE_LOST]
    assert (await make.view(key)).state is RunState.PENDING


async def test_released_run_that_was_asked_to_stop_ends_and_passes_its_lane_on(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job)
    waiting = await make.waiting(job, NOW + 1)
    await store.leases.cancel(key, now=NOW)
    assert await store.leases.release([(key, token)], now=NOW) == 1
    assert (await make.view(key)).state is RunState.CANCELLED
    assert (await make.view(waiting)).lane == 0


async def test_backlog_of_a_paused_job_is_not_in_the_way_of_others(store: Store, make: Maker) -> None:
    paused = await make.job(max_running=50)
    await make.runs(paused, *(new_run(NOW - 100 + lane, lane=lane) for lane in range(50)))
    await store.jobs.change(paused.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.PAUSED))
    key = await make.pending(await make.job(), NOW)
    claimed = await make.claim_one()
    assert claimed is not None
    assert claimed.key == key


async def test_retry_of_a_paused_job_waits_for_the_resume(store: Store, make: Maker) -> None:
    job = await make.job()
    key, token = await make.running(job)
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.PAUSED))
    await make.finish(key, token, FAILURE, decide=retry(NOW + 1))
    assert await make.claim_one(now=NOW + 1) is None
    await store.jobs.change(job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.ACTIVE))
    assert await make.claim_one(now=NOW + 1) is not None


async def test_two_claims_at_once_share_the_runs(store: Store, make: Maker) -> None:
    for _ in range(10):
        await make.pending(await make.job())
    answers = await asyncio.gather(
        *(store.leases.claim([new_lease() for _ in range(4)], now=NOW, queue=None) for _ in range(4))
    )
    keys = [run.key for claimed in answers for run in claimed]
    assert len(keys) == len(set(keys)) == 10


async def test_runs_beyond_their_end_are_counted_until_they_are_taken_back(store: Store, make: Maker) -> None:
    key, token = await make.running(await make.job(), max_run_us=40 * SECOND)
    await make.running(await make.job())
    await store.leases.extend([(key, token)], now=NOW, until=NOW + 60 * SECOND)
    assert [await store.leases.count_overdue(now=NOW + at * SECOND) for at in (31, 40, 41)] == [0, 0, 1]
    await store.leases.expire(now=NOW + 41 * SECOND, limit=10, decide=lambda _run, _text: EndRun(RunState.TIMED_OUT))
    assert await store.leases.count_overdue(now=NOW + 41 * SECOND) == 0
