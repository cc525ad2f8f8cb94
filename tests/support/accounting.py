"""Judges a database after everything has stopped: is every planned instant there exactly once?"""

from __future__ import annotations

from tests.support.database import Data, look

from onbeat.domain.ids import parse_job_id
from onbeat.domain.model import decode_definition
from onbeat.domain.timetable import compile_timetable


def recorded_instants(data: Data, job_id: str) -> list[int]:
    """The planned instants of a job that have a record, one entry per record and instant, ascending."""
    number = parse_job_id(job_id)
    rows = look(
        data,
        "select scheduled_at, coalesce(until, scheduled_at) from runs where job_id = ? and trigger <> 'manual'",
        number,
    )
    ((definition,),) = look(data, "select definition from jobs where job_id = ?", number)
    timetable = compile_timetable(decode_definition(definition).schedules, job_id=number)
    instants: list[int] = []
    for first, last in rows:
        instant: int | None = first
        while instant is not None and instant <= last:
            instants.append(instant)
            instant = timetable.next_after(instant)
    return sorted(instants)


def planned_instants(data: Data, job_id: str) -> list[int]:
    """The instants that must have a record: from the job's first one to its clock, exclusive."""
    number = parse_job_id(job_id)
    ((definition, created_at),) = look(data, "select definition, created_at from jobs where job_id = ?", number)
    clocks = look(data, "select next_fire_at from clocks where job_id = ?", number)
    timetable = compile_timetable(decode_definition(definition).schedules, job_id=number)
    instants: list[int] = []
    instant = timetable.next_after(created_at)
    while instant is not None and (not clocks or instant < clocks[0][0]):
        instants.append(instant)
        instant = timetable.next_after(instant)
    return instants
