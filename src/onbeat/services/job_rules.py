"""What makes a definition acceptable when it is saved, and which instant its clock shows first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from onbeat.domain.auto_pause import check_auto_pause
from onbeat.domain.backoff import check_retry
from onbeat.domain.calendar import Calendar
from onbeat.domain.callback import check_completion
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import next_whole_second
from onbeat.domain.last_fire import resolve_last_fire
from onbeat.domain.model import (
    MAX_RUNNING,
    SECOND_US,
    AfterFinishSchedule,
    AtSchedule,
    CalendarUse,
    CronSchedule,
    Definition,
    EverySchedule,
    RruleSchedule,
    Schedule,
    WebhookTarget,
)
from onbeat.domain.timetable import after_finish_of, check_schedules, compile_timetable
from onbeat.domain.webhook import check_text, check_webhook


@dataclass(frozen=True, slots=True)
class EveryDraft:
    """An interval as written: without an anchor it is anchored to the moment of its creation."""

    every_s: int
    anchor_at: int | None
    start_at: int | None = None
    end_at: int | None = None
    calendars: CalendarUse | None = None
    max_fires: int | None = None


DraftSchedule = CronSchedule | RruleSchedule | EveryDraft | AtSchedule | AfterFinishSchedule


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A job as somebody wrote it, its fields already of the right types. `definition.schedules` is filled in here."""

    key: str | None
    name: str
    tags: tuple[str, ...]
    schedules: tuple[DraftSchedule, ...]
    definition: Definition
    past: Literal["refuse", "run_now"] = "refuse"  # what an `at` in the past means


@dataclass(frozen=True, slots=True)
class SavedRules:
    """A draft that was found acceptable."""

    definition: Definition
    next_fire_at: int | None


def check_draft(
    draft: JobDraft,
    *,
    job_id: int,
    now: int,
    created_at: int,
    egress: EgressRules,
    calendars: Mapping[str, Calendar],
    can_be_called: bool = False,
    existing: Definition | None = None,
) -> SavedRules:
    """The definition to store and the first instant of its clock. Raises DefinitionError naming the field.

    1. Anchors: an interval keeps the anchor it has while its length stays.
    2. One shots in the past are refused, unless they lie inside grace, or `past` is `run_now`, or stood there before.
    3. `max_fires` is resolved to the instant of the last fire, counted from `start_at` or the job's creation.
    4. Every rule must be computable now: zones are loaded and one instant is found.
    5. The target must be one that could be sent.
    """
    former = existing.schedules if existing is not None else ()
    _check_whole(draft.schedules)
    anchored = settle_anchors(draft.schedules, now=now, former=former)
    settled = _settle_past(anchored, draft, former, now)
    resolved = resolve_last_fires(settled, job_id=job_id, counted_from=created_at, calendars=calendars, former=former)
    definition = msgspec.structs.replace(draft.definition, schedules=resolved)
    check_schedules(definition.schedules, job_id=job_id, now=now, calendars=calendars, former=former)
    if not 1 <= definition.max_running <= MAX_RUNNING:
        raise DefinitionError(
            "field_invalid",
            f"max_running must lie in 1..{MAX_RUNNING}",
            field="max_running",
            remedy="choose a number in it",
        )
    if after_finish_of(definition.schedules) is not None and definition.max_running != 1:
        raise DefinitionError(
            "field_invalid",
            "a job with every_after_finish runs once at a time",
            field="max_running",
            remedy="set max_running to 1",
        )
    if isinstance(definition.target, WebhookTarget):
        check_webhook(definition.target, egress)
    else:
        check_text(definition.target.payload, field="target.payload")
    check_retry(definition.retry)
    check_auto_pause(definition.auto_pause)
    check_completion(definition, can_be_called=can_be_called)
    timetable = compile_timetable(definition.schedules, job_id=job_id, calendars=calendars)
    first_at = timetable.next_after(now)
    for schedule in definition.schedules:
        if not isinstance(schedule, AtSchedule) or schedule in former or schedule.at > now:
            continue
        if timetable.count(schedule.at - 1, schedule.at):  # no calendar has moved it
            first_at = schedule.at if first_at is None else min(first_at, schedule.at)
    if first_at is None and not any(
        isinstance(schedule, AtSchedule) or schedule in former for schedule in definition.schedules
    ):
        raise DefinitionError(
            "never_fires", "no schedule has an instant left", field="schedules", remedy="give one that still comes"
        )
    return SavedRules(definition=definition, next_fire_at=first_at)


def _check_whole(schedules: tuple[DraftSchedule, ...]) -> None:
    for index, schedule in enumerate(schedules):
        match schedule:
            case AtSchedule(at=at) if at % SECOND_US:
                field = f"schedules[{index}].at"
            case EveryDraft(anchor_at=anchor_at) if anchor_at is not None and anchor_at % SECOND_US:
                field = f"schedules[{index}].anchor"
            case _:
                continue
        raise DefinitionError(
            "instant_not_whole", "planned instants are whole seconds", field=field, remedy="leave the fraction out"
        )


def settle_anchors(
    schedules: tuple[DraftSchedule, ...], *, now: int, former: tuple[Schedule, ...] = ()
) -> tuple[Schedule, ...]:
    """Give every interval its anchor: the one written, the one it had before, its `start_at`, or now."""
    return tuple(_anchor(schedule, former, now) for schedule in schedules)


def _anchor(schedule: DraftSchedule, former: tuple[Schedule, ...], now: int) -> Schedule:
    if not isinstance(schedule, EveryDraft):
        return schedule
    anchor_at = schedule.anchor_at
    if anchor_at is None:
        kept = (known for known in former if isinstance(known, EverySchedule) and known.every_s == schedule.every_s)
        if (known := next(kept, None)) is not None:
            anchor_at = known.anchor_at
        elif schedule.start_at is not None:
            anchor_at = next_whole_second(schedule.start_at)
        else:
            anchor_at = now - now % SECOND_US
    return EverySchedule(
        every_s=schedule.every_s,
        anchor_at=anchor_at,
        start_at=schedule.start_at,
        end_at=schedule.end_at,
        calendars=schedule.calendars,
        max_fires=schedule.max_fires,
    )


def resolve_last_fires(
    schedules: tuple[Schedule, ...],
    *,
    job_id: int | None,
    counted_from: int,
    calendars: Mapping[str, Calendar],
    former: tuple[Schedule, ...] = (),
) -> tuple[Schedule, ...]:
    """Give every schedule that has a `max_fires` the instant of its last fire."""
    return tuple(
        resolve_last_fire(
            schedule,
            job_id=job_id,
            counted_from=counted_from,
            calendars=calendars,
            former=former,
            field=f"schedules[{index}]",
        )
        for index, schedule in enumerate(schedules)
    )


def _settle_past(
    schedules: tuple[Schedule, ...], draft: JobDraft, former: tuple[Schedule, ...], now: int
) -> tuple[Schedule, ...]:
    settled: list[Schedule] = []
    for index, schedule in enumerate(schedules):
        is_new_and_late = (
            isinstance(schedule, AtSchedule)
            and schedule not in former
            and schedule.at < now - draft.definition.grace_s * SECOND_US
        )
        if is_new_and_late and draft.past == "run_now":
            schedule = msgspec.structs.replace(schedule, at=now - now % SECOND_US + SECOND_US)
        elif is_new_and_late:
            raise DefinitionError(
                "at_in_past",
                "this instant is past and older than the job's grace: the job would never run",
                field=f"schedules[{index}].at",
                remedy='give a later instant, or "past": "run_now"',
            )
        settled.append(schedule)
    return tuple(settled)
