"""Several nodes write, change, pause and delete the same jobs at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.store.factories import FAILURE, LEASE_US, NOW, SECOND, Maker, new_job, new_lease, new_run, retry
from tests.support.postgres import Databases

import onbeat.store.postgres.jobs
import onbeat.store.postgres.new_jobs
from onbeat.domain.errors import KeyTaken, StateConflict
from onbeat.domain.ids import RunKey
from onbeat.domain.states import JobState, RunState
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.postgres.database import Connection, connect
from onbeat.store.postgres.new_jobs import insert_jobs
from onbeat.store.values import (
    AfterFinish,
    Finish,
    FirePlan,
    JobChange,
    JobFilter,
    LeaseStatus,
    Page,
    Pause,
    StoredJob,
)

HOUR = 3_600 * SECOND
NODES = 3
ROUNDS = 100
PAUSED = JobChange(state=JobState.PAUSED, paused_at=NOW, next_fire_at=None)
DELETED = JobChange(state=JobState.DELETED, cancels_pending=True, cancels_running=True, next_fire_at=None)


@pytest.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
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
    return Maker(nodes[0])


class Gate:
    """Holds a transaction at its last step, so that what others do meanwhile is seen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, step: str) -> None:
        self.is_reached = asyncio.Event()
        self._is_open = asyncio.Event()
        original = getattr(module, step)

        async def held(*arguments: Any, **named: Any) -> Any:
            answer = await original(*arguments, **named)
            self.is_reached.set()
            await self._is_open.wait()
            return answer

        monkeypatch.setattr(module, step, held)

    def open(self) -> None:
        self._is_open.set()


async def waits(task: asyncio.Task[Any]) -> bool:
    """Does it wait for somebody? It had the time to be done if it did not."""
    done, _ = await asyncio.wait([task], timeout=0.2)
    return not done


def always(change: JobChange) -> Callable[[StoredJob], JobChange]:
    return lambda _job: change


async def active(store: Store, **where: Any) -> list[StoredJob]:
    return await store.jobs.find(JobFilter(state=JobState.ACTIVE, **where), Page(limit=1000))


# ---------------------------------------------------------------- create


async def test_a_key_that_nodes_create_at_once_is_one_jobs(nodes: list[Store]) -> None:
    for number in range(ROUNDS):
        jobs = [new_job(key=f"k{number}") for _ in nodes]
        created = await asyncio.gather(
            *(store.jobs.create([job], now=NOW) for store, job in zip(nodes, jobs, strict=True))
        )
        written = [stored for (stored,) in created if stored is not None]
        assert len(written) == 1
        assert await nodes[0].jobs.get_by_key("default", f"k{number}") == written[0]
        for job in jobs:
            assert (await nodes[0].jobs.get(job.job_id) is not None) == (job.job_id == written[0].job_id)
    assert (await nodes[0].counts()).jobs_by_state == {"active": ROUNDS}


async def test_batches_that_overlap_in_keys_and_ids_are_written_once(nodes: list[Store]) -> None:
    for number in range(ROUNDS // 10):
        keyed = [new_job(key=f"{number}-{key}") for key in range(50)]
        same_ids = [new_job() for _ in range(50)]
        batches = [
            [*keyed, *same_ids],
            [*(new_job(key=job.key) for job in keyed[::-1]), *same_ids[::-1]],
            [*same_ids[25:], *(new_job(key=job.key) for job in keyed[25:])],
        ]
        created = await asyncio.gather(
            *(store.jobs.create(batch, now=NOW) for store, batch in zip(nodes, batches, strict=True))
        )
        written = [stored for answers in created for stored in answers if stored is not None]
        assert sorted(stored.key for stored in written if stored.key) == sorted(str(job.key) for job in keyed)
        assert sorted(stored.job_id for stored in written if not stored.key) == sorted(job.job_id for job in same_ids)
        assert len(await nodes[0].jobs.find(JobFilter(), Page(limit=1000))) == 100 * (number + 1)


async def test_thousands_of_jobs_are_a_handful_of_statements(url: str) -> None:
    class Counting:
        """A connection that counts what is asked of it."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection
            self.statements = 0

        def __getattr__(self, name: str) -> Any:
            self.statements += 1
            return getattr(self._connection, name)

    jobs = [
        new_job(
            key=f"k{number}" if number % 2 else None,
            tags=("a", "b"),
            calendars=("c",) if number % 3 else (),
            after_finish=AfterFinish(SECOND, NOW + HOUR) if number % 5 == 0 else None,
        )
        for number in range(5_000)
    ]
    database = await connect(url, is_pooled=False)

    async def write(connection: Connection) -> tuple[int, list[StoredJob | None]]:
        counting = Counting(connection)
        stored = await insert_jobs(cast("Connection", counting), jobs, slots=256, now=NOW)
        return counting.statements, stored

    statements, stored = await database.write(write)
    await database.close()
    assert statements <= 8
    store = await open_store(url)
    for number in (0, 1, 2_499, 4_999):
        assert await store.jobs.get(jobs[number].job_id) == stored[number]
    assert (await store.counts()).jobs_by_state == {"active": 5_000}
    await store.close()


# ---------------------------------------------------------------- change


async def test_changes_of_one_job_see_each_other(nodes: list[Store], make: Maker) -> None:
    job = await make.job(name="0")

    def count_up(found: StoredJob) -> JobChange:
        return JobChange(name=str(int(found.name) + 1))

    await asyncio.gather(
        *(store.jobs.change(job.job_id, now=NOW, decide=count_up) for store in nodes for _ in range(ROUNDS // 2))
    )
    after = await make.reread(job)
    assert (after.name, after.version) == (str(NODES * ROUNDS // 2), NODES * ROUNDS // 2 + 1)


async def test_of_changes_under_one_version_one_is_written(nodes: list[Store], make: Maker) -> None:
    job = await make.job()

    async def edit(store: Store, name: str, *, version: int) -> str | None:
        def decide(found: StoredJob) -> JobChange:
            if found.version != version:
                raise StateConflict("the job has another version")
            return JobChange(name=name)

        try:
            await store.jobs.change(job.job_id, now=NOW, decide=decide)
        except StateConflict:
            return None
        return name

    for version in range(1, ROUNDS):
        names = await asyncio.gather(
            *(edit(store, f"{version}-{number}", version=version) for number, store in enumerate(nodes))
        )
        (written,) = [name for name in names if name is not None]
        assert (await make.reread(job)).name == written


async def test_a_key_that_two_changes_want_goes_to_one_of_them(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS // 2):
        jobs = [await make.job(key=f"{number}-{which}") for which in range(2)]
        wanted = JobChange(key=f"{number}-wanted")
        answers = await asyncio.gather(
            *(
                store.jobs.change(job.job_id, now=NOW, decide=always(wanted))
                for store, job in zip(nodes, jobs, strict=False)
            ),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [KeyTaken]
        holder = await nodes[0].jobs.get_by_key("default", f"{number}-wanted")
        assert holder in answers
        loser = next(job for job in jobs if holder is not None and job.job_id != holder.job_id)
        assert await nodes[0].jobs.get_by_key("default", str(loser.key)) == loser


async def test_edit_and_fire_know_of_each_other(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job()
        fired_by: list[int] = []
        edited_after: list[int] = []

        def fire(due: Any, seen: list[int] = fired_by) -> FirePlan:
            seen.append(due.job.version)
            return FirePlan(next_fire_at=due.due_at + HOUR, runs=(new_run(due.due_at),))

        def edit(found: StoredJob, seen: list[int] = edited_after) -> JobChange:
            seen.append(found.recorded_until)
            return JobChange(definition='{"version": "second"}', max_running=1)

        await asyncio.gather(
            nodes[1].jobs.change(job.job_id, now=NOW, decide=edit),
            nodes[2].fires.record_due(now=NOW, limit=10, decide=fire),
        )
        if not fired_by:  # it passed the clock over, since somebody held it
            await nodes[2].fires.record_due(now=NOW, limit=10, decide=fire)
        assert (fired_by[-1], edited_after[-1]) in ((1, NOW), (2, 0)), number
        (claimed,) = await nodes[0].leases.claim([new_lease()], now=NOW, queue=None)
        assert claimed.job_version == fired_by[-1]
        assert claimed.definition == (job.definition if fired_by[-1] == 1 else '{"version": "second"}')
        await nodes[0].jobs.change(job.job_id, now=NOW, decide=always(DELETED))


async def test_deleted_job_fires_and_starts_nothing(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job(max_running=2)
        pending = await make.pending(job, NOW - SECOND, lane=1)
        _, batch, claimed = await asyncio.gather(
            nodes[0].jobs.change(job.job_id, now=NOW, decide=always(DELETED)),
            nodes[1].fires.record_due(
                now=NOW, limit=10, decide=lambda due: FirePlan(next_fire_at=NOW + HOUR, runs=(new_run(due.due_at),))
            ),
            nodes[2].leases.claim([new_lease(), new_lease()], now=NOW, queue=None),
        )
        assert batch.parked == ()
        after = await make.reread(job)
        assert (after.state, after.next_fire_at) == (JobState.DELETED, None), number
        assert await nodes[1].leases.claim([new_lease()], now=NOW + HOUR, queue=None) == []
        assert (await nodes[1].fires.record_due(now=NOW + HOUR, limit=10, decide=lambda _due: FirePlan(None))).jobs == 0
        for key in {pending, RunKey(job.job_id, NOW)}:
            run = await nodes[0].runs.get(key)
            if key in {lease.key for lease in claimed}:
                assert run is not None
                assert (run.state, run.cancel_requested) == (RunState.RUNNING, True)
            else:
                assert run is None or run.state is RunState.CANCELLED
        for lease in claimed:
            await make.finish(lease.key, lease.token)


async def test_delete_misses_no_run_that_goes_back_to_pending_meanwhile(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job()
        key, token = await make.running(job, NOW)
        await asyncio.gather(
            nodes[1].jobs.change(job.job_id, now=NOW, decide=always(DELETED)),
            nodes[2].leases.finish([Finish(key, token, FAILURE)], now=NOW, decide=retry()),
        )
        assert (await make.view(key)).state is RunState.CANCELLED, number


# ---------------------------------------------------------------- a pause of one job


async def test_while_a_pause_is_being_written_no_attempt_starts_and_no_fire_is_recorded(
    nodes: list[Store], make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await make.job(max_running=3)
    await make.pending(job, NOW - SECOND)
    key, token = await make.running(job, NOW - 2 * SECOND, lane=1)
    gate = Gate(monkeypatch, onbeat.store.postgres.jobs, "pass_lanes_on")
    pausing = asyncio.create_task(nodes[0].jobs.change(job.job_id, now=NOW, decide=always(PAUSED)))
    await gate.is_reached.wait()

    assert await nodes[1].leases.claim([new_lease()], now=NOW, queue=None) == []
    assert (await nodes[1].fires.record_due(now=NOW, limit=10, decide=lambda _due: FirePlan(None))).jobs == 0
    permit = asyncio.create_task(nodes[1].leases.permit([(key, token)], now=NOW))
    by_hand = asyncio.create_task(
        nodes[1].fires.insert_run(job.job_id, now=NOW, decide=lambda _due: (new_run(NOW + 1, lane=2),))
    )
    assert await waits(permit)
    assert await waits(by_hand)

    gate.open()
    await pausing
    assert await permit == [LeaseStatus.HELD_BACK]
    assert await by_hand is not None
    assert await nodes[1].leases.claim([new_lease()], now=NOW + HOUR, queue=None) == []


async def test_after_a_pause_is_acknowledged_nobody_gets_a_run(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job(next_fire_at=None, max_running=2)
        await make.pending(job, NOW)
        key, token = await make.running(job, NOW + 1, lane=1, lease=new_lease(until=NOW + LEASE_US))
        is_paused = asyncio.Event()
        began_after_pause: list[bool] = []

        async def claim(store: Store, over: asyncio.Event = is_paused, seen: list[bool] = began_after_pause) -> None:
            was_paused = over.is_set()
            if await store.leases.claim([new_lease()], now=NOW, queue=None):
                seen.append(was_paused)

        async def permit(
            over: asyncio.Event = is_paused,
            seen: list[bool] = began_after_pause,
            held: tuple[RunKey, bytes] = (key, token),
        ) -> None:
            was_paused = over.is_set()
            if await nodes[2].leases.permit([held], now=NOW) == [LeaseStatus.LIVE]:
                seen.append(was_paused)

        async def pause(over: asyncio.Event = is_paused, job_id: int = job.job_id) -> None:
            await nodes[0].jobs.change(job_id, now=NOW, decide=always(PAUSED))
            over.set()
            await asyncio.gather(claim(nodes[1]), permit())

        await asyncio.gather(pause(), claim(nodes[1]), permit(), permit(), claim(nodes[2]))
        assert not any(began_after_pause), number
        await nodes[0].jobs.change(job.job_id, now=NOW, decide=always(DELETED))


# ---------------------------------------------------------------- pauses of many jobs


def pause_of(namespace: str, tag: str = "") -> Pause:
    return Pause(namespace, tag, "holidays", paused_at=NOW)


async def begin_and_spread(store: Store, pause: Pause) -> None:
    """As the service does: what is active once the pause is acknowledged is paused one by one."""
    await store.pauses.begin(pause)
    for job in await active(store, namespace=pause.namespace, tag=pause.tag or None):
        await store.jobs.change(job.job_id, now=NOW, decide=always(replace(PAUSED, paused_by=pause.tag)))


@pytest.mark.parametrize("tag", ["", "billing"])
async def test_no_job_becomes_active_behind_a_pause_that_begins(nodes: list[Store], make: Maker, tag: str) -> None:
    """By being created, changed, or planned again: three ways, in one race."""
    for number in range(ROUNDS // 2):
        namespace, tags = f"n{number}", ("billing",)
        resumed = await make.job(namespace=namespace, tags=tags, state=JobState.PAUSED, next_fire_at=None)
        tagged = await make.job(namespace=namespace)
        await nodes[0].calendars.put(namespace, "c", rules="{}", now=NOW)
        await make.job(namespace=namespace, tags=tags, state=JobState.COMPLETED, next_fire_at=None, calendars=("c",))

        async def create(namespace: str = namespace, tags: tuple[str, ...] = tags) -> None:
            for _ in range(5):
                await nodes[1].jobs.create([new_job(namespace=namespace, tags=tags) for _ in range(3)], now=NOW)

        async def change(first: StoredJob = resumed, second: StoredJob = tagged) -> None:
            resume = JobChange(state=JobState.ACTIVE, next_fire_at=NOW + HOUR)
            await nodes[2].jobs.change(first.job_id, now=NOW, decide=always(resume))
            await nodes[2].jobs.change(second.job_id, now=NOW, decide=always(JobChange(tags=("billing",))))

        await asyncio.gather(
            create(),
            begin_and_spread(nodes[0], pause_of(namespace, tag)),
            change(),
            nodes[2].calendars.replan(now=NOW, limit=10, decide=lambda _job: NOW + HOUR),
        )
        assert await active(nodes[0], namespace=namespace) == [], number
    assert await nodes[0].fires.next_due_at() is None


async def test_pause_waits_for_jobs_that_are_being_created(nodes: list[Store], monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, onbeat.store.postgres.new_jobs, "write_uses")
    creating = asyncio.create_task(nodes[0].jobs.create([new_job()], now=NOW))
    await gate.is_reached.wait()
    beginning = asyncio.create_task(nodes[1].pauses.begin(pause_of("default")))
    elsewhere = asyncio.create_task(nodes[1].pauses.begin(pause_of("other")))
    assert await waits(beginning)
    assert not await waits(elsewhere)
    gate.open()
    await beginning
    assert len(await active(nodes[1])) == 1
    (created,) = await creating
    (later,) = await nodes[2].jobs.create([new_job()], now=NOW)
    assert created is not None
    assert later is not None
    assert (created.state, later.state) == (JobState.ACTIVE, JobState.PAUSED)


async def test_no_job_goes_over_to_a_pause_that_has_been_forgotten(nodes: list[Store], make: Maker) -> None:
    for number in range(ROUNDS):
        job = await make.job(state=JobState.PAUSED, next_fire_at=None)
        await nodes[0].pauses.begin(pause_of("default"))

        async def end() -> None:
            """As the service does."""
            assert await nodes[1].pauses.end("default", "", ended_at=NOW)
            resume = JobChange(state=JobState.ACTIVE, next_fire_at=NOW + HOUR)
            for job_id in await nodes[1].pauses.jobs_held_by("default", "", limit=100):
                await nodes[1].jobs.change(job_id, now=NOW, decide=always(resume))
            await nodes[1].pauses.drop("default", "")

        resume = JobChange(state=JobState.ACTIVE, next_fire_at=NOW + HOUR)
        await asyncio.gather(end(), nodes[2].jobs.change(job.job_id, now=NOW, decide=always(resume)))
        assert (await make.reread(job)).state is JobState.ACTIVE, number


# ---------------------------------------------------------------- calendars


async def test_nodes_that_replan_at_once_ask_for_each_job_once(nodes: list[Store]) -> None:
    jobs = await nodes[0].jobs.create([new_job(calendars=("c",)) for _ in range(200)], now=NOW)
    await nodes[0].calendars.put("default", "c", rules="{}", now=NOW)
    asked: list[int] = []

    def decide(job: StoredJob) -> int:
        asked.append(job.job_id)
        return NOW + HOUR

    async def work(store: Store) -> None:
        while (await store.calendars.replan(now=NOW, limit=7, decide=decide)).more:
            pass

    await asyncio.gather(*map(work, nodes))
    assert sorted(asked) == sorted(job.job_id for job in jobs if job is not None)
    assert await nodes[0].fires.next_due_at() == NOW + HOUR


async def test_replan_and_change_see_each_other(nodes: list[Store], make: Maker) -> None:
    job = await make.job(calendars=("c",), state=JobState.COMPLETED, next_fire_at=None)
    for number in range(ROUNDS):
        await nodes[0].calendars.put("default", "c", rules=str(number), now=NOW)
        await asyncio.gather(
            nodes[1].calendars.replan(now=NOW, limit=7, decide=lambda _job: NOW + HOUR),
            nodes[2].jobs.change(job.job_id, now=NOW, decide=always(PAUSED)),
        )
        after = await make.reread(job)
        assert (after.state, after.next_fire_at) == (JobState.PAUSED, None), number
        completed = JobChange(state=JobState.COMPLETED, next_fire_at=None)
        await nodes[0].jobs.change(job.job_id, now=NOW, decide=always(completed))
    assert (await nodes[0].counts()).jobs_by_state == {"completed": 1}


async def test_calendar_is_not_deleted_under_a_job_that_is_being_created(
    nodes: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    await nodes[0].calendars.put("default", "c", rules="{}", now=NOW)
    gate = Gate(monkeypatch, onbeat.store.postgres.new_jobs, "write_uses")
    creating = asyncio.create_task(nodes[0].jobs.create([new_job(calendars=("c",))], now=NOW))
    await gate.is_reached.wait()
    deleting = asyncio.create_task(nodes[1].calendars.delete("default", "c"))
    assert await waits(deleting)
    assert (await nodes[2].calendars.put("default", "c", rules="[]", now=NOW)).version == 2  # in nobody's way
    gate.open()
    assert await deleting == 1
    await creating


# ---------------------------------------------------------------- texts that PostgreSQL does not take


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_what_no_row_can_hold_is_not_found(nodes: list[Store], make: Maker, text: str) -> None:
    await make.job(name="ab", tags=("a",))
    store = nodes[0]
    for where in (JobFilter(text=text), JobFilter(tag=text), JobFilter(namespace=text)):
        assert await store.jobs.find(where, Page()) == []
    assert await store.jobs.get_by_key("default", text) is None
    assert await store.jobs.get_by_key(text, "k") is None
