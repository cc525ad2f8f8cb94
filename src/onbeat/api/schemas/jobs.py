"""Jobs as they are written. What can be written reads back the same (job_views), so GET → PUT changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from onbeat.api.schemas.auto_pause import AutoPauseBody, read_auto_pause
from onbeat.api.schemas.base import Body, Key, Name, QueueName, Tag, Text
from onbeat.api.schemas.retries import RetryBody, read_retry
from onbeat.domain import zones
from onbeat.domain.duration import parse_duration
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import (
    next_whole_second,
    parse_instant,
    parse_local,
    parse_moment,
    resolve_local,
    write_local,
)
from onbeat.domain.last_fire import MOST_FIRES
from onbeat.domain.model import (
    DEFAULT_PRIORITY,
    MAX_PRIORITY,
    MAX_RUNNING,
    MAX_SCHEDULES,
    SECOND_US,
    AfterFinishSchedule,
    AtSchedule,
    CalendarUse,
    CronSchedule,
    Definition,
    MisfirePolicy,
    QueueTarget,
    RruleSchedule,
    WebhookTarget,
)
from onbeat.domain.offsets import LAST_SECOND, offset_at
from onbeat.domain.rrule import LONGEST_RULE
from onbeat.services.job_rules import DraftSchedule, EveryDraft, JobDraft
from onbeat.services.signing_secrets import DEFAULT_SECRET

LONGEST_EXPRESSION = 1_000
DAY_S = 86_400
MOST_CALENDARS = 16

EXAMPLE_JOB: JsonDict = {
    "key": "nightly-report",
    "name": "Nightly report",
    "schedules": [{"cron": "0 3 * * *", "timezone": "Europe/Kyiv"}],
    "target": {"url": "https://example.com/hook", "payload": {"report": "sales"}},
}


KINDS = ("cron", "rrule", "every", "at", "every_after_finish")


class ScheduleBody(Body):
    """One rule: exactly one of `cron`, `rrule`, `every`, `at` and `every_after_finish`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in KINDS]})

    cron: str | None = Field(
        None, max_length=LONGEST_EXPRESSION, examples=["0 3 * * *"], description="5 fields, or 6 with leading seconds"
    )
    rrule: str | None = Field(
        None,
        max_length=LONGEST_RULE,
        examples=["FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9"],
        description="An RFC 5545 rule of one line, daily or rarer; begins at `dtstart`",
    )
    dtstart: str | None = Field(
        None,
        max_length=64,
        examples=["2027-01-01T09:00:00"],
        description="`rrule`: where its periods begin, and what it takes from there if it does not name it. "
        "Local time in `timezone`, or an instant",
    )
    every: int | str | None = Field(
        None, examples=["5m", 300], description='Seconds, or a length like "90s", "2h", "PT2H"'
    )
    at: str | None = Field(
        None,
        max_length=64,
        examples=["2027-01-01T09:00:00Z"],
        description="An instant; with `timezone` it may be local time",
    )
    every_after_finish: int | str | None = Field(
        None,
        examples=["5m"],
        description="The next fire comes this long after the run ended, however it ended. The only schedule of its job",
    )
    timezone: str | None = Field(
        None, max_length=64, examples=["Europe/Kyiv"], description="IANA zone of `cron` and `rrule`, or of a local `at`"
    )
    anchor: str | None = Field(
        None,
        max_length=64,
        description='`every` counts from here: an instant or "epoch"; default: `start_at`, else its creation',
    )
    start_at: str | None = Field(
        None,
        max_length=64,
        examples=["2027-01-01T00:00:00Z"],
        description="Nothing fires before this; an instant, or local time where there is a `timezone`. Inclusive",
    )
    end_at: str | None = Field(None, max_length=64, description="Nothing fires after this; like `start_at`. Inclusive")
    max_fires: int | None = Field(
        None,
        ge=1,
        le=MOST_FIRES,
        description="So many planned instants and no more, counted from `start_at` or the creation of the job",
    )
    dst_gap: Literal["shift", "skip"] | None = Field(
        None,
        description="`cron`: local times that the clock leaves out fire once, right after the gap, or not at all. "
        "Default: shift for times of the day, skip where minute or hour starts with *",
    )
    dst_overlap: Literal["first", "second", "both"] | None = Field(
        None,
        description="`cron`: which of two equal local times fires. "
        "Default: first for times of the day, both where minute or hour starts with *",
    )
    exclude: list[Key] = Field(
        default_factory=list, max_length=MOST_CALENDARS, description="No fires on days of these calendars"
    )
    only: list[Key] = Field(
        default_factory=list, max_length=MOST_CALENDARS, description="Fires only on days of any of these calendars"
    )
    roll: Literal["skip", "next_business_day", "previous_business_day"] = Field(
        "skip", description="What becomes of an instant that calendars keep out: it moves by up to 31 days, or goes"
    )


class TargetBody(Body):
    """Where a fire goes: a webhook (`url`) or a queue that your own workers claim from (`queue`)."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["url"]}, {"required": ["queue"]}]})

    url: str | None = Field(None, max_length=8_192, examples=["https://example.com/hook"])
    method: str = Field("POST", max_length=16)
    headers: dict[str, Text] = Field(default_factory=dict, max_length=1_000)
    body: Text | None = Field(None, description="Sent as written, byte for byte; without it a JSON envelope is sent")
    payload: Any = Field(None, description="Any JSON; travels in the envelope")
    secret: str = Field(DEFAULT_SECRET, max_length=128, description="Name of the signing secret")
    queue: QueueName | None = None


class MisfireBody(Body):
    """What to do about instants that nobody dispatched within grace."""

    policy: Literal["skip", "run_latest", "catch_up"] = "skip"
    max: int = Field(3, ge=1, le=100)
    window_s: int = Field(DAY_S, ge=1, le=366 * DAY_S)
    spacing_s: int = Field(1, ge=0, le=3_600)


class JobBody(Body):
    """A job as it is written."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_JOB]})

    key: Key | None = Field(None, description="Your own handle, unique in the namespace", examples=["nightly-report"])
    name: Name = Field(examples=["Nightly report"])
    tags: list[Tag] = Field(default_factory=list, max_length=32)
    schedules: list[ScheduleBody] = Field(
        min_length=1, max_length=1_000, description=f"At most {MAX_SCHEDULES}; their union"
    )
    timezone: str | None = Field(None, max_length=64, description="Default zone of the schedules; UTC without it")
    past: Literal["refuse", "run_now"] = Field("refuse", description="What an `at` in the past means")
    target: TargetBody
    grace_s: int = Field(
        30,
        ge=1,
        le=DAY_S,
        description="How late a fire may start and still be on time. Not 0: none starts in no time, so none would run",
    )
    misfire: MisfireBody = MisfireBody()
    overlap: Literal["queue", "skip", "allow", "replace"] = "queue"
    max_running: int | None = Field(
        None, ge=1, le=MAX_RUNNING, description="Default 1, or 100 where overlap is `allow`"
    )
    retry: RetryBody = RetryBody()
    timeout_s: float = Field(
        30.0, gt=0, le=3_600, description="Of an attempt, from name resolution to the last byte of the answer"
    )
    connect_timeout_s: float | None = Field(
        None, gt=0, le=3_600, description="Of it, the time until the connection stands; without it 5 s per step"
    )
    max_run_time_s: int = Field(DAY_S, ge=1, le=30 * DAY_S)
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    completion: Literal["response", "callback"] = Field(
        "response", description="callback: a 2xx means accepted, and the handler reports the end by a call of its own"
    )
    callback_heartbeat_s: int | None = Field(
        None, ge=1, le=30 * DAY_S, description="`callback`: a handler that is silent for longer has lost the run"
    )
    auto_pause: AutoPauseBody | None = Field(None, description="null: however often it fails, it goes on")
    spread_s: int = Field(
        0, ge=0, le=DAY_S, description="All fires start later by one length below this, drawn from the job's id"
    )
    jitter_s: int = Field(
        0, ge=0, le=DAY_S, description="Each fire starts later by a length below this, drawn from its identity"
    )
    priority: int = Field(
        DEFAULT_PRIORITY, ge=0, le=MAX_PRIORITY, description="Of runs that are ready, higher ones start first; it ages"
    )


def default_lanes(overlap: str) -> int:
    """How many runs of a job may go on at once, where nobody says."""
    return MAX_RUNNING if overlap == "allow" else 1


def read_draft(body: JobBody) -> JobDraft:
    """What the service takes. Raises DefinitionError naming the field."""
    max_running = default_lanes(body.overlap) if body.max_running is None else body.max_running
    definition = Definition(
        schedules=(),
        target=_read_target(body.target),
        grace_s=body.grace_s,
        misfire=MisfirePolicy(
            policy=body.misfire.policy,
            max=body.misfire.max,
            window_s=body.misfire.window_s,
            spacing_s=body.misfire.spacing_s,
        ),
        overlap=body.overlap,
        max_running=max_running,
        retry=read_retry(body.retry),
        timeout_s=body.timeout_s,
        connect_timeout_s=body.connect_timeout_s,
        max_run_time_s=body.max_run_time_s,
        delivery=body.delivery,
        completion=body.completion,
        callback_heartbeat_s=body.callback_heartbeat_s,
        auto_pause=read_auto_pause(body.auto_pause),
        spread_s=body.spread_s,
        jitter_s=body.jitter_s,
        priority=body.priority,
    )
    return JobDraft(
        key=body.key,
        name=body.name,
        tags=tuple(dict.fromkeys(body.tags)),
        schedules=read_schedules(body.schedules, body.timezone),
        definition=definition,
        past=body.past,
    )


def read_schedules(bodies: list[ScheduleBody], timezone: str | None) -> tuple[DraftSchedule, ...]:
    """The rules, as the service takes them. `timezone` is the default zone. Raises DefinitionError."""
    if timezone is not None:
        zones.zone(timezone)  # a misspelt one is told also where every schedule has its own
    return tuple(_read_schedule(body, f"schedules[{index}]", timezone) for index, body in enumerate(bodies))


def _read_schedule(body: ScheduleBody, field: str, timezone: str | None) -> DraftSchedule:
    given = [name for name in KINDS if getattr(body, name) is not None]
    if len(given) != 1:
        raise DefinitionError(
            "schedule_invalid",
            f"a schedule has exactly one of {', '.join(KINDS)}; this one has {', '.join(given) or 'none'}",
            field=field,
            remedy="write one schedule for each rule",
        )
    if body.anchor is not None and body.every is None:
        raise DefinitionError("schedule_invalid", "only `every` has an anchor", field=f"{field}.anchor")
    if (body.rrule is None) != (body.dtstart is None):
        raise DefinitionError(
            "schedule_invalid",
            "an rrule needs a dtstart" if body.dtstart is None else "only `rrule` has a dtstart",
            field=f"{field}.dtstart",
            remedy="give local time, such as 2027-01-01T09:00:00" if body.dtstart is None else "use start_at",
        )
    if body.cron is None:
        _refuse_dst(body, field)
    calendars = _read_calendars(body, field)
    zone = body.timezone if body.timezone is not None else timezone
    start_at = _read_bound(body.start_at, f"{field}.start_at", zone)
    end_at = _read_bound(body.end_at, f"{field}.end_at", zone)
    if body.cron is not None:
        return CronSchedule(
            expression=body.cron,
            timezone="UTC" if zone is None else zone,
            dst_gap=body.dst_gap,
            dst_overlap=body.dst_overlap,
            start_at=start_at,
            end_at=end_at,
            calendars=calendars,
            max_fires=body.max_fires,
        )
    if body.rrule is not None:
        return RruleSchedule(
            rule=body.rrule,
            dtstart=_read_dtstart(body, field, "UTC" if zone is None else zone),
            timezone="UTC" if zone is None else zone,
            start_at=start_at,
            end_at=end_at,
            calendars=calendars,
            max_fires=body.max_fires,
        )
    if body.every_after_finish is not None:
        return AfterFinishSchedule(
            every_s=parse_duration(body.every_after_finish, field=f"{field}.every_after_finish"),
            start_at=start_at,
            end_at=end_at,
            max_fires=body.max_fires,
            calendars=calendars,
        )
    if body.every is not None:
        if body.timezone is not None:
            raise DefinitionError(
                "schedule_invalid",
                "an interval is elapsed time and has no time zone",
                field=f"{field}.timezone",
                remedy="leave it out, or use cron for wall-clock times",
            )
        return EveryDraft(
            every_s=parse_duration(body.every, field=f"{field}.every"),
            anchor_at=_read_anchor(body, field),
            start_at=start_at,
            end_at=end_at,
            max_fires=body.max_fires,
            calendars=calendars,
        )
    return AtSchedule(
        at=_read_at(body, field, zone),
        start_at=start_at,
        end_at=end_at,
        max_fires=body.max_fires,
        calendars=calendars,
    )


def _read_at(body: ScheduleBody, field: str, zone: str | None) -> int:
    assert body.at is not None
    if body.timezone is None:
        return _in_zone_of(field, lambda: parse_moment(str(body.at), timezone=zone, field=f"{field}.at"))
    named = body.timezone
    return _in_zone_of(field, lambda: resolve_local(str(body.at), timezone=named, field=f"{field}.at"))


def _read_dtstart(body: ScheduleBody, field: str, zone: str) -> str:
    """Local time, which the rule goes by; that of an instant, in the zone."""
    text, named = str(body.dtstart), f"{field}.dtstart"
    if text[-1:] not in ("Z", "z") and "+" not in text[10:] and "-" not in text[10:]:
        return write_local(parse_local(text, field=named))
    second = next_whole_second(parse_instant(text, field=named)) // SECOND_US
    if second > LAST_SECOND - DAY_S:
        raise DefinitionError("schedule_invalid", "dtstart is out of range", field=named, remedy="give an earlier one")
    return write_local(second + _in_zone_of(field, lambda: offset_at(zone, second)))


def _read_bound(text: str | None, field: str, zone: str | None) -> int | None:
    if text is None:
        return None
    return _in_zone_of(field.rpartition(".")[0], lambda: parse_moment(text, timezone=zone, field=field))


def _in_zone_of(field: str, read: Callable[[], int]) -> int:
    try:
        return read()
    except DefinitionError as error:  # the zone, which knows not of which schedule it is
        raise DefinitionError(error.reason_code, error.detail, field=f"{field}.timezone", remedy=error.remedy) from None


def _refuse_dst(body: ScheduleBody, field: str) -> None:
    for name in ("dst_gap", "dst_overlap"):
        if getattr(body, name) is not None:
            raise DefinitionError(
                "schedule_invalid",
                f"{name} is a rule of its own for wall-clock times, which only `cron` can have",
                field=f"{field}.{name}",
                remedy="leave it out: an rrule has the default, an interval is elapsed time, an instant is resolved "
                "when it is saved",
            )


def _read_calendars(body: ScheduleBody, field: str) -> CalendarUse | None:
    if body.exclude or body.only:
        return CalendarUse(tuple(dict.fromkeys(body.exclude)), tuple(dict.fromkeys(body.only)), body.roll)
    if body.roll != "skip":
        raise DefinitionError(
            "schedule_invalid",
            "a roll moves what calendars keep out, and the schedule names none",
            field=f"{field}.roll",
            remedy="name calendars in exclude or only",
        )
    return None


def _read_anchor(body: ScheduleBody, field: str) -> int | None:
    if body.anchor is None:
        return None
    return 0 if body.anchor == "epoch" else parse_instant(body.anchor, field=f"{field}.anchor")


def _read_target(body: TargetBody) -> WebhookTarget | QueueTarget:
    if (body.url is None) == (body.queue is None):
        raise DefinitionError(
            "target_invalid",
            "a target has exactly one of url and queue",
            field="target",
            remedy="leave one of them out",
        )
    payload = None if body.payload is None else write_payload(body.payload)
    if body.queue is not None:
        if body.body is not None or body.headers or body.method != "POST" or body.secret != DEFAULT_SECRET:
            raise DefinitionError(
                "target_invalid",
                "a queue target has only a payload",
                field="target",
                remedy="leave method, headers, body and secret out",
            )
        return QueueTarget(queue=body.queue, payload=payload)
    assert body.url is not None
    if body.body is not None and payload is not None:
        raise DefinitionError(
            "target_invalid",
            "a target has a body or a payload, not both",
            field="target.payload",
            remedy="leave one of them out",
        )
    return WebhookTarget(
        url=body.url,
        method=body.method,
        headers=dict(body.headers),
        body=body.body,
        payload=payload,
        secret=body.secret,
    )


def write_payload(payload: Any) -> str:
    """JSON text, written once: these very bytes are sent and signed."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
