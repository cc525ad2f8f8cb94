"""The matrix of docs/overlap.md, cell by cell: what is in the lane × what arrives × the overlap rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.scheduler import SECOND, START, Scheduler, every, scheduling

from onbeat.domain.ids import RunKey
from onbeat.domain.model import MisfirePolicy
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState, SkipReason
from onbeat.store.values import Page, RunFilter, RunView, StoredJob

PAGE = Path(__file__).parents[2] / "docs" / "overlap.md"
POLICIES = ("queue", "skip", "allow", "replace")
MINUTE = 60 * SECOND


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


def cells() -> Iterator[tuple[str, str, str, str]]:
    """`(in the lane, arrives, policy, what happens)` of every cell of the page's matrix."""
    table = PAGE.read_text().split("| in the lane |")[1].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        in_lane, arrives, *happens = [re.sub(r"[*`]", "", part).strip() for part in line.strip("|").split("|")]
        for policy, expected in zip(POLICIES, happens, strict=True):
            yield in_lane, arrives, policy, expected


CELLS = list(cells())


async def newest(scheduler: Scheduler, job: StoredJob) -> RunView:
    """The record of the job with the latest instant, except collapsed ones."""
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=50))
    return next(run for run in found if run.state != RunState.MISSED)


async def miss_some(scheduler: Scheduler) -> None:
    """Nobody dispatches for ten minutes; then one instant is due, and past grace."""
    scheduler.clock.set(scheduler.clock.now() // MINUTE * MINUTE + 10 * MINUTE + 45 * SECOND)
    await scheduler.dispatch.fire_due()


async def reach_next_instant(scheduler: Scheduler) -> None:
    scheduler.clock.set(scheduler.clock.now() // MINUTE * MINUTE + MINUTE + SECOND)
    await scheduler.dispatch.fire_due()


async def put_in_lane(scheduler: Scheduler, job: StoredJob, what: str) -> RunKey | None:
    """Bring the job into that state. Answer: the run that holds the lane."""
    if what == "nothing":
        return None
    kind, _, stage = what.partition(", ")
    if kind == "scheduled":
        await reach_next_instant(scheduler)
    elif kind == "caught up":
        await miss_some(scheduler)
    elif kind == "retried by hand":
        await scheduler.runs.retry(await failed_run(scheduler, job))
    else:
        await scheduler.runs.trigger(job.job_id, payload=None)
    key = (await newest(scheduler, job)).key
    if stage != "not begun":
        (held,) = await scheduler.claim()
        assert held.key == key
        if stage == "between attempts":
            await scheduler.end([held], OutcomeKind.REFUSED)
    return key


async def failed_run(scheduler: Scheduler, job: StoredJob) -> RunKey:
    await scheduler.runs.trigger(job.job_id, payload=None)
    held = await scheduler.claim()
    await scheduler.end(held, OutcomeKind.UNSENDABLE)
    return held[0].key


async def arrive(scheduler: Scheduler, job: StoredJob, what: str, failed: RunKey) -> RunKey:
    """Let another run of the job come. Answer: which."""
    if what == "retried by hand":
        await scheduler.runs.retry(failed)
        return failed
    if what == "triggered by hand":
        return (await scheduler.runs.trigger(job.job_id, payload=None)).key
    await (reach_next_instant if what == "scheduled" else miss_some)(scheduler)
    return (await newest(scheduler, job)).key


def what_happened(arrived: RunView, holder: RunView | None) -> str:
    """In the words of the page."""
    if holder is not None and (holder.cancel_requested or holder.state == RunState.CANCELLED):
        return "stops it"
    if arrived.state == RunState.SKIPPED:
        assert holder is not None
        assert (arrived.reason, arrived.blocked_by) == (SkipReason.OVERLAP, holder.key.scheduled_at)
        return "skipped"
    assert arrived.state == RunState.PENDING
    if holder is not None and holder.state == RunState.SKIPPED:
        assert (holder.reason, holder.blocked_by, arrived.lane) == ("overlap", arrived.key.scheduled_at, 0)
        return "takes over"
    if arrived.lane is None:
        return "waits"
    return "starts" if holder is None else "goes first"


@pytest.mark.parametrize(("in_lane", "arrives", "policy", "expected"), CELLS, ids=[" · ".join(cell) for cell in CELLS])
async def test_cell(data: str, in_lane: str, arrives: str, policy: str, expected: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(
            every(60), overlap=policy, max_running=1, misfire=MisfirePolicy(policy="catch_up", max=1)
        )
        scheduler.clock.set(START + 5 * SECOND)
        failed = await failed_run(scheduler, job)
        key = await put_in_lane(scheduler, job, in_lane)
        arrived = await arrive(scheduler, job, arrives, failed)
        holder = None if key is None else await scheduler.runs.get(key)
        assert what_happened(await scheduler.runs.get(arrived), holder) == expected
        await scheduler.end(await scheduler.claim())
        lanes = await scheduler.store.runs.find(
            RunFilter(job_id=job.job_id, states=frozenset({RunState.RUNNING})), Page(limit=50)
        )
        assert len(lanes) <= 1


def test_every_combination_has_a_cell() -> None:
    stages = ("not begun", "running", "between attempts")
    arrivals = {"scheduled", "caught up", "triggered by hand", "retried by hand"}
    holders = {"nothing"} | {f"{kind}, {stage}" for kind in arrivals for stage in stages}
    assert {(in_lane, arrives) for in_lane, arrives, _, _ in CELLS} == {(a, b) for a in holders for b in arrivals}


@pytest.mark.parametrize(("policy", "first"), [("queue", RunState.SKIPPED), ("replace", RunState.SKIPPED)])
async def test_of_scheduled_fires_that_wait_the_newest_stays(data: str, policy: str, first: RunState) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(60), overlap=policy)
        await put_in_lane(scheduler, job, "scheduled, running")
        await reach_next_instant(scheduler)
        waited = (await newest(scheduler, job)).key
        await reach_next_instant(scheduler)
        waits = await newest(scheduler, job)
        replaced = await scheduler.runs.get(waited)
        assert (replaced.state, replaced.blocked_by) == (first, START + 60 * SECOND)
        assert (waits.state, waits.lane) == (RunState.PENDING, None)


async def test_a_lane_goes_to_scheduled_runs_first_then_to_the_oldest(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(60))
        await put_in_lane(scheduler, job, "scheduled, running")
        held = [(await newest(scheduler, job)).key]
        manual = [(await scheduler.runs.trigger(job.job_id, payload=None)).key for _ in range(2)]
        await reach_next_instant(scheduler)
        scheduled = (await newest(scheduler, job)).key
        order: list[RunKey] = []
        running = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=50))
        assert {run.key for run in running} == {*held, *manual, scheduled}
        await scheduler.runs.cancel(held[0])
        await scheduler.leasing.release([])
        scheduler.clock.advance(40)
        await scheduler.reap.expire_leases()
        while assignments := await scheduler.claim():
            order += [assignment.key for assignment in assignments]
            await scheduler.end(assignments)
        assert order == [scheduled, *manual]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_forced_run_goes_beside_everything_and_keeps_nobody_waiting(data: str, policy: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(60), overlap=policy, max_running=1)
        await put_in_lane(scheduler, job, "scheduled, running")
        forced = [await scheduler.runs.trigger(job.job_id, payload=None, force=True) for _ in range(2)]
        held = await scheduler.claim()
        assert {assignment.key for assignment in held} == {run.key for run in forced}
        waiting = await scheduler.runs.trigger(job.job_id, payload=None)
        await scheduler.end(held[:1])
        assert await scheduler.claim() == []  # a forced run leaves no lane of the job behind
        assert (await scheduler.runs.get(waiting.key)).lane is None
        await scheduler.end(held[1:], OutcomeKind.REFUSED)
        scheduler.clock.advance(5)
        (again,) = await scheduler.claim()
        assert (again.key, again.attempt) == (held[1].key, 2)  # its retry stays beside everything


async def test_a_scheduled_fire_takes_the_jobs_lane_while_a_forced_run_goes_on(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(60), overlap="skip", max_running=1)
        await scheduler.runs.trigger(job.job_id, payload=None, force=True)
        assert len(await scheduler.claim()) == 1
        await reach_next_instant(scheduler)
        assert (await newest(scheduler, job)).lane == 0
