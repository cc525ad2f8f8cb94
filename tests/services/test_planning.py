"""Decisions that are shared within a batch are those that each job would have had alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.scheduler import RECOVERY_PER_S, SECOND, TARGET, Scheduler, draft, every, scheduling

from onbeat.domain.blackout import BlackoutRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import (
    CronSchedule,
    Definition,
    EverySchedule,
    MisfirePolicy,
    QueueTarget,
    WebhookTarget,
    decode_definition,
    encode_definition,
)
from onbeat.domain.moved_start import moved_start
from onbeat.services.definitions import DefinitionCache
from onbeat.services.handoff import Handoff, Reservation
from onbeat.services.job_rules import DraftSchedule
from onbeat.services.planning import Planner
from onbeat.services.recovery import Recovery
from onbeat.store.values import DueJob, FirePlan

HOUR_S = 3_600
DIFFERENCES: list[dict[str, Any]] = [
    {},
    {"jitter_s": 20},
    {"spread_s": 90},
    {"spread_s": 90, "jitter_s": 20, "max_running": 2},
    {"max_running": 3, "overlap": "skip"},
    {"priority": 9},
    {"max_run_time_s": 60},
    {"target": QueueTarget("reports")},
]
"""Each by itself decides what becomes of a fire, beside its schedule, its grace and its policy."""
NOBODY_WAITS = Reservation((), until=0)
SCHEDULES: list[DraftSchedule] = [
    every(1),
    every(60),
    every(HOUR_S),
    CronSchedule(expression="*/5 * * * *", timezone="UTC"),
    CronSchedule(expression="H * * * *", timezone="UTC"),
]
POLICIES = [
    MisfirePolicy(),
    MisfirePolicy(policy="run_latest"),
    MisfirePolicy(policy="catch_up", max=2, spacing_s=1),
    MisfirePolicy(policy="catch_up", max=2, window_s=600, spacing_s=1),
]


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    async with scheduling(tmp_path / "onbeat.db") as opened:
        yield opened


@pytest.mark.parametrize("asleep_s", [0, 20, 90, 2 * HOUR_S, 40 * 86_400])
async def test_each_job_of_a_batch_is_planned_as_if_it_were_alone(scheduler: Scheduler, asleep_s: int) -> None:
    now_s = scheduler.clock.now() // SECOND
    frozen = BlackoutRules(from_at=(now_s + 10) * SECOND, until_at=(now_s + 70) * SECOND, tag="frozen")
    await scheduler.blackouts.put("default", "freeze", frozen)
    await scheduler.jobs.create_many(
        [
            replace(draft(schedule, misfire=policy, grace_s=grace_s, **moves), tags=tags)
            for schedule in SCHEDULES
            for policy in POLICIES
            for grace_s in (0, 30, HOUR_S)
            for moves in DIFFERENCES
            for tags in ((), ("frozen",))
        ],
        namespace="default",
    )
    scheduler.clock.advance(asleep_s + 1)
    now = scheduler.clock.now()
    planner, planner_of_one = (
        Planner(definitions=scheduler.definitions, almanac=scheduler.almanac, recovery=Recovery(per_s=RECOVERY_PER_S))
        for _ in range(2)
    )
    together = planner.plan_batch(now=now, reservation=NOBODY_WAITS)
    planned: list[tuple[FirePlan, FirePlan]] = []

    def decide(due: DueJob) -> FirePlan:
        planned.append((together(due), planner_of_one.plan_batch(now=now, reservation=NOBODY_WAITS)(due)))
        return planned[-1][0]

    while (await scheduler.store.fires.record_due(now=now, limit=1_000, decide=decide)).jobs:
        pass
    assert len(planned) >= 144
    for in_batch, alone in planned:
        assert in_batch == alone


async def test_jobs_that_are_decided_alike_start_each_when_its_own_start_is(scheduler: Scheduler) -> None:
    moves = [{}, {"spread_s": 90}, {"jitter_s": 20}, {"spread_s": 90, "jitter_s": 20}]
    await scheduler.jobs.create_many(
        [draft(every(60), grace_s=7, name=str(number), **moves[number % 4]) for number in range(40)],
        namespace="default",
    )
    scheduler.clock.advance(62)
    now = scheduler.clock.now()
    planner = Planner(
        definitions=scheduler.definitions, almanac=scheduler.almanac, recovery=Recovery(per_s=RECOVERY_PER_S)
    )
    plan = planner.plan_batch(now=now, reservation=NOBODY_WAITS)
    starts: list[int] = []

    def decide(due: DueJob) -> FirePlan:
        planned = plan(due)
        (run,) = planned.runs
        start = moved_start(decode_definition(due.job.definition), job_id=due.job.job_id).start_of(due.due_at)
        assert (run.scheduled_at, run.ready_at) == (due.due_at, max(now, start))
        assert (run.late_after, run.moved_us) == (start + 7 * SECOND, start - due.due_at)
        starts.append(start)
        return planned

    assert (await scheduler.store.fires.record_due(now=now, limit=100, decide=decide)).pending == 40
    assert len(set(starts)) > 25  # ten start as planned


async def test_jobs_that_are_decided_alike_are_given_to_workers_one_by_one(scheduler: Scheduler) -> None:
    await scheduler.jobs.create_many(
        [draft(every(1), target=QueueTarget(queue)) for queue in ("a", "b") for _ in range(5)], namespace="default"
    )
    scheduler.clock.advance(1)
    now = scheduler.clock.now()
    handoff = Handoff()
    claims = [handoff.park("w1", queue="a", capacity=2), handoff.park("w2", queue="a", capacity=1)]
    reservation = handoff.reserve(until=now + SECOND)
    planner = Planner(
        definitions=scheduler.definitions, almanac=scheduler.almanac, recovery=Recovery(per_s=RECOVERY_PER_S)
    )
    batch = await scheduler.store.fires.record_due(
        now=now, limit=100, decide=planner.plan_batch(now=now, reservation=reservation)
    )
    assert (batch.runs, batch.pending) == (10, 7)
    assert handoff.settle(reservation, batch.leased) == []
    handed_over = [await claim.runs for claim in claims]
    assert [len(runs) for runs in handed_over] == [2, 1]
    runs = [run for of_claim in handed_over for run in of_claim]
    assert {run.queue for run in runs} == {"a"}
    assert len({run.token for run in runs}) == len({run.key for run in runs}) == 3


async def test_a_definition_is_decoded_once_for_all_jobs_that_share_it_and_again_when_it_says_something_else(
    scheduler: Scheduler,
) -> None:
    decoded: list[str] = []

    def decode(text: str) -> Definition:
        decoded.append(text)
        return decode_definition(text)

    cache = DefinitionCache(size=2, decode=decode)
    one, same, other = [await scheduler.job(every(seconds)) for seconds in (60, 60, 61)]
    assert cache.get(one.definition) is cache.get(same.definition)
    assert cache.planned(one.definition).timetable is cache.planned(same.definition).timetable
    assert cache.get(other.definition) != cache.get(one.definition)
    assert decoded == [one.definition, other.definition]
    for text in (other.definition, one.definition + " ", one.definition):
        cache.get(text)
    assert len(decoded) == 4  # the third pushed out what was used least recently


def test_of_long_definitions_few_are_kept_and_they_push_out_no_short_ones() -> None:
    def text_of(body: str) -> str:
        target = WebhookTarget(url="https://example.com/", body=body)
        return encode_definition(Definition(schedules=(EverySchedule(every_s=60, anchor_at=0),), target=target))

    cache = DefinitionCache()
    long = [text_of(f"{number}" + "x" * 200_000) for number in range(100)]
    first, short = cache.get(long[0]), cache.get(text_of("short"))
    planned = cache.planned(long[0])
    assert cache.get(long[0]) is first is planned.definition
    assert cache.planned(long[0]) is planned
    for text in long:
        assert cache.planned(text).definition == cache.get(text)
    assert cache.get(long[0]) == first
    assert cache.get(long[0]) is not first, "thousands of them would fill the memory"
    assert cache.planned(long[0]) is not planned
    assert cache.get(text_of("short")) is short


def test_a_definition_that_cannot_be_honoured_can_still_be_read() -> None:
    text = encode_definition(Definition(schedules=(CronSchedule(expression="99 * * * *"),), target=TARGET))
    cache = DefinitionCache()
    assert cache.get(text).target == TARGET
    for _ in range(2):
        with pytest.raises(DefinitionError):
            cache.planned(text)
        with pytest.raises(DefinitionError):
            cache.get("{")


async def test_a_timetable_that_depends_on_the_job_or_on_calendars_is_not_shared(scheduler: Scheduler) -> None:
    spread = await scheduler.job(CronSchedule(expression="H * * * *", timezone="UTC"))
    assert DefinitionCache().planned(spread.definition).timetable is None
