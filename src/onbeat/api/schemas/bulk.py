"""One action on everything that a filter finds: what is asked, and what is answered."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import pydantic
from fastapi.exceptions import RequestValidationError
from pydantic import Field, WithJsonSchema

from onbeat.api.problems import Problem
from onbeat.api.schemas.base import Body, Tag, Text, View
from onbeat.api.schemas.job_actions import PauseBody, ResumeBody, TriggerBody
from onbeat.api.schemas.runs import RunStateName
from onbeat.domain.errors import RequestError

Cursor = Annotated[str | None, Field(max_length=200, description="`next_cursor` of the answer before")]


class JobFilterBody(Body):
    """The filters of GET /v1/jobs.

    Nothing here may be empty: an empty text would find everything, where a variable of a script was perhaps not set.
    """

    state: Literal["active", "paused", "completed", "error"] | None = None
    tag: Annotated[Text | None, Field(min_length=1, max_length=64)] = None
    text: Annotated[
        Text | None, Field(min_length=1, max_length=200, description="Part of the name or key, in any case")
    ] = None


class RunFilterBody(Body):
    """The filters of GET /v1/runs."""

    job: str | None = Field(None, max_length=128, description="Id or key of a job")
    state: list[RunStateName] | None = Field(
        None,
        min_length=1,
        max_length=9,
        description="Left out: to `cancel` runs that have not ended, to `retry` those that are `failed` or `timed_out`",
    )
    late: bool | None = None
    scheduled_from: str | None = Field(None, alias="from", max_length=64, description="RFC 3339, inclusive")
    scheduled_to: str | None = Field(None, alias="to", max_length=64, description="RFC 3339, exclusive")


class BulkBody(Body):
    """What both kinds share."""

    everything: bool = Field(False, alias="all", description="In place of a filter")
    dry_run: bool = Field(False, description="Only count")
    limit: int = Field(1_000, ge=1, le=1_000, description="At most so many in this call")
    cursor: Cursor = None


class DeleteBody(Body):
    """How to delete."""

    running: Literal["finish", "cancel"] = Field("finish", description="What happens to attempts that run")


class TagBody(Body):
    """Which tag."""

    tag: Tag


JobAction = Literal["pause", "resume", "delete", "trigger", "add_tag", "remove_tag"]
JobArguments = PauseBody | ResumeBody | DeleteBody | TriggerBody | TagBody

ARGUMENTS: Final[dict[JobAction, type[JobArguments]]] = {
    "pause": PauseBody,
    "resume": ResumeBody,
    "delete": DeleteBody,
    "trigger": TriggerBody,
    "add_tag": TagBody,
    "remove_tag": TagBody,
}

AnyArguments = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {"anyOf": [kind.model_json_schema() for kind in (PauseBody, ResumeBody, DeleteBody, TriggerBody, TagBody)]}
    ),
]


class BulkJobsBody(BulkBody):
    """An action on jobs."""

    filter: JobFilterBody = JobFilterBody()
    action: JobAction
    arguments: AnyArguments = Field(
        {}, description="As for the action on one job; `delete` takes `running`, `add_tag` and `remove_tag` a `tag`"
    )


class BulkRunsBody(BulkBody):
    """An action on runs."""

    filter: RunFilterBody = RunFilterBody()
    action: Literal["cancel", "retry"]


class BulkRefusal(View):
    """One that was refused, and why."""

    id: str
    error: Problem


class BulkDoneView(View):
    """What became of those that were found. With `next_cursor` there may be more: send it with the same request."""

    done: int
    unchanged: int = Field(description="Were as asked for already")
    refused: int
    problems: list[BulkRefusal] = Field(description="Of the first 100 that were refused")
    next_cursor: str | None


class BulkCountView(View):
    """What a dry run found."""

    count: int = Field(description="Exact up to 10,000")
    more: bool = Field(description="There are more than `count`")
    first: list[str] = Field(description="Ids of the first ten")


def check_filter(body: BulkJobsBody | BulkRunsBody) -> None:
    """Everything is meant only where that is said. Raises RequestError."""
    is_empty = all(value is None for value in body.filter.model_dump().values())
    if is_empty and not body.everything:
        raise RequestError("an empty filter finds everything", field="filter", remedy='say it with "all": true')
    if body.everything and not is_empty:
        raise RequestError("`all` and a filter contradict each other", field="all", remedy="leave one of them out")


def read_arguments(body: BulkJobsBody) -> JobArguments:
    """The arguments of the action. Raises RequestValidationError."""
    try:
        return ARGUMENTS[body.action].model_validate(body.arguments)
    except pydantic.ValidationError as error:
        raise RequestValidationError(
            [{**fault, "loc": ("body", "arguments", *fault["loc"])} for fault in error.errors()]
        ) from None
