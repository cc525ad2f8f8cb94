"""Pause, resume and delete, of one job and of many: nothing begins, what runs is bounded, nothing is unrecorded."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.accounting import recorded_instants
from tests.support.fleet import make_key, serving, working
from tests.support.receiver import Call, receiving
from tests.support.scheduler import SECOND, START, Scheduler, draft, every, scheduling

from onbeat.clock import ManualClock
from onbeat.domain.errors import RequestError, StateConflict
from onbeat.domain.ids import format_job_id
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.services.job_rules import JobDraft
from onbeat.services.jobs import Change
from onbeat.store.values import LeaseStatus, Page, RunFilter, RunView, StoredJob


@pytest.fixture
def data(either_database: str) -> str:
    """Every scenario of this page over both engines."""
    return either_database


async def tagged(scheduler: Scheduler, *tags: str, name: str = "job") -> StoredJob:
    written = draft(every(1), name=name)
    saved = JobDraft(written.key, written.name, tags, written.schedules, written.definition)
    return await scheduler.jobs.create(saved, namespace="default")


async def state_of(scheduler: Scheduler, job: StoredJob) -> tuple[JobState, str | None]:
    found = await scheduler.jobs.get(job.job_id)
    return found.state, found.paused_by


async def records(scheduler: Scheduler, job: StoredJob) -> list[RunView]:
    found = await scheduler.store.runs.find(RunFilter(job_id=job.job_id), Page(limit=1_000))
    return found[::-1]


def seconds(first: int, last: int) -> list[int]:
    return [START + second * SECOND for second in range(first, last + 1)]


async def test_a_pause_with_an_end_ends_by_itself_and_what_comes_due_later_is_no_pause(data: str) -> None:
    clock = ManualClock(START)
    async with scheduling(data, clock=clock) as scheduler:
        job = await scheduler.job()
        await scheduler.jobs.pause(job.job_id, note="maintenance", cancel=False, until=START + 10 * SECOND)
        clock.advance(9.5)
        await scheduler.pauses.keep_up()
        assert await state_of(scheduler, job) == (JobState.PAUSED, None)
    clock.advance(5)  # stopped while the pause ended
    async with scheduling(data, clock=clock) as scheduler:
        await scheduler.pauses.keep_up()
        assert await state_of(scheduler, job) == (JobState.ACTIVE, None)
        await scheduler.settle()
        paused, *ran = await records(scheduler, job)
        assert (paused.state, paused.reason, paused.count) == (RunState.SKIPPED, "paused", 10)
        assert sum(run.count for run in ran) == 4
        assert "paused" not in {run.reason for run in ran}
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 14)


async def test_a_pause_given_again_replaces_note_and_end_and_keeps_its_beginning(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job()
        await scheduler.jobs.pause(job.job_id, note="first", cancel=False, until=START + 5 * SECOND)
        scheduler.clock.advance(3)
        again = await scheduler.jobs.pause(job.job_id, note="second", cancel=False)
        assert (again.reason, again.paused_at, again.paused_until) == ("second", START, None)
        same = await scheduler.jobs.pause(job.job_id, note="second", cancel=False)
        assert same.version == again.version
        scheduler.clock.advance(10)
        await scheduler.pauses.keep_up()
        assert await state_of(scheduler, job) == (JobState.PAUSED, None)


async def test_a_retry_that_is_due_in_a_pause_waits_for_its_end(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(3_600))
        run = await scheduler.runs.trigger(job.job_id, payload=None)
        await scheduler.end(await scheduler.claim(), OutcomeKind.REFUSED)
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        scheduler.clock.advance(600)
        assert await scheduler.claim() == []
        await scheduler.jobs.resume(job.job_id)
        (held,) = await scheduler.claim()
        assert (held.key, held.attempt) == (run.key, 2)


async def test_an_attempt_that_was_claimed_before_the_pause_gets_no_permit_after_it(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(3_600))
        await scheduler.runs.trigger(job.job_id, payload=None)
        (held,) = await scheduler.claim()
        assert await scheduler.leasing.permit([(held.key, held.token)]) == [LeaseStatus.LIVE]
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        assert await scheduler.leasing.permit([(held.key, held.token)]) == [LeaseStatus.HELD_BACK]
        assert await scheduler.leasing.extend([(held.key, held.token)]) == [LeaseStatus.LIVE]  # it may finish


@pytest.mark.parametrize("action", ["pause", "delete"])
async def test_cancelling_what_runs_reaches_this_process_at_once_and_others_with_a_heartbeat(
    data: str, action: str
) -> None:
    async with scheduling(data) as scheduler:
        job = await scheduler.job(every(3_600))
        run = await scheduler.runs.trigger(job.job_id, payload=None)
        (held,) = await scheduler.claim()
        told: list[object] = []
        scheduler.running.listen(told.append)
        if action == "pause":
            await scheduler.jobs.pause(job.job_id, note=None, cancel=True)
        else:
            await scheduler.jobs.delete(job.job_id, if_version=None, cancel=True)
        assert told == [run.key]
        assert await scheduler.leasing.extend([(held.key, held.token)]) == [LeaseStatus.CANCEL]
        await scheduler.end([held], OutcomeKind.CANCELLED)
        assert (await scheduler.runs.get(run.key)).state == RunState.CANCELLED


async def test_a_tag_is_paused_and_resumed_without_touching_what_was_paused_by_itself(data: str) -> None:
    async with scheduling(data) as scheduler:
        own, covered, other = [await tagged(scheduler, *tags) for tags in (("a",), ("a", "b"), ("b",))]
        await scheduler.jobs.pause(own.job_id, note="mine", cancel=False)
        paused = await scheduler.pauses.pause("default", "a", note="tag", until=None, cancel=False)
        assert paused.jobs == 1
        later = await tagged(scheduler, "a")
        assert await state_of(scheduler, own) == (JobState.PAUSED, None)
        assert await state_of(scheduler, covered) == (JobState.PAUSED, "a")
        assert await state_of(scheduler, later) == (JobState.PAUSED, "a")
        assert await state_of(scheduler, other) == (JobState.ACTIVE, None)
        with pytest.raises(StateConflict):
            await scheduler.jobs.resume(covered.job_id)
        assert await scheduler.pauses.resume("default", "a") == 2
        assert await state_of(scheduler, own) == (JobState.PAUSED, None)
        assert await state_of(scheduler, covered) == (JobState.ACTIVE, None)
        assert await state_of(scheduler, later) == (JobState.ACTIVE, None)
        with pytest.raises(StateConflict):
            await scheduler.pauses.resume("default", "a")


async def test_where_two_pauses_cover_a_job_it_goes_on_when_the_last_one_ends(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await tagged(scheduler, "a", "b")
        await scheduler.pauses.pause("default", "a", note=None, until=None, cancel=False)
        scheduler.clock.advance(3)
        await scheduler.pauses.pause("default", "b", note=None, until=None, cancel=False)
        await scheduler.pauses.pause("default", None, note=None, until=None, cancel=False)
        scheduler.clock.advance(3)
        await scheduler.pauses.resume("default", "a")
        assert await state_of(scheduler, job) == (JobState.PAUSED, "")
        await scheduler.pauses.resume("default", None)
        assert await state_of(scheduler, job) == (JobState.PAUSED, "b")
        scheduler.clock.advance(3)
        await scheduler.pauses.resume("default", "b")
        assert await state_of(scheduler, job) == (JobState.ACTIVE, None)
        scheduler.clock.advance(2)
        await scheduler.settle()
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 11)


async def test_resuming_a_job_of_its_own_pause_under_a_wider_one_hands_it_over(data: str) -> None:
    async with scheduling(data) as scheduler:
        job = await tagged(scheduler, "a")
        await scheduler.jobs.pause(job.job_id, note=None, cancel=False)
        await scheduler.pauses.pause("default", None, note="all", until=None, cancel=False)
        scheduler.clock.advance(4)
        assert (await scheduler.jobs.resume(job.job_id)).paused_by == ""
        scheduler.clock.advance(4)
        await scheduler.pauses.resume("default", None)
        assert [run.count for run in await records(scheduler, job)] == [4, 4]


async def test_a_job_that_gets_a_paused_tag_is_paused(data: str) -> None:
    async with scheduling(data) as scheduler:
        await scheduler.pauses.pause("default", "a", note=None, until=None, cancel=False)
        job = await tagged(scheduler, "b")
        scheduler.clock.advance(2.5)
        written = draft(every(1))
        change = JobDraft(None, "job", ("a",), written.schedules, written.definition)
        await scheduler.jobs.update(job.job_id, Change(lambda _stored, _existing: change))
        assert await state_of(scheduler, job) == (JobState.PAUSED, "a")
        scheduler.clock.advance(3)
        await scheduler.pauses.resume("default", "a")
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 5)


async def test_a_pause_of_everything_ends_by_itself_and_a_restart_goes_on_with_it(data: str) -> None:
    clock = ManualClock(START)
    async with scheduling(data, clock=clock) as scheduler:
        jobs = [await tagged(scheduler, name=f"job {number}") for number in range(5)]
        # As a process leaves it that dies right after the first write.
        pause = (await scheduler.pauses.pause("default", None, note=None, until=START + 9 * SECOND, cancel=False)).pause
        await scheduler.store.pauses.begin(pause)
    clock.advance(5)
    async with scheduling(data, clock=clock) as scheduler:
        assert await scheduler.pauses.keep_up() == START + 9 * SECOND
        assert (await scheduler.store.pauses.find())[0].is_spread
    clock.advance(10)
    async with scheduling(data, clock=clock) as scheduler:
        assert await scheduler.pauses.keep_up() is None
        assert await scheduler.store.pauses.find() == []
        await scheduler.settle()
        assert {(await scheduler.jobs.get(job.job_id)).state for job in jobs} == {JobState.ACTIVE}
    for job in jobs:
        assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 15)


async def test_a_resume_that_a_dying_process_left_half_done_is_finished_as_of_its_moment(data: str) -> None:
    clock = ManualClock(START)
    async with scheduling(data, clock=clock) as scheduler:
        job = await tagged(scheduler)
        await scheduler.pauses.pause("default", None, note=None, until=None, cancel=False)
        clock.advance(4)
        await scheduler.store.pauses.end("default", "", ended_at=clock.now())
    clock.advance(3)
    async with scheduling(data, clock=clock) as scheduler:
        await scheduler.pauses.keep_up()
        await scheduler.settle()
        first = (await records(scheduler, job))[0]
        assert (first.count, first.reason) == (4, "paused")
    assert recorded_instants(data, format_job_id(job.job_id)) == seconds(1, 7)


async def test_a_pause_of_many_tells_when_the_last_side_effect_can_happen(data: str) -> None:
    async with scheduling(data) as scheduler:
        slow = await scheduler.job(every(3_600), timeout_s=120.0)
        await scheduler.runs.trigger(slow.job_id, payload=None)
        await scheduler.claim()
        finishing = await scheduler.pauses.pause("default", None, note=None, until=None, cancel=False)
        assert finishing.side_effects_end_at == START + 125 * SECOND
        cancelling = await scheduler.pauses.pause("default", None, note=None, until=None, cancel=True)
        assert cancelling.side_effects_end_at <= START + 30 * SECOND
    with pytest.raises(RequestError):
        await scheduler.pauses.pause("default", None, note=None, until=START, cancel=False)


async def test_pause_with_cancel_stops_a_delivery_in_this_process_at_once(start_server: StartServer) -> None:
    async def answer(_call: Call) -> int:
        await asyncio.Event().wait()
        return 200

    async with receiving(answer) as receiver, start_server(lease_s="60", heartbeat_s="30") as server:
        assert await server.wait_ready()
        async with httpx.AsyncClient(base_url=server.url) as http:
            body = {"name": "slow", "tags": ["a"], "schedules": [{"every": 3_600}], "target": {"url": receiver.url}}
            job = (await http.post("/v1/jobs", json=body)).json()
            run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
            await receiver.wait_for(lambda calls: len(calls) == 1)
            paused = (await http.post("/v1/pause", json={"scope": {"tag": "a"}, "running": "cancel"})).json()
            assert paused["jobs"] == 1
            async with asyncio.timeout(10):  # a heartbeat comes after 30 s only
                while (await http.get(f"/v1/runs/{run['id']}")).json()["state"] != "cancelled":
                    await asyncio.sleep(0.02)


async def test_pause_with_cancel_stops_a_delivery_of_a_remote_worker_with_its_next_heartbeat(data: str) -> None:
    async def answer(_call: Call) -> int:
        await asyncio.Event().wait()
        return 200

    key = await make_key(data, "admin")
    async with receiving(answer) as receiver, serving(data) as server:
        assert await server.wait_ready()
        async with (
            working(server.url, key, data),
            httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http,
        ):
            body = {"name": "slow", "schedules": [{"every": 3_600}], "target": {"url": receiver.url}}
            job = (await http.post("/v1/jobs", json=body)).json()
            run = (await http.post(f"/v1/jobs/{job['id']}/trigger", json={})).json()
            await receiver.wait_for(lambda calls: len(calls) == 1)
            await http.post(f"/v1/jobs/{job['id']}/pause", json={"running": "cancel"})
            async with asyncio.timeout(10):
                while (found := (await http.get(f"/v1/runs/{run['id']}")).json())["state"] == "running":
                    await asyncio.sleep(0.02)
            assert (found["state"], found["attempt"]) == ("cancelled", 1)
