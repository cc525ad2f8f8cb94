"""/v1/jobs/{id}/backfill and /v1/jobs/{id}/backfills: instants of the past that become runs after all."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from onbeat.api.answers import AnswerOnce, json_answer, problems
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import context_of
from onbeat.api.jobs import own_job
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.backfills import (
    BackfillBody,
    BackfillList,
    BackfillPreviewView,
    BackfillView,
    read_backfill,
    view_backfill,
    view_preview,
)

BackfillNumber = Annotated[int, Path(ge=1, le=2**53)]

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["backfills"], route_class=EdgeRoute)


@router.post(
    "/backfill",
    status_code=202,
    response_model=BackfillView,
    responses={
        200: {"model": BackfillPreviewView, "description": "With `dry_run`: what it would do"},
        **problems(404, 409, 422),
    },
    summary="Make runs of past instants that have none",
)
async def backfill_job(
    request: Request, job_id: str, body: BackfillBody, principal: JobsWriter, once: AnswerOnce
) -> Response:
    """Runs of trigger `backfill`, so many in a second, behind live ones. Goes on after a restart where it was."""
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    asked = read_backfill(body)

    async def produce() -> Response:
        if body.dry_run:
            return json_answer(view_preview(await context.backfills.preview(job, asked)))
        view = view_backfill(await context.backfills.begin(job, asked))
        place = f"/v1/jobs/{view['job_id']}/backfills/{view['number']}"
        return json_answer(view, status=202, headers={"location": place})

    return await once(produce)


@router.get("/backfills", response_model=BackfillList, responses=problems(404, 422), summary="List backfills")
async def list_backfills(request: Request, job_id: str, principal: JobsReader) -> Response:
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    return json_answer({"items": [view_backfill(found) for found in await context.backfills.find(job.job_id)]})


@router.get(
    "/backfills/{number}", response_model=BackfillView, responses=problems(404, 422), summary="How far a backfill is"
)
async def get_backfill(request: Request, job_id: str, number: BackfillNumber, principal: JobsReader) -> Response:
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    return json_answer(view_backfill(await context.backfills.get(job.job_id, number)))


@router.delete("/backfills/{number}", status_code=204, responses=problems(404, 422), summary="Cancel a backfill")
async def cancel_backfill(request: Request, job_id: str, number: BackfillNumber, principal: JobsWriter) -> Response:
    """It creates nothing from now on. Runs that it has created stay; one that has ended stays as it is."""
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    await context.backfills.cancel(job.job_id, number)
    return Response(status_code=204)
