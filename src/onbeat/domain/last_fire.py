"""`max_fires`: resolved once, when a schedule is saved, to the instant of its last fire.

So the dispatcher needs no counter, and a crash, an edit of something else or a restore cannot count wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from onbeat.domain.calendar import Calendar
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, AtSchedule, Schedule
from onbeat.domain.offsets import DAY_S, LAST_SECOND
from onbeat.domain.timetable import NO_CALENDARS, compile_timetable

MOST_FIRES: Final = 1_000_000

WALKED: Final = 1_000
"""So few instants are walked, however far apart: some µs each. More are counted day by day, within COUNTED_DAYS."""

COUNTED_DAYS: Final = 30 * 366
"""Some µs each: a job that is saved must not hold up the others."""


def resolve_last_fire(
    schedule: Schedule,
    *,
    job_id: int | None,
    counted_from: int,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
    former: tuple[Schedule, ...] = (),
    field: str,
) -> Schedule:
    """The schedule with `last_at`, the last of its `max_fires` instants; unchanged where it has none.

    Counted from its `start_at` inclusive, else from `counted_from` (µs UTC, the job's creation) exclusive. What was
    resolved in one of `former` stays, whatever newer zone data or calendars say. Raises DefinitionError.
    """
    if schedule.max_fires is None:
        return schedule
    for known in former:
        if known.last_at is not None and msgspec.structs.replace(known, last_at=None) == schedule:
            return known
    if isinstance(schedule, AtSchedule):
        raise DefinitionError(
            "schedule_invalid", "a single instant fires once", field=f"{field}.max_fires", remedy="leave it out"
        )
    if not 1 <= schedule.max_fires <= MOST_FIRES:
        raise DefinitionError(
            "schedule_invalid",
            f"max_fires must lie in 1..{MOST_FIRES}",
            field=f"{field}.max_fires",
            remedy="leave it out for no limit, or give an end_at",
        )
    unlimited = (msgspec.structs.replace(schedule, max_fires=None),)
    try:
        timetable = compile_timetable(unlimited, job_id=job_id, calendars=calendars)
    except DefinitionError as error:  # which knows of one schedule only
        inner = (error.field or "").removeprefix("schedules[0]")
        raise DefinitionError(error.reason_code, error.detail, field=field + inner, remedy=error.remedy) from None
    after = counted_from if schedule.start_at is None else schedule.start_at - 1
    until = min(after + COUNTED_DAYS * DAY_S * SECOND_US, LAST_SECOND * SECOND_US)
    if schedule.max_fires <= WALKED:
        last_at = timetable.nth_walked(schedule.max_fires, after)
    else:
        last_at = timetable.nth_counted(schedule.max_fires, after, until)
        if last_at is None and timetable.next_after(until) is not None:
            raise DefinitionError(
                "schedule_invalid",
                f"the last of {schedule.max_fires} fires lies more than 30 years ahead",
                field=f"{field}.max_fires",
                remedy="leave it out, or give an end_at",
            )
    # None: fewer are planned than that, so the limit never bites.
    return msgspec.structs.replace(schedule, last_at=LAST_SECOND * SECOND_US if last_at is None else last_at)
