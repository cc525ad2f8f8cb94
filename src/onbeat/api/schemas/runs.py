"""Runs at the edge."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, Literal

from pydantic import Field

from onbeat.api.schemas.base import View, moment
from onbeat.domain.ids import RunKey, format_job_id, format_run_id
from onbeat.store.values import AttemptView as StoredAttempt
from onbeat.store.values import RunView as StoredRun

RunStateName = Literal[
    "pending", "running", "succeeded", "failed", "timed_out", "cancelled", "unknown", "missed", "skipped"
]

BODY_LISTED: Final = 1_024
"""Bytes of each answer's body in a list: enough for an error, and a page of 1,000 stays small."""


class ProgressView(View):
    """How far a handler says it is."""

    percent: float | None
    message: str | None
    at: str


class RunView(View):
    """What became of a fire. A row with `count` > 1 stands for all planned instants from `scheduled_at` to `until`."""

    id: str
    job_id: str
    state: RunStateName
    reason: str | None = Field(description="Why it was skipped")
    trigger: str
    scheduled_at: str
    count: int
    until: str | None
    blocked_by: str | None = Field(description="Id of the run that was in the way")
    job_version: int
    attempt: int = Field(description="Number of the last attempt begun; 0: none yet")
    late: bool
    starts_at: str = Field(description="The planned instant, moved by spread and jitter: lateness counts from here")
    lag_ms: float | None = Field(description="From `starts_at` to the start of the first attempt")
    duration_ms: float | None = Field(description="Of the last attempt")
    status: int | None = Field(description="HTTP status of the last attempt")
    outcome: str | None
    error: str | None
    created_at: str
    ready_at: str | None = Field(description="Not before this instant will it start")
    started_at: str | None
    finished_at: str | None
    worker: str | None
    queue: str | None
    cancel_requested: bool
    lease_until: str | None
    deadline_at: str | None
    accepted_at: str | None = Field(description="Since then its handler holds it, which reports by itself")
    progress: ProgressView | None = Field(description="What its handler said last")


class TriggeredView(RunView):
    """A run that was made by hand."""

    hint: str | None = Field(None, description="What the caller might not know: a blackout holds back other runs now")


class ListedRunView(RunView):
    """A run in a list."""

    response: dict[str, Any] | None = Field(
        None,
        description="With `response=true`: what the last attempt was answered, null where no answer came. Headers, the "
        "first 1 KiB of the body (base64), truncated. `/attempts` has the first 16 KiB",
    )


class RunPage(View):
    """Runs, newest planned instant first."""

    items: list[ListedRunView]
    next_cursor: str | None


class AttemptView(View):
    """One finished attempt."""

    attempt: int
    outcome: str
    status: int | None
    error: str | None
    started_at: str
    duration_ms: float
    worker: str | None
    response: dict[str, Any] | None = Field(description="Headers, the first 16 KiB of the body (base64), truncated")


class AttemptList(View):
    """Every finished attempt of a run, by number."""

    items: list[AttemptView]


def view_run(run: StoredRun) -> dict[str, Any]:
    """The run for people, ready to be written as JSON."""
    started_at = run.started_at
    starts_at = run.key.scheduled_at + run.moved_us
    return {
        "id": format_run_id(run.key),
        "job_id": format_job_id(run.key.job_id),
        "state": run.state.value,
        "reason": run.reason,
        "trigger": run.trigger.value,
        "scheduled_at": moment(run.key.scheduled_at),
        "count": run.count,
        "until": moment(run.until),
        "blocked_by": None if run.blocked_by is None else format_run_id(RunKey(run.key.job_id, run.blocked_by)),
        "job_version": run.job_version,
        "attempt": run.attempt,
        "late": run.late,
        "starts_at": moment(starts_at),
        "lag_ms": None if started_at is None else (started_at - starts_at) / 1_000,
        "duration_ms": None if run.duration_us is None else run.duration_us / 1_000,
        "status": run.status,
        "outcome": run.outcome,
        "error": run.error,
        "created_at": moment(run.created_at),
        "ready_at": moment(run.ready_at),
        "started_at": moment(started_at),
        "finished_at": moment(run.finished_at),
        "worker": run.worker,
        "queue": run.queue,
        "cancel_requested": run.cancel_requested,
        "lease_until": moment(run.lease_until),
        "deadline_at": moment(run.deadline_at),
        "accepted_at": moment(run.accepted_at),
        "progress": None
        if run.progress_at is None
        else {"percent": run.progress_percent, "message": run.progress_message, "at": moment(run.progress_at)},
    }


def view_response(stored: bytes | None) -> dict[str, Any] | None:
    """What a receiver answered, for a list."""
    if stored is None:
        return None
    response: dict[str, Any] = json.loads(stored)
    body = base64.b64decode(response["body"])
    if len(body) > BODY_LISTED:
        response |= {"body": base64.b64encode(body[:BODY_LISTED]).decode(), "truncated": True}
    return response


def view_attempt(attempt: StoredAttempt) -> dict[str, Any]:
    """The attempt for people."""
    return {
        "attempt": attempt.attempt,
        "outcome": attempt.kind,
        "status": attempt.status,
        "error": attempt.error,
        "started_at": moment(attempt.started_at),
        "duration_ms": attempt.duration_us / 1_000,
        "worker": attempt.worker,
        "response": None if attempt.response is None else json.loads(attempt.response),
    }
