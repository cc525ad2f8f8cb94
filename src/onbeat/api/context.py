"""What the API stands on, built by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request

from onbeat.clock import Clock
from onbeat.services.almanac import Almanac
from onbeat.services.api_keys import ApiKeys
from onbeat.services.backfills import Backfills
from onbeat.services.blackouts import Blackouts
from onbeat.services.calendars import Calendars
from onbeat.services.callbacks import Callbacks
from onbeat.services.idempotency import Idempotency
from onbeat.services.jobs import Jobs
from onbeat.services.leasing import Leasing
from onbeat.services.node_list import NodeList
from onbeat.services.pauses import Pauses
from onbeat.services.resumptions import Resumptions
from onbeat.services.runs import Runs
from onbeat.services.signing_secrets import SigningSecrets
from onbeat.store.values import Counts
from onbeat.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The services, and what health tells."""

    jobs: Jobs
    calendars: Calendars
    blackouts: Blackouts
    almanac: Almanac
    runs: Runs
    resumptions: Resumptions
    callbacks: Callbacks
    pauses: Pauses
    backfills: Backfills
    leasing_for: Callable[[str], Leasing]
    keys: ApiKeys | None  # None: `onbeat dev`, which binds loopback and needs no keys
    secrets: SigningSecrets
    idempotency: Idempotency
    nodes: NodeList
    clock: Clock
    counts: Callable[[], Awaitable[Counts]]
    failing_loops: Callable[[], list[str]]
    is_stopping: Callable[[], bool]
    metrics: Metrics
    allowed_hosts: tuple[str, ...]
    version: str


def context_of(request: Request) -> ApiContext:
    """The context of the application that serves this request."""
    context: ApiContext = request.app.state.context
    return context
