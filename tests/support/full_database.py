"""A database with rows in every table that a move brings along, made through the store's contract."""

from __future__ import annotations

from dataclasses import dataclass

from tests.store.factories import FAILURE, LEASE_US, NOW, SECOND, Judge, Maker, new_lease, new_run, outcome

from onbeat.domain.auto_pause import Streak
from onbeat.domain.backfill import BackfillOrder
from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Response
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.contract import Store
from onbeat.store.values import (
    AcceptRun,
    AfterFinish,
    ApiKey,
    EndRun,
    FirePlan,
    JobChange,
    Mark,
    NewBackfill,
    Pause,
    Progress,
    SavedAnswer,
    SecretVersion,
)

DAY = 86_400 * SECOND


@dataclass(frozen=True)
class Filled:
    """What tests ask about later."""

    leased: RunKey
    token: bytes


async def fill(store: Store, *, secret: SecretVersion) -> Filled:
    """Write at least one row into each table, with values where columns may have one."""
    make = Maker(store)
    await store.calendars.put("default", "holidays", rules='{"weekdays": [0]}', now=NOW)
    await store.blackouts.put("default", "night", rules="{}", now=NOW)
    for state in JobState:
        if state is not JobState.DELETED:
            await make.job(state=state, next_fire_at=NOW + DAY if state is JobState.ACTIVE else None)
    named = await make.job(
        key="Ünïcode-KEY", name="Straße\U0001f553", tags=("billing", "é"), calendars=("holidays",), max_running=9,
        next_fire_at=NOW + DAY,
    )  # fmt: skip
    gone = await make.job(key="gone")
    await store.jobs.change(
        gone.job_id, now=NOW + 1, decide=lambda _job: JobChange(state=JobState.DELETED, next_fire_at=None)
    )
    await store.jobs.change(
        named.job_id, now=NOW + 1, decide=lambda _job: JobChange(definition='{"version": "second"}', max_running=9)
    )
    paused = await make.job()
    await store.jobs.change(
        paused.job_id,
        now=NOW + 1,
        decide=lambda _job: JobChange(
            state=JobState.PAUSED, reason="for a week", paused_at=NOW, paused_until=NOW + 7 * DAY, next_fire_at=None
        ),
    )
    await make.job(next_fire_at=None, after_finish=AfterFinish(60 * SECOND, until=NOW + DAY))
    marked = await make.job()
    marks = (
        Mark(NOW - 100 * SECOND, NOW - 50 * SECOND, 51, RunState.MISSED),
        Mark(NOW - SECOND, NOW - SECOND, 1, RunState.SKIPPED, SkipReason.OVERLAP, NOW - 100 * SECOND),
    )
    await store.fires.record_due(
        now=NOW, limit=1, decide=lambda _due: FirePlan(next_fire_at=NOW + DAY, marks=marks), slots=None
    )
    leased, token = await make.running(named, NOW + 11, lane=1, lease=new_lease(until=NOW + DAY), payload='{"a": 1}')
    await make.pending(named, NOW + 12, lane=2, queue="reports", moved_us=7)
    await make.waiting(named, NOW + 13)
    await make.retrying(named, NOW + 14)
    _, accepted = await make.running(named, NOW + 15, lane=3)
    key = RunKey(named.job_id, NOW + 15)
    await make.finish(key, accepted, outcome(), decide=Judge(AcceptRun(NOW + LEASE_US)))
    await store.leases.report(
        Progress(key, callback_token(accepted), 12.5, "half a\0way"), now=NOW, decide=lambda _run, _text: NOW + LEASE_US
    )
    await make.ended(marked, NOW + 20)
    failed, failing = await make.running(marked, NOW + 21)
    response = Response((("content-type", "text/plain"),), b"no\0t now", truncated=False)
    await make.finish(
        failed,
        failing,
        outcome(FAILURE.kind, status=503, error="the receiver\0answered", response=response),
        decide=Judge(EndRun(RunState.FAILED, "given up", streak=Streak(2, NOW - SECOND))),
    )
    await store.backfills.begin(
        NewBackfill(named.job_id, NOW - DAY, NOW, BackfillOrder.OLDEST, rate_per_s=2, most=10, instants=100), now=NOW
    )
    await store.pauses.begin(
        Pause(namespace="default", tag="billing", note="holi\0days", paused_at=NOW, until=NOW + DAY, cancels=True)
    )
    await store.access.add_key(ApiKey("k1", "default", "deploy", b"\x00\x01" * 16, ("admin",), NOW, NOW + DAY))
    await store.access.add_secret(secret, retire_others_at=None)
    await store.access.reserve_answer("s", "k", b"f", now=NOW)
    await store.access.save_answer("s", "k", SavedAnswer(b"f", 201, "location: /jobs/1", b"{}\0"))
    await make.runs(named, new_run(NOW + 16, lane=4))
    return Filled(leased, token)
