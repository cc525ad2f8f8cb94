"""A schedule in words, with what a reader might take it for by mistake. English sentences for people."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cronsim.explain import Expression

from onbeat.domain.cron import CronExpression, depends_on_job, parse_cron
from onbeat.domain.cron_fields import CronField
from onbeat.domain.duration import format_duration
from onbeat.domain.instants import format_instant
from onbeat.domain.model import (
    AfterFinishSchedule,
    AtSchedule,
    CronSchedule,
    EverySchedule,
    RruleSchedule,
    Schedule,
)

_ORDINAL = re.compile(r"\b([2-9]?)([123])th\b")
_ORDINAL_ENDS = {"1": "st", "2": "nd", "3": "rd"}
_STAR_STEP = re.compile(r"\*/(\d+)")


@dataclass(frozen=True, slots=True)
class ScheduleWords:
    """What a schedule means."""

    text: str
    timezone: str | None  # None: the schedule knows no wall clock
    notes: tuple[str, ...]


def describe_schedule(schedule: Schedule, *, job_id: int | None) -> ScheduleWords:
    """Put a schedule in words. Raises DefinitionError like `parse_cron`."""
    match schedule:
        case CronSchedule():
            expression = parse_cron(schedule.expression, job_id=job_id)
            return ScheduleWords(
                text=explain(expression),
                timezone=schedule.timezone,
                notes=(
                    *_cron_notes(schedule.expression, expression, has_job=job_id is not None),
                    *_dst_notes(schedule, expression),
                    *_bound_notes(schedule),
                ),
            )
        case RruleSchedule():
            text = f"By the rule {schedule.rule.strip()}, from {schedule.dtstart.replace('T', ' ')} local time on"
            note = "dtstart begins the rule and is an instant of it only where the rule names it too."
            return ScheduleWords(text=text, timezone=schedule.timezone, notes=(note, *_bound_notes(schedule)))
        case EverySchedule():
            text = f"Every {format_duration(schedule.every_s)}, counted from {format_instant(schedule.anchor_at)}"
            note = "An interval is elapsed time: changes of the clock do not move it. For a time of the day, use cron."
            return ScheduleWords(text=text, timezone=None, notes=(note, *_bound_notes(schedule)))
        case AfterFinishSchedule():
            text = f"{format_duration(schedule.every_s)} after each run has ended"
            note = (
                "Counted from the end of the run, however it ended: only the next instant is known, and none meanwhile."
            )
            return ScheduleWords(text=text, timezone=None, notes=(note, *_bound_notes(schedule)))
        case AtSchedule():
            text = f"Once, at {format_instant(schedule.at)}"
            return ScheduleWords(text=text, timezone=None, notes=tuple(_bound_notes(schedule)))


def explain(expression: CronExpression) -> str:
    """`At 09:00 on Monday through Friday`: cronsim's words, with the rule for the two day fields put right."""
    words = Expression(expression.plain.split())
    text = words.explain()
    if not expression.days.both_must_match:
        text = text.replace(f"{words.day} and {words.dow}", f"{words.day} or {words.dow}")
    return _ORDINAL.sub(lambda match: match[1] + match[2] + _ORDINAL_ENDS[match[2]], text)


def _cron_notes(written: str, expression: CronExpression, *, has_job: bool) -> list[str]:
    notes: list[str] = []
    if expression.macro is not None:
        notes.append(f"{expression.macro} stands for '{expression.plain}'.")
    if expression.has_seconds:
        notes.append("Six fields: the first one is seconds.")
    if depends_on_job(written):
        whose = "this job" if has_job else "a job without an id yet, as an example,"
        notes.append(f"H is spread by the job's id; for {whose} the expression is '{expression.plain}'.")
    notes += _day_notes(expression)
    notes += _step_notes("minute", expression.minute, size=60, restarts="hour")
    notes += _step_notes("hour", expression.hour, size=24, restarts="day")
    notes += _step_notes("month", expression.month, size=12, restarts="year")
    return notes


def _dst_notes(schedule: CronSchedule, expression: CronExpression) -> list[str]:
    notes: list[str] = []
    if schedule.dst_gap == "shift":
        notes.append("Local times that do not exist fire once, together, at the first moment after the gap.")
    elif schedule.dst_gap == "skip":
        notes.append("Local times that do not exist do not fire.")
    if schedule.dst_overlap is not None:
        which = {"first": "the first time only", "second": "the second time only", "both": "both times"}
        notes.append(f"Local times that come twice fire {which[schedule.dst_overlap]}.")
    if schedule.dst_overlap in ("first", "second") and not expression.is_fixed_time:
        notes.append("So elapsed time is not followed: nothing fires in the other pass of such an hour.")
    return notes


def _bound_notes(schedule: Schedule) -> list[str]:
    notes: list[str] = []
    if schedule.start_at is not None:
        notes.append(f"Starts at {format_instant(schedule.start_at)}: nothing fires before it.")
    if schedule.end_at is not None:
        notes.append(f"Ends at {format_instant(schedule.end_at)}: nothing fires after it.")
    if schedule.max_fires is not None and schedule.last_at is not None:
        notes.append(f"Fires {schedule.max_fires} times, the last time at {format_instant(schedule.last_at)}.")
    return notes


def _day_notes(expression: CronExpression) -> list[str]:
    day, weekday = expression.day.text, expression.weekday.text
    if expression.days.both_must_match:
        starred = [text for text in (day, weekday) if text != "*" and text.startswith("*")]
        if starred and "*" not in (day, weekday):
            return [f"'{starred[0]}' starts with *, so a day must match both day-of-month and day-of-week."]
        return []
    return ["Day-of-month and day-of-week are both given: a day matches when either of them does, not only both."]


def _step_notes(name: str, field: CronField, *, size: int, restarts: str) -> list[str]:
    """Steps count within their field: the two ways in which people expect something else."""
    match = _STAR_STEP.fullmatch(field.text)
    step = int(match[1]) if match is not None else 1
    if step > 1 and step >= size:
        return [f"'*/{step}' is a step longer than the {name} field: only {name} {field.values[0]} matches."]
    if size % step:
        return [f"'*/{step}' starts again with each {restarts}, so the last gap is shorter than the others."]
    return []
