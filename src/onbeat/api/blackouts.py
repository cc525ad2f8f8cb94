"""/v1/blackouts: windows of time in which no fire becomes a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from onbeat.api.answers import etag, json_answer, problems
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.calendars import PATTERN
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.blackouts import BlackoutBody, BlackoutList, BlackoutView, read_blackout, view_blackout

BlackoutName = Annotated[str, Path(pattern=PATTERN, max_length=128)]

router = APIRouter(prefix="/v1/blackouts", tags=["blackouts"], route_class=EdgeRoute)


@router.get("", response_model=BlackoutList, responses=problems(), summary="List blackouts")
async def list_blackouts(request: Request, principal: JobsReader) -> Response:
    blackouts = await context_of(request).blackouts.find(principal.namespace)
    return json_answer({"items": [view_blackout(blackout) for blackout in blackouts]})


@router.get("/{name}", response_model=BlackoutView, responses=problems(404, 422), summary="One blackout")
async def get_blackout(request: Request, name: BlackoutName, principal: JobsReader) -> Response:
    blackout = await context_of(request).blackouts.get(principal.namespace, name)
    return json_answer(view_blackout(blackout), headers={"etag": etag(blackout.version)})


@router.put("/{name}", response_model=BlackoutView, responses=problems(422), summary="Create or replace a blackout")
async def put_blackout(request: Request, name: BlackoutName, body: BlackoutBody, principal: JobsWriter) -> Response:
    """The same body again changes nothing. Fires that are recorded already stay as they are."""
    blackout = await context_of(request).blackouts.put(principal.namespace, name, read_blackout(body))
    return json_answer(view_blackout(blackout), headers={"etag": etag(blackout.version)})


@router.delete("/{name}", status_code=204, responses=problems(404, 422), summary="Delete a blackout")
async def delete_blackout(request: Request, name: BlackoutName, principal: JobsWriter) -> Response:
    """Fires go on at the next planned instant. What it has held back stays skipped."""
    await context_of(request).blackouts.delete(principal.namespace, name)
    return Response(status_code=204)
