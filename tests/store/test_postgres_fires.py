"""Several nodes fire the same jobs, while people and workers change what the jobs' fires depend on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest
from tests.store.factories import LEASE_US, NOW, SECOND, Maker, never, new_job, new_lease, new_run, outcome
from tests.support.postgres import Databases

from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.clock_floor import ClockFloor
from onbeat.store.postgres.floors import FULL_LOOK_AFTER_US, SLACK_US
from onbeat.store.values import (
    AfterFinish,
    DueJob,
    Finish,
    FiredBatch,
    FirePlan,
    JobChange,
    Mark,
    NewRun,
    Page,
    RunFilter,
    StoredJob,
)

HOUR = 3_600 * SECOND
NODES = 3
ROUNDS = 100
LOOKS_ON_FOR_S = 0.5
WAITS_WITHIN_S = 30


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A database that lasts as long as the test."""
    made = await databases.create()
    yield made
    await databases.drop(made)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[Store]]:
    """Several stores on one database, each with connections of its own."""
    opened = [await open_store(url) for _ in range(NODES)]
    yield opened
    for store in opened:
        await store.close()


@pytest.fixture
def make(nodes: list[Store]) -> Maker:
    """Makes jobs and runs in any state."""
    return Maker(nodes[0])


async def create(store: Store, count: int, **changes: object) -> list[StoredJob]:
    made = await store.jobs.create([new_job(**changes) for _ in range(count)], now=NOW)
    return [job for job in made if job is not None]


async def pause(store: Store, job: StoredJob) -> StoredJob:
    """Pauses a job. Answer: what was decided from."""
    seen: list[StoredJob] = []

    def decide(found: StoredJob) -> JobChange:
        seen.append(found)
        return JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)

    await store.jobs.change(job.job_id, now=NOW, decide=decide)
    return seen[-1]


def in_free_lane(due: DueJob, scheduled_at: int, **changes: object) -> NewRun:
    """A run in the lowest free lane, or in line where there is none (of one)."""
    return new_run(scheduled_at, lane=None if due.holds else 0, **changes)


def fire_once(due: DueJob) -> FirePlan:
    return FirePlan(next_fire_at=due.due_at + HOUR, runs=(in_free_lane(due, due.due_at),))


async def fire(store: Store) -> FiredBatch:
    return await store.fires.record_due(now=NOW, limit=100, decide=fire_once)


async def insert_all(store: Store, jobs: Sequence[StoredJob]) -> None:
    """A manual run of each job, in a lane or in line."""
    for job in jobs:
        await store.fires.insert_run(
            job.job_id, now=NOW, decide=lambda due: (in_free_lane(due, NOW + 1, trigger=Trigger.MANUAL),)
        )


async def until_somebody_waits(url: str, *, number: int = 1) -> None:
    """Until so many transactions wait for locks that others hold."""
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(WAITS_WITHIN_S):
            while await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < number:
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def live_runs(url: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch("SELECT * FROM live_runs ORDER BY slot, job_id, scheduled_at")
    finally:
        await connection.close()


async def test_nodes_that_race_record_every_instant_once(nodes: list[Store], url: str) -> None:
    jobs = await create(nodes[0], 40, max_running=20)
    last = NOW + 19 * SECOND
    decided: list[tuple[int, int]] = []

    def decide(due: DueJob) -> FirePlan:
        decided.append((due.job.job_id, due.due_at))
        following = due.due_at + SECOND
        run = new_run(due.due_at, lane=len(due.holds), lease=new_lease(until=last + LEASE_US))
        return FirePlan(next_fire_at=following if following <= last else None, runs=(run,))

    async def work(store: Store, limit: int) -> list[FiredBatch]:
        batches: list[FiredBatch] = []
        while await store.fires.next_due_at() is not None:
            batches.append(await store.fires.record_due(now=last, limit=limit, decide=decide))
        return batches

    batches = [batch for found in await asyncio.gather(*map(work, nodes, (7, 13, 29))) for batch in found]
    leased = [run.key for batch in batches for run in batch.leased]
    expected = {RunKey(job.job_id, NOW + second * SECOND) for job in jobs for second in range(20)}
    assert len(leased) == len(expected)
    assert set(leased) == expected
    assert sum(batch.conflicts for batch in batches) == 0
    assert sum(len(batch.parked) for batch in batches) == 0
    assert len(decided) == sum(batch.jobs for batch in batches) == len(expected)
    assert {RunKey(row["job_id"], row["scheduled_at"]) for row in await live_runs(url)} == expected


async def test_instant_that_somebody_records_by_another_way_is_one_run_and_a_conflict(nodes: list[Store]) -> None:
    jobs = await create(nodes[0], ROUNDS, max_running=2)

    def decide(due: DueJob) -> FirePlan:
        return FirePlan(next_fire_at=due.due_at + HOUR, runs=(new_run(due.due_at, lane=len(due.holds)),))

    async def insert(store: Store, job: StoredJob) -> int:
        written = await store.fires.insert_run(
            job.job_id, now=NOW, decide=lambda due: (new_run(NOW, trigger=Trigger.BACKFILL, lane=len(due.holds)),)
        )
        assert written is not None
        return len(written)

    async def dispatch(store: Store) -> list[FiredBatch]:
        batches = []
        while await store.fires.next_due_at() == NOW:
            batches.append(await store.fires.record_due(now=NOW, limit=5, decide=decide))
        return batches

    async def insert_some(store: Store, of: Sequence[StoredJob]) -> int:
        return sum([await insert(store, job) for job in of])

    first, second, found, more = await asyncio.gather(
        insert_some(nodes[1], jobs[::2]),
        insert_some(nodes[2], jobs[::-2]),
        dispatch(nodes[0]),
        dispatch(nodes[1]),
    )
    batches = [*found, *more]
    assert sum(batch.runs for batch in batches) + first + second == ROUNDS
    assert sum(batch.conflicts for batch in batches) == first + second
    assert [batch.parked for batch in batches if batch.parked] == []


async def test_instant_whose_run_ends_while_it_is_recorded_again_stays_one_record(
    nodes: list[Store], make: Maker, url: str
) -> None:
    """The clock shows an instant that is recorded, and its run, which waits for a lane, is being cancelled: a statement
    that inserts would see history without it, and find it gone from the live runs.
    """
    job = await make.job(max_running=2)
    waiting = await make.waiting(job, NOW)
    first_in_line = await make.waiting(job, NOW + SECOND)
    somebody = await asyncpg.connect(url)
    async with somebody.transaction():
        # Whoever ends a run passes its lane on afterwards, to the first in line: so the cancelling stops halfway.
        await somebody.execute("SELECT 1 FROM live_runs WHERE scheduled_at = $1 FOR UPDATE", first_in_line.scheduled_at)
        cancelling = asyncio.create_task(nodes[1].leases.cancel(waiting, now=NOW))
        await until_somebody_waits(url)
        again = FirePlan(next_fire_at=NOW + HOUR, runs=(new_run(lane=1),))
        firing = asyncio.create_task(nodes[2].fires.record_due(now=NOW, limit=10, decide=lambda _due: again))
        await until_somebody_waits(url, number=2)
    await somebody.close()
    assert await cancelling is RunState.CANCELLED
    batch = await firing
    assert (batch.runs, batch.conflicts) == (0, 1)
    found = await nodes[0].runs.find(RunFilter(job_id=job.job_id), Page())
    assert sorted((run.key.scheduled_at, run.state) for run in found) == [
        (NOW, RunState.CANCELLED),
        (NOW + SECOND, RunState.PENDING),
    ]


async def test_pause_sees_the_fire_or_prevents_it(nodes: list[Store], make: Maker, url: str) -> None:
    for number in range(ROUNDS):
        job = await make.job()
        batch, before, _ = await asyncio.gather(fire(nodes[1]), pause(nodes[2], job), fire(nodes[0]))
        run = await nodes[0].runs.get(RunKey(job.job_id, NOW))
        assert (before.recorded_until, before.next_fire_at) == ((NOW, NOW + HOUR) if run else (0, NOW)), number
        after = await make.reread(job)
        assert (after.state, after.next_fire_at) == (JobState.PAUSED, None)
        assert batch.parked == ()
        assert await make.claim_one() is None
    assert all(row["held"] for row in await live_runs(url))


async def test_run_recorded_by_hand_beside_a_pause_is_held(nodes: list[Store], make: Maker, url: str) -> None:
    for number in range(ROUNDS):
        job = await make.job()
        await asyncio.gather(
            pause(nodes[1], job),
            nodes[2].fires.insert_run(job.job_id, now=NOW, decide=lambda due: (in_free_lane(due, NOW + 1),)),
        )
        assert await make.claim_one(now=NOW + SECOND) is None, number
    rows = await live_runs(url)
    assert [row["held"] for row in rows] == [True] * ROUNDS


async def test_edit_beside_a_fire_loses_neither_clock(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job()
        edited = JobChange(definition='{"version": "next"}', max_running=1, next_fire_at=NOW + 5)

        def decide(due: DueJob) -> FirePlan:
            return FirePlan(next_fire_at=due.due_at + (HOUR if due.job.version == 1 else 2 * HOUR))

        def edit(_job: StoredJob, change: JobChange = edited) -> JobChange:
            return change

        await asyncio.gather(
            nodes[1].fires.record_due(now=NOW + 9, limit=10, decide=decide),
            nodes[2].jobs.change(job.job_id, now=NOW, decide=edit),
        )
        # Fired by the former definition and then edited; or edited and then fired by the new one, or not yet.
        assert (await make.reread(job)).next_fire_at in (NOW + 5, NOW + 5 + 2 * HOUR), number
        await nodes[0].jobs.change(
            job.job_id, now=NOW, decide=lambda _job: JobChange(state=JobState.DELETED, next_fire_at=None)
        )


async def test_no_lane_is_lost_where_a_run_ends_while_others_get_in_line(nodes: list[Store], url: str) -> None:
    maker = Maker(nodes[0])
    for number in range(ROUNDS // 4):
        jobs = await create(nodes[0], 8)
        held = [await maker.running(job, NOW - SECOND) for job in jobs]
        items = [Finish(key, token, outcome()) for key, token in held]
        batch, *_ = await asyncio.gather(
            fire(nodes[1]),
            nodes[2].leases.finish(items[:4], now=NOW, decide=never),
            nodes[0].leases.finish(items[:3:-1], now=NOW, decide=never),
            insert_all(nodes[2], jobs),
        )
        rest = await fire(nodes[0])  # clocks that were skipped while somebody held them
        assert (batch.runs + rest.runs, batch.parked, rest.parked) == (8, (), ()), number
        rows = await live_runs(url)
        lanes: dict[int, list[int | None]] = {}
        for row in rows:
            lanes.setdefault(row["job_id"], []).append(row["lane"])
        assert len(rows) == 16
        assert all(sorted(of_job, key=str) == [0, None] for of_job in lanes.values()), number
        for row in rows:
            await nodes[0].leases.cancel(RunKey(row["job_id"], row["scheduled_at"]), now=NOW)
        assert await live_runs(url) == []


async def test_one_of_two_that_ask_for_a_free_lane_waits_for_it(nodes: list[Store], url: str) -> None:
    for number in range(ROUNDS // 2):
        jobs = await create(nodes[0], 4)
        batches = await asyncio.gather(fire(nodes[1]), fire(nodes[0]), insert_all(nodes[2], jobs))
        rest = await fire(nodes[0])  # clocks that were skipped while somebody held them
        assert [batch.parked for batch in (*batches[:2], rest)] == [(), (), ()]
        rows = [row for row in await live_runs(url) if row["job_id"] in {job.job_id for job in jobs}]
        assert sorted(row["job_id"] for row in rows if row["lane"] == 0) == sorted(job.job_id for job in jobs), number
        assert len(rows) == 8


async def test_runs_recorded_by_hand_of_a_job_without_a_clock_do_not_share_a_lane(nodes: list[Store], url: str) -> None:
    jobs = await create(nodes[0], ROUNDS // 4, next_fire_at=None)

    async def insert(store: Store, scheduled_at: int) -> None:
        for job in jobs:
            await store.fires.insert_run(
                job.job_id, now=NOW, decide=lambda due: (in_free_lane(due, scheduled_at, trigger=Trigger.MANUAL),)
            )

    await asyncio.gather(*[insert(store, NOW + number) for number, store in enumerate(nodes)])
    rows = await live_runs(url)
    assert len(rows) == len(jobs) * NODES
    assert sorted(row["job_id"] for row in rows if row["lane"] == 0) == sorted(job.job_id for job in jobs)


async def test_lane_that_changed_hands_while_its_holder_was_waited_for_is_locked(
    nodes: list[Store], make: Maker, url: str
) -> None:
    job = await make.job()
    await make.running(job, NOW - 2 * SECOND)
    heir = await make.waiting(job, NOW - SECOND)
    lease = new_lease()

    def finish_heir() -> None:
        async def finish() -> None:
            store = await open_store(url)
            await store.leases.finish([Finish(heir, lease.token, outcome())], now=NOW, decide=never)
            await store.close()

        asyncio.run(finish())

    finishing = threading.Thread(target=finish_heir)

    def decide(due: DueJob) -> FirePlan:
        assert [hold.scheduled_at for hold in due.holds] == [heir.scheduled_at]
        finishing.start()
        finishing.join(LOOKS_ON_FOR_S)  # it cannot end the run that holds the lane before this fire is recorded
        return fire_once(due)

    finisher = await asyncpg.connect(url)
    async with finisher.transaction():
        await finisher.execute("DELETE FROM live_runs WHERE scheduled_at = $1", NOW - 2 * SECOND)
        firing = asyncio.create_task(nodes[1].fires.record_due(now=NOW, limit=10, decide=decide))
        await until_somebody_waits(url)
        await finisher.execute(
            "UPDATE live_runs SET lane = 0, state = 'running', attempt = 1, lease_token = $1, worker = 'worker-1',"
            " lease_until = $2, deadline_at = $2, granted_at = $3, attempt_started_at = $3, first_started_at = $3",
            lease.token,
            lease.until,
            NOW,
        )
    await finisher.close()
    await firing
    await asyncio.to_thread(finishing.join)
    assert (await make.view(heir)).state is RunState.SUCCEEDED
    assert (await make.view(RunKey(job.job_id, NOW))).lane == 0


async def test_replaced_run_is_claimed_or_skipped_but_never_both(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS // 2):
        job = await make.job()
        before = await make.pending(job, NOW - SECOND)
        replaced = Mark(NOW - SECOND, NOW - SECOND, 1, RunState.SKIPPED, SkipReason.OVERLAP, blocked_by=NOW)

        def decide(due: DueJob, mark: Mark = replaced) -> FirePlan:
            takes_over = due.holds[0].state is RunState.PENDING
            run = new_run(due.due_at, lane=0 if takes_over else None, ready_at=NOW + HOUR)
            return FirePlan(next_fire_at=due.due_at + HOUR, runs=(run,), replaced=(mark,) if takes_over else ())

        claimed, batch = await asyncio.gather(
            nodes[1].leases.claim([new_lease()], now=NOW, queue=None),
            nodes[2].fires.record_due(now=NOW, limit=10, decide=decide),
        )
        assert (batch.runs, batch.parked) == (1, ()), number
        view = await make.view(before)
        assert view.state is (RunState.RUNNING if claimed else RunState.SKIPPED)
        assert (await make.view(RunKey(job.job_id, NOW))).lane == (None if claimed else 0)


async def test_clock_after_a_finish_is_set_once_and_never_beside_a_live_run(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS // 2):
        job = await make.job(after_finish=AfterFinish(5 * SECOND), next_fire_at=NOW + HOUR)
        key, token = await make.running(job, NOW - SECOND)
        await asyncio.gather(
            nodes[1].leases.finish([Finish(key, token, outcome())], now=NOW, decide=never),
            nodes[2].fires.insert_run(job.job_id, now=NOW, decide=lambda due: (in_free_lane(due, NOW + 1),)),
        )
        assert (await make.reread(job)).next_fire_at is None, number
        assert (await make.view(RunKey(job.job_id, NOW + 1))).lane == 0
        await nodes[0].leases.cancel(RunKey(job.job_id, NOW + 1), now=NOW)
        assert (await make.reread(job)).next_fire_at == NOW + 5 * SECOND


async def test_blackouts_of_racing_nodes_grow_one_row(nodes: list[Store], make: Maker) -> None:
    jobs = await create(nodes[0], 20)
    last = NOW + 14 * SECOND

    def decide(due: DueJob) -> FirePlan:
        mark = Mark(due.due_at, due.due_at, 1, RunState.SKIPPED, SkipReason.BLACKOUT)
        return FirePlan(next_fire_at=due.due_at + SECOND, marks=(mark,))

    async def work(store: Store, limit: int) -> int:
        marks = 0
        while (await store.fires.next_due_at() or last) < last:
            marks += (await store.fires.record_due(now=last - SECOND, limit=limit, decide=decide)).marks
        return marks

    assert sum(await asyncio.gather(*map(work, nodes, (3, 5, 11)))) == 20 * 14
    for job in jobs:
        (row,) = await nodes[0].runs.find(RunFilter(job_id=job.job_id), Page())
        assert (row.key.scheduled_at, row.until, row.count) == (NOW, last - SECOND, 14)
        assert await make.runs(job, new_run(NOW + 13 * SECOND)) == []


async def test_nodes_take_clocks_of_their_own_slots(nodes: list[Store]) -> None:
    store = nodes[0]
    jobs = await create(store, 30)
    mine = sorted({job.job_id % store.slots for job in jobs})[::2]
    batch = await store.fires.record_due(now=NOW, limit=100, decide=fire_once, slots=mine)
    assert batch.jobs == sum(job.job_id % store.slots in mine for job in jobs)
    assert batch.next_due_at == NOW + HOUR
    assert await store.fires.next_due_at(slots=mine) == NOW + HOUR
    assert await store.fires.next_due_at() == NOW
    assert await store.fires.next_due_at(slots=[]) is None
    assert (await store.fires.record_due(now=NOW, limit=100, decide=fire_once, slots=[])).jobs == 0


async def fired(store: Store, *, now: int) -> list[int]:
    """The instants that a look of one clock finds."""
    seen: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        seen.append(due.due_at)
        return FirePlan(next_fire_at=now + HOUR)

    await store.fires.record_due(now=now, limit=1, decide=decide)
    return seen


async def test_clock_that_is_set_far_back_is_found_at_once_where_nothing_else_is_due(nodes: list[Store]) -> None:
    store = nodes[0]
    await create(store, 2)
    assert await fired(store, now=NOW) == [NOW]
    assert await fired(store, now=NOW) == [NOW]
    await create(store, 1, next_fire_at=NOW - HOUR)
    assert await fired(store, now=NOW + SECOND) == [NOW - HOUR]


async def test_clock_that_is_set_far_back_is_found_within_seconds_beside_others(nodes: list[Store]) -> None:
    store = nodes[0]
    await create(store, 9)
    assert await fired(store, now=NOW) == [NOW]
    await create(store, 1, next_fire_at=NOW - HOUR)
    assert await fired(store, now=NOW + SECOND) == [NOW]
    assert await fired(store, now=NOW + FULL_LOOK_AFTER_US) == [NOW - HOUR]
    assert await fired(store, now=NOW + FULL_LOOK_AFTER_US) == [NOW]


async def test_clocks_wait_while_the_time_is_set_back(nodes: list[Store]) -> None:
    store = nodes[0]
    await create(store, 2)
    assert await fired(store, now=NOW + 60 * SECOND) == [NOW]
    assert await fired(store, now=NOW - SECOND) == []
    assert await fired(store, now=NOW + SECOND) == [NOW]


def test_looks_begin_behind_the_first_clock_that_the_last_one_left() -> None:
    floor = ClockFloor()
    assert floor.of(None, now=NOW) == 0
    floor.note(None, began_at=0, earliest=NOW - HOUR, now=NOW)
    assert floor.of(None, now=NOW) == NOW - HOUR
    floor.note(None, began_at=NOW - HOUR, earliest=NOW + HOUR, now=NOW + SECOND)
    assert floor.of(None, now=NOW + 2 * SECOND) == NOW + SECOND - SLACK_US
    assert floor.of((1, 2), now=NOW) == 0
    assert floor.of(None, now=NOW + FULL_LOOK_AFTER_US) == 0


def test_looks_without_a_moment_of_their_own_trust_the_last_that_was_told() -> None:
    floor = ClockFloor()
    floor.note((1,), began_at=0, earliest=None, now=NOW)
    floor.note((2,), began_at=0, earliest=NOW - 1)
    assert floor.of((2,)) == NOW - SLACK_US
