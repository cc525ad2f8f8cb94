"""The preview: what schedules will do, shown before anybody relies on it. The same timetable as the dispatcher's.

Instants in every zone concerned, the schedules in words, and what the next change of the clock does to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onbeat.domain.bounds import Plan
from onbeat.domain.calendar import Calendar
from onbeat.domain.duration import format_duration
from onbeat.domain.instants import format_instant
from onbeat.domain.kept_out import MOST_TOLD, KeptOut, kept_out
from onbeat.domain.model import SECOND_US, CronSchedule, RruleSchedule, Schedule
from onbeat.domain.offsets import (
    Stretch,
    format_local,
    next_change,
    offset_at,
    pass_number,
    stretch_at,
)
from onbeat.domain.removed import CHANGES_WITHIN_S, RemovedInstant, removed_instants
from onbeat.domain.timetable import NO_CALENDARS, Timetable, after_finish_of, compile_timetable, walk_of
from onbeat.domain.walk import WallClockWalk
from onbeat.domain.words import ScheduleWords, describe_schedule
from onbeat.domain.zones import TZDATA_VERSION


@dataclass(frozen=True, slots=True)
class PreviewedInstant:
    """One planned instant."""

    at: int  # µs UTC
    local: tuple[str, ...]  # like 'Sun 2025-03-09 03:00 -0400', one per zone of the preview
    notes: tuple[str, ...]  # moved out of a gap, or a local time that comes twice


@dataclass(frozen=True, slots=True)
class Preview:
    """What schedules will do."""

    timezones: tuple[str, ...]  # of the schedules that have one, in order; UTC where there are none
    schedules: tuple[ScheduleWords, ...]
    instants: tuple[PreviewedInstant, ...]  # fewer than asked for: nothing is left after them
    removed: tuple[RemovedInstant, ...]  # what a rule took away or moved in the same time
    notes: tuple[str, ...]  # the next changes of the clock and what they do
    kept_out: tuple[KeptOut, ...]  # what calendars removed or moved on the way to the last instant
    tzdata_version: str = TZDATA_VERSION


def preview(
    schedules: tuple[Schedule, ...],
    *,
    job_id: int | None,
    after: int,
    count: int,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
) -> Preview:
    """The next `count` instants after `after` (µs UTC), and the words. `job_id` None: a job without an id yet.

    Raises DefinitionError like `compile_timetable`.
    """
    timetable = compile_timetable(schedules, job_id=job_id, calendars=calendars)
    bounded = [(walk, plan) for plan in timetable.plans if (walk := walk_of(plan)) is not None]
    walks = [walk for walk, _plan in bounded]
    timezones = tuple(dict.fromkeys(walk.timezone for walk in walks)) or ("UTC",)
    instants: list[PreviewedInstant] = []
    instant = timetable.next_after(after)
    if after_finish_of(schedules) is not None:
        count = 1  # the next one, if nothing runs; the others depend on when it ends
    while instant is not None and len(instants) < count:
        second = instant // SECOND_US
        instants.append(
            PreviewedInstant(
                at=instant,
                local=tuple(_local_text(timezone, second) for timezone in timezones),
                notes=tuple(
                    dict.fromkeys(note for walk, plan in bounded for note in _instant_notes(walk, plan, second))
                ),
            )
        )
        instant = timetable.next_after(instant)
    return Preview(
        timezones=timezones,
        schedules=tuple(describe_schedule(schedule, job_id=job_id) for schedule in schedules),
        instants=tuple(instants),
        removed=removed_instants(
            schedules,
            job_id=job_id,
            after=after,
            until=None if instant is None else instants[-1].at,
            wanted=count - len(instants),
        ),
        notes=tuple(
            dict.fromkeys(
                note
                for schedule, plan in zip(schedules, timetable.plans, strict=False)
                if isinstance(schedule, CronSchedule | RruleSchedule) and (walk := walk_of(plan)) is not None
                for note in _change_notes(walk, max(after // SECOND_US, 0), written=_written(schedule))
            )
        ),
        kept_out=kept_out_of(
            timetable, after=after, until=instants[-1].at if len(instants) == count else _horizon(after, instants)
        ),
    )


def kept_out_of(timetable: Timetable, *, after: int, until: int) -> tuple[KeptOut, ...]:
    """What the calendars of all schedules keep out in `(after, until]`, by time; of each, at most MOST_TOLD entries."""
    found = [told for plan in timetable.plans for told in kept_out(plan, after=after, until=until)]
    return tuple(sorted(found, key=lambda told: told.at)[:MOST_TOLD])


def _horizon(after: int, instants: list[PreviewedInstant]) -> int:
    """How far to look for what is kept out, where no instant is left."""
    return (instants[-1].at if instants else after) + CHANGES_WITHIN_S * SECOND_US


def _written(schedule: CronSchedule | RruleSchedule) -> str:
    return schedule.expression if isinstance(schedule, CronSchedule) else schedule.rule


def _local_text(timezone: str, second: int) -> str:
    offset = offset_at(timezone, second)
    return format_local(second + offset, offset=offset)


def _instant_notes(walk: WallClockWalk, plan: Plan, second: int) -> Iterator[str]:
    if plan.first_from(second) != second:
        return  # another schedule's instant
    stretch = stretch_at(walk.timezone, second)
    mark = walk.gap_mark(stretch) if second == stretch.start else None
    if mark is not None:
        yield f"{format_local(mark)} does not exist in {walk.timezone}; this is the first moment after the gap"
    number = pass_number(walk.timezone, second)
    if number is not None and walk.overlap != "both":
        yield f"this local time comes twice in {walk.timezone}; the job fires the {walk.overlap} time only"
    elif number is not None:
        yield f"this local time comes twice in {walk.timezone}; this is the {'first' if number == 1 else 'second'} time"


def _change_notes(walk: WallClockWalk, after: int, *, written: str) -> Iterator[str]:
    """The next change of the clock; and the next one that touches the schedule, if that is a later one."""
    until = after + CHANGES_WITHIN_S
    change = next_change(walk.timezone, after, within_s=CHANGES_WITHIN_S)
    is_next = True
    while change is not None:
        effect = _effect(walk, change)
        if is_next or effect is not None:
            shown = written.strip()
            yield f"{_describe(change, walk.timezone)} " + (
                f"'{shown}': {effect}." if effect is not None else f"'{shown}' keeps its local times."
            )
        if effect is not None:
            return
        is_next = False
        change = next_change(walk.timezone, change.start, within_s=until - change.start)


def _describe(change: Stretch, timezone: str) -> str:
    was, becomes = format_local(change.start + change.before), format_local(change.start + change.offset)
    shift = change.offset - change.before
    return (
        f"{timezone}: at {format_instant(change.start * SECOND_US)} the clock goes "
        f"{'forward' if shift > 0 else 'back'} by {format_duration(abs(shift))}, from {was} to {becomes}."
    )


def _effect(walk: WallClockWalk, change: Stretch) -> str | None:
    """What a change of the clock does to a schedule; None: nothing but to move it in UTC."""
    was, becomes = change.start + change.before, change.start + change.offset
    mark = walk.mark_between(min(was, becomes), max(was, becomes))
    if mark is None:
        return None
    if was < becomes:
        if walk.gap == "shift":
            moved_to = format_local(becomes, offset=change.offset)
            return f"{format_local(mark)} does not exist; what falls into the gap fires once, at {moved_to}"
        if walk.is_fixed_time:
            return f"{format_local(mark)} does not exist; what falls into the gap does not fire"
        return "it follows elapsed time, so nothing fires for the local times that are left out"
    if walk.overlap != "both":
        return f"{format_local(mark)} comes twice; it fires the {walk.overlap} time only"
    if walk.is_fixed_time:
        return f"{format_local(mark)} comes twice; it fires both times"
    return "it follows elapsed time, so it fires in both passes of the local times that come twice"
