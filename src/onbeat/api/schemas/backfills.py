"""Backfills as they are asked for and answered."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from onbeat.api.schemas.base import Body, View, moment
from onbeat.domain.backfill import DEFAULT_RATE_PER_S, MAX_RATE_PER_S, MOST_INSTANTS, BackfillOrder
from onbeat.domain.ids import format_job_id
from onbeat.domain.instants import parse_instant
from onbeat.services.backfills import BackfillPreview, BackfillRequest
from onbeat.store.values import StoredBackfill


class BackfillBody(Body):
    """Which planned instants of the past are to become runs, and how fast."""

    from_: str = Field(alias="from", max_length=64, examples=["2026-05-01T00:00:00Z"], description="Inclusive")
    to: str = Field(max_length=64, examples=["2026-05-02T00:00:00Z"], description="Exclusive; not in the future")
    order: Literal["oldest", "newest"] = Field("oldest", description="Which come first")
    rate_per_s: int = Field(DEFAULT_RATE_PER_S, ge=1, le=MAX_RATE_PER_S, description="Runs created in a second")
    max: int = Field(MOST_INSTANTS, ge=1, le=MOST_INSTANTS, description="Runs created at most")
    dry_run: bool = Field(False, description="Only tell what it would do")


class BackfillView(View):
    """A backfill and how far it is."""

    job_id: str
    number: int
    state: Literal["running", "done", "cancelled"]
    reason: str | None = Field(description="Why it was given up; null where a person cancelled it")
    from_: str = Field(alias="from")
    to: str
    order: Literal["oldest", "newest"]
    rate_per_s: int
    max: int
    instants: int = Field(description="Planned in the range")
    looked_at: int = Field(description="Of the instants")
    created: int = Field(description="Of those, how many became runs")
    created_at: str
    ended_at: str | None


class BackfillPreviewView(View):
    """With `dry_run`: what it would do now."""

    instants: int = Field(description="Planned in the range")
    with_runs: int
    in_marks: int = Field(description="Recorded as missed or skipped")
    unaccountable: int = Field(description="Of `in_marks`: its schedules no longer tell which they were; they stay")
    blacked_out: int = Field(description="Have no run, and get none: a blackout covers them")
    to_create: int


class BackfillList(View):
    """The newest backfills of a job, at most 100."""

    items: list[BackfillView]


def read_backfill(body: BackfillBody) -> BackfillRequest:
    """What the service takes. Raises RequestError naming the field."""
    return BackfillRequest(
        from_at=parse_instant(body.from_, field="from"),
        to_at=parse_instant(body.to, field="to"),
        order=BackfillOrder(body.order),
        rate_per_s=body.rate_per_s,
        most=body.max,
    )


def view_backfill(backfill: StoredBackfill) -> dict[str, Any]:
    """A BackfillView, ready to be written as JSON."""
    return {
        "job_id": format_job_id(backfill.job_id),
        "number": backfill.number,
        "state": backfill.state,
        "reason": backfill.reason,
        "from": moment(backfill.from_at),
        "to": moment(backfill.to_at),
        "order": backfill.order,
        "rate_per_s": backfill.rate_per_s,
        "max": backfill.most,
        "instants": backfill.instants,
        "looked_at": backfill.looked_at,
        "created": backfill.created,
        "created_at": moment(backfill.created_at),
        "ended_at": moment(backfill.ended_at),
    }


def view_preview(preview: BackfillPreview) -> dict[str, Any]:
    """A BackfillPreviewView, ready to be written as JSON."""
    return {
        "instants": preview.instants,
        "with_runs": preview.with_runs,
        "in_marks": preview.in_marks,
        "unaccountable": preview.unaccountable,
        "blacked_out": preview.blacked_out,
        "to_create": preview.to_create,
    }
