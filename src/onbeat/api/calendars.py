"""/v1/calendars: named sets of days that schedules exclude or keep to."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response

from onbeat.api.answers import etag, json_answer, problems
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import context_of
from onbeat.api.route import BulkRoute
from onbeat.api.schemas.calendars import (
    CalendarBody,
    CalendarList,
    CalendarView,
    ImportBody,
    ImportedView,
    read_date,
    read_rules,
    refer_to_calendar,
    view_calendar,
    view_import,
)
from onbeat.domain.calendar import CALENDAR_NAME

PATTERN: Final = f"^{CALENDAR_NAME.pattern}$"

CalendarName = Annotated[str, Path(pattern=PATTERN, max_length=128)]


class CalendarRoute(BulkRoute):
    """Room for thousands of dates, or for an iCalendar text with its escapes."""

    largest_body = 4 * 1_048_576


router = APIRouter(prefix="/v1/calendars", tags=["calendars"], route_class=CalendarRoute)


@router.get("", response_model=CalendarList, responses=problems(), summary="List calendars")
async def list_calendars(request: Request, principal: JobsReader) -> Response:
    calendars = await context_of(request).calendars.find(principal.namespace)
    return json_answer({"items": [refer_to_calendar(calendar) for calendar in calendars]})


@router.get("/{name}", response_model=CalendarView, responses=problems(404, 422), summary="One calendar")
async def get_calendar(request: Request, name: CalendarName, principal: JobsReader) -> Response:
    calendar = await context_of(request).calendars.get(principal.namespace, name)
    return json_answer(view_calendar(calendar), headers={"etag": etag(calendar.version)})


@router.put(
    "/{name}", response_model=CalendarView, responses=problems(404, 422), summary="Create or replace a calendar"
)
async def put_calendar(request: Request, name: CalendarName, body: CalendarBody, principal: JobsWriter) -> Response:
    """The same body again changes nothing. Clocks of the jobs that use the calendar are planned again, from now on."""
    calendar = await context_of(request).calendars.put(principal.namespace, name, read_rules(body))
    return json_answer(view_calendar(calendar), headers={"etag": etag(calendar.version)})


@router.post(
    "/{name}/import", response_model=ImportedView, responses=problems(422), summary="Take dates from an ICS text"
)
async def import_calendar(request: Request, name: CalendarName, body: ImportBody, principal: JobsWriter) -> Response:
    """The days of its all-day events replace the calendar's `dates`; other rules stay. Creates the calendar."""
    until = None if body.until is None else read_date(body.until, "until")
    imported = await context_of(request).calendars.import_ics(principal.namespace, name, body.ics, until=until)
    return json_answer(view_import(imported), headers={"etag": etag(imported.calendar.version)})


@router.delete(
    "/{name}", status_code=204, responses=problems(404, 409, 422), summary="Delete a calendar that no job uses"
)
async def delete_calendar(request: Request, name: CalendarName, principal: JobsWriter) -> Response:
    await context_of(request).calendars.delete(principal.namespace, name)
    return Response(status_code=204)
