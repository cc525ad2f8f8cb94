"""/v1/jobs: define jobs and look at them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import pydantic
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError

from onbeat.api.answers import AnswerOnce, etag, json_answer, problems, version_to_match
from onbeat.api.auth import JobsReader, JobsWriter
from onbeat.api.context import ApiContext, context_of
from onbeat.api.pages import Cursor, Limit, page_answer, read_page
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import Key, Text
from onbeat.api.schemas.job_views import JobPage, JobView, view_job, writable_job
from onbeat.api.schemas.jobs import JobBody, read_draft
from onbeat.api.schemas.merge_patch import merge_patch
from onbeat.domain.errors import JobNotFound, KeyTaken, OnbeatError, RequestError
from onbeat.domain.ids import parse_job_id
from onbeat.domain.model import Definition
from onbeat.domain.states import JobState
from onbeat.services.api_keys import Principal
from onbeat.services.job_rules import JobDraft
from onbeat.services.jobs import Change
from onbeat.store.values import JobFilter, StoredJob

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=EdgeRoute)

IfMatch = Annotated[str | None, Header(alias="If-Match", description='Change only this version: `"3"`, as ETag said')]

LISTS: Final = "jobs"
PUT_TRIES: Final = 3
"""How often an upsert looks again when others create and delete the job between its look and its write."""

PATCH_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            media_type: {"schema": {"$ref": "#/components/schemas/JobPatch"}}
            for media_type in ("application/json", "application/merge-patch+json")
        },
    }
}


async def own_job(context: ApiContext, principal: Principal, job_id: str) -> StoredJob:
    """The job, if it lies in the caller's namespace. Raises IdInvalid, JobNotFound: for foreign ones too."""
    job = await context.jobs.get(parse_job_id(job_id))
    if job.namespace != principal.namespace:
        raise JobNotFound
    return job


def job_answer(job: StoredJob, *, status: int = 200) -> Response:
    """The job with its version as ETag, and its place where it is new."""
    view = view_job(job)
    headers = {"etag": etag(job.version)}
    if status == 201:
        headers["location"] = f"/v1/jobs/{view['id']}"
    return json_answer(view, status=status, headers=headers)


@router.post("", status_code=201, response_model=JobView, responses=problems(409, 422), summary="Create a job")
async def create_job(request: Request, body: JobBody, principal: JobsWriter, once: AnswerOnce) -> Response:
    async def produce() -> Response:
        jobs, ids = context_of(request).jobs, once.job_ids(1)
        return job_answer(await jobs.create(read_draft(body), namespace=principal.namespace, ids=ids), status=201)

    return await once(produce)


@router.get("", response_model=JobPage, responses=problems(), summary="List jobs, newest first")
async def list_jobs(
    request: Request,
    principal: JobsReader,
    state: Annotated[Literal["active", "paused", "completed", "error"] | None, Query()] = None,
    tag: Annotated[Text | None, Query(max_length=64)] = None,
    text: Annotated[Text | None, Query(max_length=200, description="Part of the name or key, in any case")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    where = JobFilter(
        namespace=principal.namespace, state=None if state is None else JobState(state), tag=tag, text=text
    )
    jobs = await context_of(request).jobs.find(where, read_page(limit, cursor, kind=LISTS))
    return page_answer(jobs, limit=limit, kind=LISTS, view=view_job, place=lambda job: (job.created_at, job.job_id))


@router.get("/by-key/{key}", response_model=JobView, responses=problems(404, 422), summary="The job with that key")
async def get_job_by_key(request: Request, key: Key, principal: JobsReader) -> Response:
    job = await context_of(request).jobs.get_by_key(principal.namespace, key)
    if job is None:
        raise JobNotFound(f"no job has the key {key!r}")
    return job_answer(job)


@router.put(
    "/by-key/{key}",
    response_model=JobView,
    responses={**problems(404, 409, 412, 422), 201: {"model": JobView, "description": "It was created"}},
    summary="Create the job with that key, or change it to look like this",
)
async def put_job(
    request: Request, key: Key, body: JobBody, principal: JobsWriter, if_match: IfMatch = None
) -> Response:
    """The same body again changes nothing: no version, no instant."""
    if body.key not in (None, key):
        raise RequestError("the key in the body differs from the one in the path", field="key", remedy="leave it out")
    body = body.model_copy(update={"key": key})
    jobs = context_of(request).jobs

    def draft(_stored: StoredJob, _definition: Definition | None) -> JobDraft:
        return read_draft(body)

    lost: OnbeatError = JobNotFound()
    for _ in range(PUT_TRIES):
        existing = await jobs.get_by_key(principal.namespace, key)
        version = version_to_match(if_match, None if existing is None else existing.version)
        try:
            if existing is None:
                return job_answer(await jobs.create(read_draft(body), namespace=principal.namespace), status=201)
            return job_answer(await jobs.update(existing.job_id, Change(draft=draft, if_version=version)))
        except (KeyTaken, JobNotFound) as error:  # created, or deleted, by somebody else since we looked
            lost = error
    raise lost


@router.get("/{job_id}", response_model=JobView, responses=problems(404), summary="One job")
async def get_job(request: Request, job_id: str, principal: JobsReader) -> Response:
    return job_answer(await own_job(context_of(request), principal, job_id))


@router.patch(
    "/{job_id}",
    response_model=JobView,
    responses=problems(404, 409, 412, 422),
    summary="Change fields of a job (JSON merge patch)",
    openapi_extra=PATCH_BODY,
)
async def patch_job(request: Request, job_id: str, principal: JobsWriter, if_match: IfMatch = None) -> Response:
    """Objects merge, lists are replaced, null means the default (RFC 7396)."""
    patch = _read_patch(request.state.json)
    context = context_of(request)
    job = await own_job(context, principal, job_id)

    def draft(stored: StoredJob, _definition: Definition | None) -> JobDraft:
        return draft_of_patch(stored, patch)

    version = version_to_match(if_match, job.version)
    return job_answer(await context.jobs.update(job.job_id, Change(draft=draft, if_version=version)))


@router.delete("/{job_id}", status_code=204, responses=problems(404, 412), summary="Delete a job; its history stays")
async def delete_job(
    request: Request,
    job_id: str,
    principal: JobsWriter,
    if_match: IfMatch = None,
    running: Annotated[Literal["finish", "cancel"], Query(description="What happens to attempts that run")] = "finish",
) -> Response:
    context = context_of(request)
    job = await own_job(context, principal, job_id)
    version = version_to_match(if_match, job.version)
    await context.jobs.delete(job.job_id, if_version=version, cancel=running == "cancel")
    return Response(status_code=204)


def draft_of_patch(stored: StoredJob, patch: dict[str, Any]) -> JobDraft:
    """The job as it would look with these fields. Raises RequestValidationError."""
    return read_draft(_validated(merge_patch(writable_job(stored, patch), patch)))


def _read_patch(patch: Any) -> dict[str, Any]:
    """Raises RequestError for what merging alone would let pass."""
    if not isinstance(patch, dict):
        raise RequestError("a patch is a JSON object with the fields to change", field="body")
    for name in patch:
        if name not in JobBody.model_fields:
            raise UnknownField(f"a job has no field {name[:60]!a} that could be written", field=name[:60])
    if patch.get("key", "") is None:
        raise RequestError("a key can be changed and not be taken away", field="key")
    if patch.get("timezone") is not None and "schedules" not in patch:
        raise RequestError(
            "timezone is the default of the schedules that come with it",
            field="timezone",
            remedy="send the schedules too, each with its zone",
        )
    return patch


class UnknownField(RequestError):
    """The body has a field that nobody knows."""

    code = "unknown_field"


def _validated(value: Any) -> JobBody:
    try:
        return JobBody.model_validate(value)
    except pydantic.ValidationError as error:
        raise RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]) from None
