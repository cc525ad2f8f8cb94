"""/v1/jobs:bulk: one action on every job that a filter finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError

from onbeat.api.answers import AnswerOnce, problems
from onbeat.api.auth import JobsWriter
from onbeat.api.bulk import bulk_answer
from onbeat.api.context import ApiContext, context_of
from onbeat.api.jobs import draft_of_patch
from onbeat.api.problems import field_problems
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.bulk import (
    BulkCountView,
    BulkDoneView,
    BulkJobsBody,
    DeleteBody,
    JobArguments,
    TagBody,
    check_filter,
    read_arguments,
)
from onbeat.api.schemas.job_actions import PauseBody, ResumeBody, TriggerBody
from onbeat.api.schemas.jobs import write_payload
from onbeat.domain.errors import JobNotFound, RequestError
from onbeat.domain.ids import format_job_id
from onbeat.domain.instants import parse_instant
from onbeat.domain.model import Definition
from onbeat.domain.states import JobState
from onbeat.domain.webhook import check_text
from onbeat.services.job_rules import JobDraft
from onbeat.services.jobs import Change
from onbeat.services.pauses import check_until
from onbeat.store.values import JobFilter, Page, StoredJob

router = APIRouter(prefix="/v1", tags=["jobs"], route_class=EdgeRoute)

KIND: Final = "jobs:bulk"

Act = Callable[[StoredJob], Awaitable[bool]]


@router.post(
    "/jobs:bulk",
    response_model=BulkDoneView | BulkCountView,
    responses=problems(409, 422),
    summary="One action on every job that a filter finds",
)
async def bulk_jobs(request: Request, body: BulkJobsBody, principal: JobsWriter, once: AnswerOnce) -> Response:
    """Newest first, each job by itself, as if it had been asked for alone. Jobs that are newer than the first call of
    a chain of cursors are left out.
    """
    check_filter(body)
    context = context_of(request)
    state = None if body.filter.state is None else JobState(body.filter.state)
    where = JobFilter(namespace=principal.namespace, state=state, tag=body.filter.tag, text=body.filter.text)
    act = _action(context, read_arguments(body), adds_tag=body.action == "add_tag")

    async def find(page: Page) -> Sequence[StoredJob]:
        return await context.jobs.find(where, page)

    async def produce() -> Response:
        return await bulk_answer(
            body,
            find,
            act,
            kind=KIND,
            place=lambda job: (job.created_at, job.job_id),
            name=lambda job: format_job_id(job.job_id),
        )

    return await once(produce)


def _action(context: ApiContext, arguments: JobArguments, *, adds_tag: bool) -> Act:
    match arguments:
        case PauseBody():
            return _pause(context, arguments)
        case DeleteBody():
            return _delete(context, cancel=arguments.running == "cancel")
        case TriggerBody():
            return _trigger(context, arguments)
        case TagBody():
            return _retag(context, arguments.tag, adds=adds_tag)
        case ResumeBody():
            return _resume(context, replays=arguments.replay == "failed")


def _pause(context: ApiContext, arguments: PauseBody) -> Act:
    until = None if arguments.until is None else parse_instant(arguments.until, field="arguments.until")
    check_until(until, now=context.clock.now())

    async def act(job: StoredJob) -> bool:
        cancels = arguments.running == "cancel"
        paused = await context.jobs.pause(job.job_id, note=arguments.note, cancel=cancels, until=until)
        return paused.version != job.version

    return act


def _resume(context: ApiContext, *, replays: bool) -> Act:
    async def act(job: StoredJob) -> bool:
        if replays:
            resumed = (await context.resumptions.resume(job.job_id)).job
        else:
            resumed = await context.jobs.resume(job.job_id)
        return resumed.version != job.version

    return act


def _delete(context: ApiContext, *, cancel: bool) -> Act:
    async def act(job: StoredJob) -> bool:
        try:
            await context.jobs.delete(job.job_id, if_version=None, cancel=cancel)
        except JobNotFound:  # deleted by somebody else since it was found: as asked for
            return False
        return True

    return act


def _trigger(context: ApiContext, arguments: TriggerBody) -> Act:
    payload = None if arguments.payload is None else write_payload(arguments.payload)
    check_text(payload, field="arguments.payload")

    async def act(job: StoredJob) -> bool:
        await context.runs.trigger(job.job_id, payload=payload, force=arguments.force)
        return True

    return act


def _retag(context: ApiContext, tag: str, *, adds: bool) -> Act:
    def draft(stored: StoredJob, _definition: Definition | None) -> JobDraft:
        others = [other for other in stored.tags if other != tag]
        try:
            return draft_of_patch(stored, {"tags": [*others, tag] if adds else others})
        except RequestValidationError as error:  # of this job alone: it has all the tags that it may have
            first = field_problems(list(error.errors()))[0]
            raise RequestError(f"{first.field}: {first.detail}", field=first.field) from None

    async def act(job: StoredJob) -> bool:
        if (tag in job.tags) == adds:
            return False
        return (await context.jobs.update(job.job_id, Change(draft=draft))).version != job.version

    return act
