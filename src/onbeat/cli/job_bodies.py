"""From options to the body of a request. Fields that were not given are not in it; the server checks the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onbeat.domain.duration import parse_duration
from onbeat.domain.errors import RequestError
from onbeat.domain.strict_json import JsonRefused, parse_strictly

Json = dict[str, Any]

_ZONED = frozenset({"cron", "rrule", "at", "start_at", "end_at"})
"""Fields of a schedule that may be wall-clock times."""


def schedules(
    *,
    cron: Sequence[str] | None,
    every: Sequence[str] | None,
    at: Sequence[str] | None,
    after_finish: str | None = None,
    rrule: Sequence[str] | None = None,
    dtstart: str | None = None,
    bounds: Json | None = None,
    calendars: Json | None = None,
    dst: Json | None = None,
) -> list[Json]:
    """The schedules of a job. `bounds` and `calendars` are for each of them, `dst` for those of cron."""
    if (dtstart is None) != (not rrule):
        raise RequestError("--rrule and --dtstart belong together", field="--dtstart", remedy="give both")
    shared, for_cron = _given({**(bounds or {}), **(calendars or {})}), _given(dst)
    written: list[Json] = [
        *({"cron": expression, **for_cron, **shared} for expression in cron or ()),
        *({"rrule": rule, "dtstart": dtstart, **shared} for rule in rrule or ()),
        *({"every": length, **shared} for length in every or ()),
        *({"at": instant, **shared} for instant in at or ()),
        *([] if after_finish is None else [{"every_after_finish": after_finish, **shared}]),
    ]
    option = next(iter((*shared, *for_cron)), None)
    if option is not None and (not written or (for_cron and not cron)):
        option = next(iter(for_cron)) if for_cron and not cron else option
        shown = "--" + option.replace("_", "-")
        needs = "--cron" if option in for_cron else "--cron, --rrule, --every or --at"
        raise RequestError(f"{shown} belongs to {needs}", field=shown, remedy="give the schedule too")
    return written


def _given(options: Json | None) -> Json:
    return {name: value for name, value in (options or {}).items() if value is not None}


def calendars(*, exclude: Sequence[str] | None, only: Sequence[str] | None, roll: str | None) -> Json:
    """What a schedule says of calendars."""
    fields = {"exclude": list(exclude or ()), "only": list(only or ()), "roll": roll}
    return {name: value for name, value in fields.items() if value}


def target(
    *,
    url: str | None,
    method: str | None,
    headers: Sequence[str] | None,
    body: str | None,
    payload: str | None,
    queue: str | None,
) -> Json:
    """The target of a job: a webhook or a queue."""
    if queue is not None and (url is not None or method is not None or headers or body is not None):
        raise RequestError("--queue excludes --url, --method, --header and --body", field="--queue")
    if body is not None and payload is not None:
        raise RequestError("--body excludes --payload", field="--body")
    fields = {
        "url": url,
        "queue": queue,
        "method": method,
        "headers": dict(_header(text) for text in headers) if headers else None,
        "body": body,
        "payload": None if payload is None else parse_json(payload, field="--payload"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def job_body(
    *,
    name: str | None,
    tags: Sequence[str] | None,
    schedules: list[Json],
    timezone: str | None,
    target: Json,
    grace: str | None,
    timeout: str | None,
    overlap: str | None,
    spread: str | None = None,
    jitter: str | None = None,
    priority: int | None = None,
) -> Json:
    """The fields that were given."""
    if timezone is not None and not any(_ZONED & schedule.keys() for schedule in schedules):
        raise RequestError(
            "--tz belongs to --cron, --rrule and --at", field="--tz", remedy="give the --cron expression too"
        )
    fields: Json = {
        "name": name,
        "tags": list(tags) if tags else None,
        "schedules": schedules or None,
        "timezone": timezone,
        "target": target or None,
        "grace_s": None if grace is None else parse_duration(grace, field="--grace"),
        "timeout_s": None if timeout is None else parse_duration(timeout, field="--timeout"),
        "overlap": overlap,
        "spread_s": None if spread is None else parse_duration(spread, field="--spread"),
        "jitter_s": None if jitter is None else parse_duration(jitter, field="--jitter"),
        "priority": priority,
    }
    return {field: value for field, value in fields.items() if value is not None}


def with_exclusions(target: Json) -> Json:
    """A target for a merge patch: what cannot stand beside the new fields is taken away."""
    excluded: tuple[str, ...] = ()
    if "queue" in target:
        excluded = ("url", "method", "headers", "body", "secret")
    elif "url" in target:
        excluded = ("queue",)
    if "payload" in target:
        excluded = (*excluded, "body")
    if "body" in target:
        excluded = (*excluded, "payload")
    return {**dict.fromkeys(excluded), **target}


def check_new_job(job: Json) -> None:
    """Refuse what cannot be a job before the server is asked."""
    if "schedules" not in job:
        raise RequestError(
            "a job needs a schedule",
            field="schedules",
            remedy="give --cron, --rrule, --every, --at or --every-after-finish",
        )
    if not {"url", "queue"} & job.get("target", {}).keys():
        raise RequestError("a job needs a target", field="target", remedy="give --url or --queue")


def check_changes(changes: Json) -> None:
    """Refuse an update that changes nothing."""
    if not changes:
        raise RequestError("nothing to change", remedy="see `onbeat jobs update --help` for what can be changed")


def parse_json(text: str, *, field: str) -> Any:
    """The value behind JSON text. Raises RequestError."""
    try:
        return parse_strictly(text.encode())
    except UnicodeEncodeError:
        raise RequestError("it is not UTF-8 text", field=field) from None
    except JsonRefused as refused:
        raise RequestError(refused.detail, field=field, remedy=refused.remedy or "quote it for your shell") from None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise RequestError(f"{text!r} is not NAME:VALUE", field="--header")
    return name.strip(), value.strip()
