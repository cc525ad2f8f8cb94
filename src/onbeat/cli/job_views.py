"""How jobs are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onbeat.cli.moments import in_zone, zone_of
from onbeat.cli.terminal import print_fields, print_table
from onbeat.domain.duration import format_duration

Json = Mapping[str, Any]


def print_jobs(page: Json) -> None:
    """A page of jobs."""
    print_table(
        ("id", "key", "name", "state", "schedules", "next", "next UTC"),
        [
            (
                job["id"],
                job.get("key") or "",
                job["name"],
                job["state"],
                _schedules(job),
                in_zone(job.get("next_fire_at"), zone_of(job)),
                job.get("next_fire_at") or "",
            )
            for job in page["items"]
        ],
        empty="No jobs.",
    )
    if page.get("next_cursor"):
        print_fields([("more", f"--cursor {page['next_cursor']}")])


def print_job(job: Json) -> None:
    """One job: the usual fields first, then whatever else the server told."""
    first = ("id", "key", "name", "state", "reason", "version", "tags")
    zone = zone_of(job)
    shown: list[tuple[str, object]] = [(name, _text(job.get(name))) for name in first]
    shown.append(("schedules", _schedules(job)))
    shown += [(name, _moment(value, zone)) for name, value in job.items() if name.endswith("_at")]
    told = {name for name, _ in shown}
    shown += [(name, _text(value)) for name, value in job.items() if name not in told]
    print_fields(shown)


def _schedules(job: Json) -> str:
    return ", ".join(_schedule(schedule) for schedule in job.get("schedules") or ())


def _schedule(schedule: Json) -> str:
    if "cron" in schedule:
        return f"{schedule['cron']} {schedule.get('timezone') or ''}".strip()
    if "rrule" in schedule:
        return f"{schedule['rrule']} from {schedule['dtstart']} {schedule['timezone']}"
    if "every" in schedule:
        return f"every {format_duration(schedule['every'])}"
    if "every_after_finish" in schedule:
        return f"{format_duration(schedule['every_after_finish'])} after each run"
    return f"at {schedule['at']}"


def _moment(value: Any, zone: str) -> str:
    return "" if value is None else f"{value}  ({in_zone(value, zone)})" if zone != "UTC" else str(value)


def _text(value: Any) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) and value else value
