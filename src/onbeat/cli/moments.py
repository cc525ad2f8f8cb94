"""Moments for people: in the job's own zone and in UTC, never in the zone of whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import parse_instant
from onbeat.domain.model import SECOND_US
from onbeat.domain.zones import zone


def in_zone(instant: str | None, timezone: str) -> str:
    """`Tue 2025-07-15 20:00:00 +0200 Europe/Paris` for an RFC 3339 instant; empty for None."""
    if instant is None:
        return ""
    try:
        where = zone(timezone)
    except DefinitionError:  # a server with newer zone data
        return instant
    local = datetime.fromtimestamp(parse_instant(instant, field="instant") / SECOND_US, tz=where)
    return f"{local:%a %Y-%m-%d %H:%M:%S %z} {timezone}"


def zone_of(job: Mapping[str, Any]) -> str:
    """The zone that a job's times are shown in: that of its first cron or rrule schedule, else UTC."""
    for schedule in job.get("schedules") or ():
        if "cron" in schedule or "rrule" in schedule:
            return str(schedule.get("timezone") or "UTC")
    return "UTC"
