"""Jobs as they are answered, and what a merge patch is merged into."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from onbeat.api.schemas.auto_pause import AutoPauseBody, view_auto_pause
from onbeat.api.schemas.base import View, moment
from onbeat.api.schemas.jobs import MisfireBody, default_lanes
from onbeat.api.schemas.retries import RetryBody, view_retry
from onbeat.domain.errors import DefinitionError
from onbeat.domain.ids import format_job_id
from onbeat.domain.model import (
    AfterFinishSchedule,
    AtSchedule,
    CalendarUse,
    CronSchedule,
    Definition,
    QueueTarget,
    RruleSchedule,
    Schedule,
    WebhookTarget,
    decode_definition,
)
from onbeat.store.values import StoredJob


class ScheduleView(View):
    """A rule as it is stored."""

    cron: str | None = None
    rrule: str | None = None
    dtstart: str | None = Field(None, description="Local time in `timezone`")
    every: int | None = Field(None, description="Seconds")
    at: str | None = None
    every_after_finish: int | None = Field(None, description="Seconds")
    timezone: str | None = None
    anchor: str | None = None
    start_at: str | None = None
    end_at: str | None = None
    max_fires: int | None = None
    dst_gap: str | None = None
    dst_overlap: str | None = None
    exclude: list[str] | None = None
    only: list[str] | None = None
    roll: str | None = None


class TargetView(View):
    """Where a fire goes."""

    url: str | None = None
    method: str | None = None
    headers: dict[str, str] | None = None
    body: str | None = None
    payload: Any = None
    secret: str | None = None
    queue: str | None = None


class JobRef(View):
    """A job in a few words."""

    id: str
    key: str | None
    name: str
    version: int
    state: Literal["active", "paused", "completed", "error"]
    next_fire_at: str | None


class JobView(JobRef):
    """A job as it stands. The fields that can be written read back as they can be written.

    Where the stored definition cannot be read, its fields are empty and `reason` says why.
    """

    tags: list[str]
    reason: str | None = Field(description="Why it is in `error` or paused by itself, or the note of a pause")
    created_at: str
    updated_at: str
    paused_at: str | None
    paused_until: str | None = Field(description="When its own pause ends by itself")
    paused_by: str | None = Field(description="`all` or `tag:…`: the pause of many jobs that holds it; null: its own")
    schedules: list[ScheduleView]
    target: TargetView | None
    grace_s: int | None
    misfire: MisfireBody | None
    overlap: str | None
    max_running: int | None
    retry: RetryBody | None
    timeout_s: float | None
    connect_timeout_s: float | None
    max_run_time_s: int | None
    delivery: str | None
    completion: str | None
    callback_heartbeat_s: int | None
    auto_pause: AutoPauseBody | None
    spread_s: int | None
    jitter_s: int | None
    priority: int | None


class JobPage(View):
    """Jobs, newest first."""

    items: list[JobView]
    next_cursor: str | None = Field(description="null: this was the last page")


def refer_to_job(job: StoredJob) -> dict[str, Any]:
    """A JobRef, ready to be written as JSON."""
    return {
        "id": format_job_id(job.job_id),
        "key": job.key,
        "name": job.name,
        "version": job.version,
        "state": job.state.value,
        "next_fire_at": moment(job.next_fire_at),
    }


def view_job(job: StoredJob) -> dict[str, Any]:
    """A JobView, ready to be written as JSON."""
    return {
        **refer_to_job(job),
        "tags": list(job.tags),
        "reason": job.reason,
        "created_at": moment(job.created_at),
        "updated_at": moment(job.updated_at),
        "paused_at": moment(job.paused_at),
        "paused_until": moment(job.paused_until),
        "paused_by": None if job.paused_by is None else f"tag:{job.paused_by}" if job.paused_by else "all",
        **(_readable(job) or _UNREADABLE),
    }


def writable_job(job: StoredJob, patch: dict[str, Any]) -> dict[str, Any]:
    """Every field of a job that can be written, as `patch` finds them.

    Two fields follow others: a target of the other kind replaces the whole target, and the number of lanes goes with
    the overlap rule while it is that rule's default.
    """
    fields: dict[str, Any] = {"key": job.key, "name": job.name, "tags": list(job.tags), **(_readable(job) or {})}
    target = patch.get("target")
    if isinstance(target, dict) and any(
        target.get(kind) is not None and kind not in fields.get("target", {}) for kind in ("url", "queue")
    ):
        fields["target"] = {}
    if "overlap" in patch and fields.get("max_running") == default_lanes(str(fields.get("overlap"))):
        del fields["max_running"]
    return fields


_UNREADABLE: dict[str, Any] = {
    "schedules": [],
    "target": None,
    "grace_s": None,
    "misfire": None,
    "overlap": None,
    "max_running": None,
    "retry": None,
    "timeout_s": None,
    "connect_timeout_s": None,
    "max_run_time_s": None,
    "delivery": None,
    "completion": None,
    "callback_heartbeat_s": None,
    "auto_pause": None,
    "spread_s": None,
    "jitter_s": None,
    "priority": None,
}


def _readable(job: StoredJob) -> dict[str, Any] | None:
    """The definition as it could be sent to us again. None: a row that nobody of ours wrote."""
    try:
        return _writable(decode_definition(job.definition))
    except (DefinitionError, OverflowError):
        return None


def _writable(definition: Definition) -> dict[str, Any]:
    """A definition as it could be sent to us again."""
    misfire = definition.misfire
    return {
        "schedules": [_view_schedule(schedule) for schedule in definition.schedules],
        "target": _view_target(definition.target),
        "grace_s": definition.grace_s,
        "misfire": {
            "policy": misfire.policy,
            "max": misfire.max,
            "window_s": misfire.window_s,
            "spacing_s": misfire.spacing_s,
        },
        "overlap": definition.overlap,
        "max_running": definition.max_running,
        "retry": view_retry(definition.retry),
        "timeout_s": definition.timeout_s,
        "connect_timeout_s": definition.connect_timeout_s,
        "max_run_time_s": definition.max_run_time_s,
        "delivery": definition.delivery,
        "completion": definition.completion,
        "callback_heartbeat_s": definition.callback_heartbeat_s,
        "auto_pause": view_auto_pause(definition.auto_pause),
        "spread_s": definition.spread_s,
        "jitter_s": definition.jitter_s,
        "priority": definition.priority,
    }


def _view_schedule(schedule: Schedule) -> dict[str, Any]:
    shown: dict[str, Any]
    match schedule:
        case CronSchedule(expression, timezone, dst_gap, dst_overlap):
            shown = {"cron": expression, "timezone": timezone, "dst_gap": dst_gap, "dst_overlap": dst_overlap}
        case RruleSchedule(rule, dtstart, timezone):
            shown = {"rrule": rule, "dtstart": dtstart, "timezone": timezone}
        case AfterFinishSchedule(every_s):
            shown = {"every_after_finish": every_s}
        case AtSchedule(at):
            shown = {"at": moment(at)}
        case _:
            shown = {"every": schedule.every_s, "anchor": moment(schedule.anchor_at)}
    shown |= {
        "start_at": moment(schedule.start_at),
        "end_at": moment(schedule.end_at),
        "max_fires": schedule.max_fires,
    }
    if schedule.calendars is not None:
        shown |= _view_calendars(schedule.calendars)
    return {name: value for name, value in shown.items() if value is not None}


def _view_calendars(use: CalendarUse) -> dict[str, Any]:
    return {"exclude": list(use.exclude), "only": list(use.only), "roll": use.roll}


def _view_target(target: WebhookTarget | QueueTarget) -> dict[str, Any]:
    payload = {} if target.payload is None else {"payload": _read_payload(target.payload)}
    if isinstance(target, QueueTarget):
        return {"queue": target.queue, **payload}
    body = {} if target.body is None else {"body": target.body}
    return {
        "url": target.url,
        "method": target.method,
        "headers": dict(target.headers),
        "secret": target.secret,
        **body,
        **payload,
    }


def _read_payload(text: str) -> Any:
    """The value; a row that was written by hand with something else shows that text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
