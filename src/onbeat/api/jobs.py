"""/v1/jobs"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pydantic
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError

from onbeat.api.answers import IdempotencyKey, answer_once, etag, json_answer, problems, read_if_match
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import ApiContext, context_of
from onbeat.api.pages import Cursor, Limit, encode_cursor, read_page
from onbeat.api.problems import field_problems, response_for
from onbeat.api.schemas.base import Key, moment
from onbeat.api.schemas.jobs import (
    BatchBody,
    BatchView,
    JobBody,
    JobPage,
    JobView,
    NextView,
    PauseBody,
    PausedView,
    TriggerBody,
    merge_patch,
    read_draft,
    view_job,
    writable_job,
    write_payload,
)
from onbeat.api.schemas.runs import RunView, view_run
from onbeat.domain.errors import JobNotFound, KeyTaken, OnbeatError, RequestError
from onbeat.domain.ids import parse_job_id
from onbeat.domain.model import Definition
from onbeat.domain.states import JobState
from onbeat.domain.webhook import check_text
from onbeat.services.api_keys import Principal
from onbeat.services.job_rules import JobDraft
from onbeat.services.jobs import Change
from onbeat.store.values import JobFilter, StoredJob

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

IfMatch = Annotated[str | None, Header(alias="If-Match", description="Change only this version (ETag)")]
OWN_LISTS = "jobs"

PAUSE_BOUND_US = 5_000_000
"""No new side effect begins later than this after a pause was acknowledged. Source: reliability P14."""


def _saved(job: StoredJob, *, status: int = 200) -> Response:
    view = view_job(job)
    headers = {"etag": etag(job.version)}
    if status == 201:
        headers["location"] = f"/v1/jobs/{view['id']}"
    return json_answer(view, status=status, headers=headers)


async def _own(context: ApiContext, principal: Principal, job_id: str) -> StoredJob:
    """The job, if it lies in the caller's namespace. Raises JobNotFound for foreign ones too."""
    job = await context.jobs.get(parse_job_id(job_id))
    if job.namespace != principal.namespace:
        raise JobNotFound
    return job


@router.post("", status_code=201, response_model=JobView, responses=problems(409, 422), summary="Create a job")
async def create_job(
    request: Request, body: JobBody, principal: JobsWriter, idempotency_key: IdempotencyKey = None
) -> Response:
    context = context_of(request)

    async def produce() -> Response:
        return _saved(await context.jobs.create(read_draft(body), namespace=principal.namespace), status=201)

    return await answer_once(request, context, principal, idempotency_key, produce)


@router.get("", response_model=JobPage, responses=problems(), summary="List jobs, newest first")
async def list_jobs(
    request: Request,
    principal: JobsReader,
    state: Annotated[Literal["active", "paused", "completed", "error"] | None, Query()] = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    text: Annotated[str | None, Query(max_length=200, description="Part of the name or key")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    where = JobFilter(
        namespace=principal.namespace, state=None if state is None else JobState(state), tag=tag, text=text
    )
    jobs = await context_of(request).jobs.find(where, read_page(limit, cursor, kind=OWN_LISTS))
    last = jobs[-1] if len(jobs) == limit else None
    next_cursor = None if last is None else encode_cursor((last.created_at, last.job_id), kind=OWN_LISTS)
    return json_answer({"items": [view_job(job) for job in jobs], "next_cursor": next_cursor})


@router.get("/by-key/{key}", response_model=JobView, responses=problems(404, 422), summary="The job with that key")
async def get_job_by_key(request: Request, key: Key, principal: JobsReader) -> Response:
    job = await context_of(request).jobs.get_by_key(principal.namespace, key)
    if job is None:
        raise JobNotFound(f"no job has the key {key!r}")
    return _saved(job)


@router.put(
    "/by-key/{key}",
    response_model=JobView,
    responses={**problems(404, 409, 412, 422), 201: {"model": JobView, "description": "It was created"}},
    summary="Create the job with that key, or change it to look like this",
)
async def put_job(
    request: Request, key: Key, body: JobBody, principal: JobsWriter, if_match: IfMatch = None
) -> Response:
    context, version = context_of(request), read_if_match(if_match)
    if body.key not in (None, key):
        raise RequestError("the key in the body differs from the one in the path", field="key", remedy="leave it out")
    body = body.model_copy(update={"key": key})

    def draft(_stored: StoredJob, _definition: Definition | None) -> JobDraft:
        return read_draft(body)

    existing = await context.jobs.get_by_key(principal.namespace, key)
    if existing is None and if_match is None:
        try:
            return _saved(await context.jobs.create(read_draft(body), namespace=principal.namespace), status=201)
        except KeyTaken:  # somebody else created it between the look and the write
            existing = await context.jobs.get_by_key(principal.namespace, key)
    if existing is None:
        raise JobNotFound(f"no job has the key {key!r}")
    return _saved(await context.jobs.update(existing.job_id, Change(draft=draft, if_version=version)))


@router.get("/{job_id}", response_model=JobView, responses=problems(404), summary="One job")
async def get_job(request: Request, job_id: str, principal: JobsReader) -> Response:
    return _saved(await _own(context_of(request), principal, job_id))


@router.patch(
    "/{job_id}",
    response_model=JobView,
    responses=problems(404, 409, 412, 422),
    summary="Change fields of a job (JSON merge patch)",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/merge-patch+json": {"schema": {"type": "object"}},
                "application/json": {"schema": {"type": "object"}},
            },
        }
    },
)
async def patch_job(request: Request, job_id: str, principal: JobsWriter, if_match: IfMatch = None) -> Response:
    context, version = context_of(request), read_if_match(if_match)
    patch = json.loads(request.state.body or b"null")
    if not isinstance(patch, dict):
        raise RequestError("a patch is a JSON object with the fields to change", field="body")
    job = await _own(context, principal, job_id)

    def draft(stored: StoredJob, _definition: Definition | None) -> JobDraft:
        return read_draft(_validated(merge_patch(writable_job(stored), patch)))

    return _saved(await context.jobs.update(job.job_id, Change(draft=draft, if_version=version)))


@router.delete("/{job_id}", status_code=204, responses=problems(404, 412), summary="Delete a job; its history stays")
async def delete_job(request: Request, job_id: str, principal: JobsWriter, if_match: IfMatch = None) -> Response:
    context = context_of(request)
    job = await _own(context, principal, job_id)
    await context.jobs.delete(job.job_id, if_version=read_if_match(if_match))
    return Response(status_code=204)


@router.post("/{job_id}/pause", response_model=PausedView, responses=problems(404, 409, 422), summary="Pause a job")
async def pause_job(request: Request, job_id: str, body: PauseBody, principal: JobsWriter) -> Response:
    context = context_of(request)
    job = await _own(context, principal, job_id)
    paused = await context.jobs.pause(job.job_id, note=body.note, cancel=body.running == "cancel")
    bound = (paused.paused_at or context.clock.now()) + PAUSE_BOUND_US
    return json_answer({"job": view_job(paused), "last_possible_side_effect_at": moment(bound)})


@router.post("/{job_id}/resume", response_model=JobView, responses=problems(404, 409, 422), summary="Resume a job")
async def resume_job(request: Request, job_id: str, principal: JobsWriter) -> Response:
    context = context_of(request)
    job = await _own(context, principal, job_id)
    return _saved(await context.jobs.resume(job.job_id))


@router.post(
    "/{job_id}/trigger",
    status_code=201,
    response_model=RunView,
    responses=problems(404, 409, 422),
    summary="Run it now",
)
async def trigger_job(
    request: Request, job_id: str, body: TriggerBody, principal: JobsWriter, idempotency_key: IdempotencyKey = None
) -> Response:
    context = context_of(request)
    job = await _own(context, principal, job_id)
    payload = None if body.payload is None else write_payload(body.payload)
    check_text(payload, field="payload")

    async def produce() -> Response:
        view = view_run(await context.runs.trigger(job.job_id, payload=payload))
        return json_answer(view, status=201, headers={"location": f"/v1/runs/{view['id']}"})

    return await answer_once(request, context, principal, idempotency_key, produce)


@router.get("/{job_id}/next", response_model=NextView, responses=problems(404, 422), summary="Planned instants to come")
async def next_fires(
    request: Request, job_id: str, principal: JobsReader, count: Annotated[int, Query(ge=1, le=1_000)] = 5
) -> Response:
    context = context_of(request)
    job = await _own(context, principal, job_id)
    return json_answer({"fires": [moment(instant) for instant in await context.jobs.next_fires(job, count=count)]})


batch_router = APIRouter(prefix="/v1", tags=["jobs"])


@batch_router.post("/jobs:batch", response_model=BatchView, responses=problems(409, 422), summary="Create many jobs")
async def create_jobs(
    request: Request, body: BatchBody, principal: JobsWriter, idempotency_key: IdempotencyKey = None
) -> Response:
    context = context_of(request)

    async def produce() -> Response:
        drafts: list[JobDraft | OnbeatError] = [_draft_or_error(item) for item in body.jobs]
        good = [draft for draft in drafts if isinstance(draft, JobDraft)]
        saved = iter(await context.jobs.create_many(good, namespace=principal.namespace))
        answers = [draft if isinstance(draft, OnbeatError) else next(saved) for draft in drafts]
        items = [_batch_item(answer) for answer in answers]
        created = sum("job" in item for item in items)
        return json_answer({"created": created, "refused": len(items) - created, "items": items})

    return await answer_once(request, context, principal, idempotency_key, produce)


def _validated(value: Any) -> JobBody:
    try:
        return JobBody.model_validate(value)
    except pydantic.ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _draft_or_error(value: Any) -> JobDraft | OnbeatError:
    try:
        return read_draft(JobBody.model_validate(value))
    except pydantic.ValidationError as error:
        first = field_problems(error.errors())[0]
        return RequestError(f"{first.field}: {first.detail}", field=first.field)
    except OnbeatError as error:
        return error


def _batch_item(answer: StoredJob | OnbeatError) -> dict[str, Any]:
    if isinstance(answer, OnbeatError):
        return {"error": json.loads(bytes(response_for(answer).body))}
    return {"job": view_job(answer)}
