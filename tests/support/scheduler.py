"""A scheduler without its loops: every step is taken by hand, under a clock that is turned by hand."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from tests.support.database import Data

from onbeat.clock import ManualClock
from onbeat.domain.egress import EgressRules
from onbeat.domain.model import Definition, EverySchedule, WebhookTarget
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.services.almanac import Almanac
from onbeat.services.assignment import Assignment
from onbeat.services.backfills import Backfills
from onbeat.services.blackouts import Blackouts
from onbeat.services.calendars import Calendars
from onbeat.services.callbacks import Callbacks
from onbeat.services.definitions import DefinitionCache
from onbeat.services.dispatch import Dispatch
from onbeat.services.endings import Endings
from onbeat.services.handoff import Handoff
from onbeat.services.hints import Hints
from onbeat.services.job_rules import DraftSchedule, EveryDraft, JobDraft
from onbeat.services.jobs import Change, Jobs
from onbeat.services.leasing import Leasing
from onbeat.services.membership import Membership
from onbeat.services.pauses import Pauses
from onbeat.services.readiness import Readiness
from onbeat.services.reap import Reap
from onbeat.services.recovery import Recovery
from onbeat.services.resumptions import Resumptions
from onbeat.services.running import RunningHere
from onbeat.services.runs import Runs
from onbeat.services.secret_box import SecretBox
from onbeat.services.signing_secrets import SigningSecrets
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.open import open_store
from onbeat.store.values import Finish, StoredJob

SECOND = 1_000_000
LEASE_S = 30.0
RECOVERY_PER_S = 50
START = 1_800_000_000 * SECOND
PUBLIC_URL = "https://onbeat.example"
TARGET = WebhookTarget(url="http://127.0.0.1:9/")


class Scheduler:
    """Every service over one store, as `open_services` builds them."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.handoff = Handoff()
        self.readiness = Readiness(store=store, handoff=self.handoff)
        self.definitions = DefinitionCache()
        self.running = RunningHere()
        self.endings = Endings()
        self.jitter = random.Random(1)
        self.recovery = Recovery(per_s=RECOVERY_PER_S)
        self.dispatch_wake = Wake()
        self.secrets = SigningSecrets(store=store, clock=clock, box=SecretBox(bytes(32)))
        self.almanac = Almanac(store=store)
        self.blackouts = Blackouts(store=store, clock=clock, almanac=self.almanac)
        self.calendars = Calendars(
            store=store, clock=clock, almanac=self.almanac, replan_wake=Wake(), dispatch_wake=self.dispatch_wake
        )
        self.recovery = Recovery(per_s=RECOVERY_PER_S)
        self.dispatch = Dispatch(
            store=store,
            clock=clock,
            handoff=self.handoff,
            definitions=self.definitions,
            almanac=self.almanac,
            running=self.running,
            recovery=self.recovery,
            lease_s=LEASE_S,
        )
        self.hints = Hints(
            store=store,
            handoff=self.handoff,
            dispatch=self.dispatch,
            dispatch_wake=self.dispatch_wake,
            running=self.running,
        )
        self.jobs = Jobs(
            store=store,
            clock=clock,
            dispatch=self.dispatch,
            dispatch_wake=self.dispatch_wake,
            running=self.running,
            secrets=self.secrets,
            almanac=self.almanac,
            egress=EgressRules.for_development(),
            can_be_called=True,
        )
        self.runs = Runs(store=store, clock=clock, handoff=self.handoff, running=self.running, recovery=self.recovery)
        self.resumptions = Resumptions(store=store, jobs=self.jobs, runs=self.runs)
        self.pauses = Pauses(store=store, clock=clock, jobs=self.jobs, runs=self.runs, wake=Wake())
        self.backfills = Backfills(
            store=store,
            clock=clock,
            almanac=self.almanac,
            definitions=self.definitions,
            handoff=self.handoff,
            wake=Wake(),
        )
        self.reap = Reap(
            store=store,
            clock=clock,
            handoff=self.handoff,
            definitions=self.definitions,
            endings=self.endings,
            jitter=self.jitter,
        )
        self.callbacks = Callbacks(
            store=store,
            clock=clock,
            handoff=self.handoff,
            definitions=self.definitions,
            endings=self.endings,
            jitter=self.jitter,
        )
        self.leasing = self.leasing_for("worker")

    def leasing_for(self, worker: str) -> Leasing:
        """The calls of a worker of that name."""
        return Leasing(
            worker,
            store=self.store,
            clock=self.clock,
            handoff=self.handoff,
            readiness=self.readiness,
            definitions=self.definitions,
            secrets=self.secrets,
            endings=self.endings,
            public_url=PUBLIC_URL,
            lease_s=LEASE_S,
            jitter=self.jitter,
        )

    def membership_of(self, name: str) -> Membership:
        """The place of a node of that name."""
        return Membership(
            name=name,
            about={"pid": 1},
            store=self.store,
            clock=self.clock,
            dispatch=self.dispatch,
            recovery=self.recovery,
            dispatch_wake=self.dispatch_wake,
        )

    async def job(self, *schedules: DraftSchedule, **changes: Any) -> StoredJob:
        """A saved job; without schedules it fires each second."""
        return await self.jobs.create(draft(*(schedules or (every(1),)), **changes), namespace="default")

    async def edit(self, job: StoredJob, *schedules: DraftSchedule, **changes: Any) -> StoredJob:
        """Save the job with other schedules or policies."""
        return await self.jobs.update(job.job_id, Change(lambda _stored, _existing: draft(*schedules, **changes)))

    async def claim(self, *, limit: int = 100) -> list[Assignment]:
        """What is ready now."""
        return await self.leasing.claim(queue=None, limit=limit, wait_s=0)

    async def end(self, assignments: list[Assignment], kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> None:
        """Report the end of these attempts."""
        status = 200 if kind is OutcomeKind.SUCCEEDED else None
        outcome = Outcome(kind, self.clock.now(), 1_000, status)
        await self.leasing.finish([Finish(held.key, held.token, outcome) for held in assignments])

    async def backfill_until(self, job: StoredJob, number: int) -> None:
        """Turn the clock from batch to batch until this backfill has ended."""
        while (await self.backfills.get(job.job_id, number)).ended_at is None:
            next_at = await self.backfills.advance()
            if next_at is not None and next_at > self.clock.now():
                self.clock.advance((next_at - self.clock.now()) / SECOND)

    async def settle(self) -> None:
        """Fire all that is due and let it succeed, until nothing is left to do now."""
        while (await self.dispatch.fire_due()).full:
            pass
        while assignments := await self.claim():
            await self.end(assignments)


@contextlib.asynccontextmanager
async def scheduling(data: Data, *, clock: ManualClock | None = None) -> AsyncIterator[Scheduler]:
    """A scheduler over `data`, an empty database or one that another scheduler left."""
    clock = clock or ManualClock(START)
    store = await open_store(str(data), read_time=clock.now)
    try:
        yield Scheduler(store, clock)
    finally:
        await store.close()


def every(seconds: int) -> EveryDraft:
    """An interval on the grid of its length."""
    return EveryDraft(every_s=seconds, anchor_at=0)


def draft(*schedules: DraftSchedule, name: str = "job", **changes: Any) -> JobDraft:
    """A job as somebody writes it."""
    placeholder = Definition(schedules=(EverySchedule(every_s=1, anchor_at=0),), target=TARGET)
    definition = msgspec.structs.replace(placeholder, **changes)
    return JobDraft(key=None, name=name, tags=(), schedules=schedules, definition=definition)
