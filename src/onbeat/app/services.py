"""Builds every service over one open store. Owns which object is shared with which."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from onbeat.app.egress import egress_rules
from onbeat.clock import DatabaseClock
from onbeat.config import Settings
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import ConfigError
from onbeat.services.almanac import Almanac
from onbeat.services.api_keys import ApiKeys
from onbeat.services.backfills import Backfills
from onbeat.services.blackouts import Blackouts
from onbeat.services.calendars import Calendars
from onbeat.services.callbacks import Callbacks
from onbeat.services.definitions import DefinitionCache
from onbeat.services.dispatch import Dispatch
from onbeat.services.endings import Endings
from onbeat.services.handoff import Handoff
from onbeat.services.hints import Hints
from onbeat.services.idempotency import Idempotency
from onbeat.services.jobs import Jobs
from onbeat.services.leasing import Leasing
from onbeat.services.membership import Membership
from onbeat.services.node_list import NodeList
from onbeat.services.pauses import Pauses
from onbeat.services.readiness import Readiness
from onbeat.services.reap import Reap
from onbeat.services.recovery import Recovery
from onbeat.services.resumptions import Resumptions
from onbeat.services.retain import Retain
from onbeat.services.running import RunningHere
from onbeat.services.runs import Runs
from onbeat.services.secret_box import SecretBox, load_or_create_master_key, parse_master_key
from onbeat.services.signing_secrets import SigningSecrets
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.database_url import is_postgres_url
from onbeat.store.open import open_store
from onbeat.store.sqlite.datafile import resolve_data_file


@dataclass(frozen=True, slots=True)
class Services:
    """The services over one open store."""

    store: Store
    clock: DatabaseClock
    handoff: Handoff
    readiness: Readiness
    hints: Hints
    dispatch: Dispatch
    recovery: Recovery
    dispatch_wake: Wake
    running: RunningHere
    definitions: DefinitionCache
    endings: Endings
    almanac: Almanac
    calendars: Calendars
    blackouts: Blackouts
    backfills: Backfills
    backfills_wake: Wake
    replan_wake: Wake
    jobs: Jobs
    runs: Runs
    resumptions: Resumptions
    pauses: Pauses
    pauses_wake: Wake
    callbacks: Callbacks
    reap: Reap
    retain: Retain
    keys: ApiKeys
    secrets: SigningSecrets
    idempotency: Idempotency
    nodes: NodeList
    egress: EgressRules
    jitter: random.Random
    lease_s: float
    public_url: str | None

    def leasing_for(self, worker: str) -> Leasing:
        """The five calls of a worker of that name."""
        return Leasing(
            worker,
            store=self.store,
            clock=self.clock,
            handoff=self.handoff,
            readiness=self.readiness,
            definitions=self.definitions,
            secrets=self.secrets,
            endings=self.endings,
            public_url=self.public_url,
            lease_s=self.lease_s,
            jitter=self.jitter,
        )

    def membership_of(self, name: str, *, about: Mapping[str, str | int]) -> Membership:
        """The place of a node of that name among the others; `about` is what people want to know of its process."""
        return Membership(
            name=name,
            about=about,
            store=self.store,
            clock=self.clock,
            dispatch=self.dispatch,
            recovery=self.recovery,
            dispatch_wake=self.dispatch_wake,
        )


@contextlib.asynccontextmanager
async def open_services(settings: Settings, *, egress: EgressRules | None = None) -> AsyncIterator[Services]:
    """Open the database and build every service over it.

    Raises DataFileInUse, SchemaTooNew, ConfigError, StoreUnavailable.
    """
    if settings.master_key is None and is_postgres_url(settings.data):
        raise ConfigError(
            "nodes on PostgreSQL need a master key: it is kept apart from the database, and is the same on all of them",
            field="master_key",
            remedy="`openssl rand -base64 32` makes one; set ONBEAT_MASTER_KEY_FILE to a file that holds it",
        )
    store = await open_store(settings.data)
    try:
        clock = await DatabaseClock.start(store.read_clock)
        almanac = Almanac(store=store)
        await almanac.load(now=clock.now())
        yield _build_services(settings, store, clock, almanac, egress or egress_rules(settings))
    finally:
        await store.close()


def _build_services(
    settings: Settings, store: Store, clock: DatabaseClock, almanac: Almanac, egress: EgressRules
) -> Services:
    box = SecretBox(_master_key(settings))
    handoff, definitions, running, dispatch_wake = Handoff(), DefinitionCache(), RunningHere(), Wake()
    replan_wake, backfills_wake = Wake(), Wake()
    endings = Endings()
    jitter = random.Random()  # noqa: S311  spreads retries, protects nothing
    secrets = SigningSecrets(store=store, clock=clock, box=box)
    recovery = Recovery(per_s=settings.recovery_per_s)
    dispatch = Dispatch(
        store=store,
        clock=clock,
        handoff=handoff,
        definitions=definitions,
        almanac=almanac,
        running=running,
        recovery=recovery,
        lease_s=settings.lease_s,
    )
    jobs = Jobs(
        store=store,
        clock=clock,
        dispatch=dispatch,
        dispatch_wake=dispatch_wake,
        running=running,
        secrets=secrets,
        almanac=almanac,
        egress=egress,
        can_be_called=settings.public_url is not None,
    )
    runs = Runs(store=store, clock=clock, handoff=handoff, running=running, recovery=recovery)
    pauses_wake = Wake()
    return Services(
        store=store,
        clock=clock,
        handoff=handoff,
        readiness=Readiness(store=store, handoff=handoff),
        hints=Hints(store=store, handoff=handoff, dispatch=dispatch, dispatch_wake=dispatch_wake, running=running),
        dispatch=dispatch,
        recovery=recovery,
        dispatch_wake=dispatch_wake,
        running=running,
        definitions=definitions,
        endings=endings,
        almanac=almanac,
        calendars=Calendars(
            store=store, clock=clock, almanac=almanac, replan_wake=replan_wake, dispatch_wake=dispatch_wake
        ),
        blackouts=Blackouts(store=store, clock=clock, almanac=almanac),
        backfills=Backfills(
            store=store,
            clock=clock,
            almanac=almanac,
            definitions=definitions,
            handoff=handoff,
            wake=backfills_wake,
        ),
        backfills_wake=backfills_wake,
        replan_wake=replan_wake,
        jobs=jobs,
        runs=runs,
        resumptions=Resumptions(store=store, jobs=jobs, runs=runs),
        pauses=Pauses(store=store, clock=clock, jobs=jobs, runs=runs, wake=pauses_wake),
        pauses_wake=pauses_wake,
        callbacks=Callbacks(
            store=store, clock=clock, handoff=handoff, definitions=definitions, endings=endings, jitter=jitter
        ),
        reap=Reap(store=store, clock=clock, handoff=handoff, definitions=definitions, endings=endings, jitter=jitter),
        retain=Retain(store=store, clock=clock, keep_s=round(settings.keep_days * 86_400)),
        keys=ApiKeys(store=store, clock=clock),
        secrets=secrets,
        idempotency=Idempotency(store=store, clock=clock),
        nodes=NodeList(store=store, clock=clock),
        egress=egress,
        jitter=jitter,
        lease_s=settings.lease_s,
        public_url=settings.public_url,
    )


def _master_key(settings: Settings) -> bytes:
    if settings.master_key is not None:
        return parse_master_key(settings.master_key)
    data_file = resolve_data_file(settings.data)
    return load_or_create_master_key(data_file.with_name(data_file.name + ".key"))
