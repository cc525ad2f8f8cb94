"""/v1/schedules:preview: what schedules will do, before anybody relies on them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response
from pydantic import Field

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import JobsReader
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import Body, View, moment
from onbeat.api.schemas.jobs import ScheduleBody, read_schedules
from onbeat.api.schemas.kept_out import KeptOutView, view_kept_out
from onbeat.domain.ids import parse_job_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.preview import preview
from onbeat.domain.removed import REMOVED_SHOWN
from onbeat.domain.timetable import check_schedules
from onbeat.services.job_rules import resolve_last_fires, settle_anchors

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=EdgeRoute)


class PreviewBody(Body):
    """Which schedules, from when, how many instants."""

    schedules: list[ScheduleBody] = Field(min_length=1, max_length=16)
    timezone: str | None = Field(None, max_length=64)
    job: str | None = Field(None, max_length=64, description="Id of the job whose `H` fields are meant")
    after: str | None = Field(None, max_length=64, description="RFC 3339; default: now")
    count: int = Field(5, ge=1, le=1_000)


class InstantView(View):
    """One planned instant; `local` has one text per zone of `timezones`."""

    at: str
    local: list[str]
    notes: list[str]


class RemovedView(View):
    """An instant that a schedule names and that a rule took away or moved."""

    schedule: int = Field(description="Its place in `schedules`, from 0")
    at: str | None = Field(description="null: a local time that does not exist")
    local: str
    moved_to: str | None = Field(description="null: it does not fire")
    note: str


class WordsView(View):
    """A schedule in words."""

    text: str
    timezone: str | None
    notes: list[str]


class PreviewView(View):
    """What the schedules will do."""

    fires: list[str]
    instants: list[InstantView]
    removed: list[RemovedView] = Field(description=f"At most {REMOVED_SHOWN}")
    timezones: list[str]
    explain: list[WordsView]
    notes: list[str]
    kept_out: list[KeptOutView] = Field(description="What calendars removed or moved on the way to the last instant")
    tzdata_version: str


@router.post(
    "/schedules:preview", response_model=PreviewView, responses=problems(404, 422), summary="Preview schedules"
)
async def preview_schedules(request: Request, body: PreviewBody, principal: JobsReader) -> Response:
    context = context_of(request)
    now = context.clock.now()
    await context.almanac.refresh(now=now)
    calendars = context.almanac.calendars(principal.namespace)
    after = now if body.after is None else parse_instant(body.after, field="after")
    schedules = settle_anchors(read_schedules(body.schedules, body.timezone), now=now)
    job_id = None if body.job is None else parse_job_id(body.job)
    schedules = resolve_last_fires(schedules, job_id=job_id, counted_from=after, calendars=calendars)
    check_schedules(schedules, job_id=job_id, now=after, calendars=calendars)
    # On a thread: the next thousand instants of sixteen schedules take long enough to hold up the dispatcher here.
    found = await asyncio.to_thread(
        preview, schedules, job_id=job_id, after=after, count=body.count, calendars=calendars
    )
    return json_answer(
        {
            "fires": [moment(instant.at) for instant in found.instants],
            "instants": [
                {"at": moment(instant.at), "local": instant.local, "notes": instant.notes} for instant in found.instants
            ],
            "removed": [
                {
                    "schedule": removed.schedule,
                    "at": moment(removed.at),
                    "local": removed.local,
                    "moved_to": moment(removed.moved_to),
                    "note": removed.note,
                }
                for removed in found.removed
            ],
            "timezones": found.timezones,
            "explain": [
                {"text": words.text, "timezone": words.timezone, "notes": words.notes} for words in found.schedules
            ],
            "notes": found.notes,
            "kept_out": view_kept_out(found.kept_out),
            "tzdata_version": found.tzdata_version,
        }
    )
