"""What is sent to do something with jobs, and what comes back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from onbeat.api.problems import Problem
from onbeat.api.schemas.base import Body, Text, View
from onbeat.api.schemas.job_views import JobRef, JobView
from onbeat.api.schemas.kept_out import KeptOutView
from onbeat.services.resumptions import MOST_REPLAYED

AnyJob = Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/JobBody"})]
"""One that is judged by itself, so that its faults do not refuse the others."""


class BatchBody(Body):
    """Many jobs at once."""

    jobs: list[AnyJob] = Field(min_length=1, max_length=10_000, description="Each as for POST /v1/jobs")


class BatchItem(View):
    """What became of one job: `job` where it was saved, `error` where it was refused."""

    status: int = Field(description="What POST /v1/jobs would have answered")
    job: JobRef | None = None
    error: Problem | None = None


class BatchView(View):
    """One item per job, in order."""

    created: int
    refused: int
    items: list[BatchItem]


class PauseBody(Body):
    """How to pause."""

    note: Annotated[Text | None, Field(max_length=500, description="Why, for whoever finds it paused")] = None
    running: Literal["finish", "cancel"] = Field("finish", description="What happens to attempts that run")
    until: str | None = Field(None, max_length=64, description="RFC 3339: it ends by itself then")


class PausedView(View):
    """The job, and when its last side effect can happen."""

    job: JobView
    last_possible_side_effect_at: str


class ResumeBody(Body):
    """How to go on."""

    replay: Literal["none", "failed"] = Field(
        "none",
        description="failed: runs that `failed` or `timed_out` since the newest success come back under their own ids, "
        f"the oldest {MOST_REPLAYED:,} of them at most",
    )


class ReplayedView(View):
    """What came back."""

    count: int
    left: int = Field(description="Failed runs that stay ended, being too many for one request; exact up to 10,000")


class ResumedView(JobView):
    """The job, and with `replay` what came back."""

    replayed: ReplayedView | None = None


class TriggerBody(Body):
    """A run by hand."""

    payload: Any = Field(None, description="Travels instead of the job's own payload")
    force: bool = Field(False, description="Run beside everything, past the overlap rule")


class NothingBody(Body):
    """Nothing has to be said; the body may be left out."""


class NextView(View):
    """Planned instants to come."""

    job_id: str
    fires: list[str]
    kept_out: list[KeptOutView] | None = Field(
        None, description="With `explain`: what calendars removed or moved up to the last of these fires"
    )
