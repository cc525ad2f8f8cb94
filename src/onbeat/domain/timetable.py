"""The timetable: all planned instants of a job, the union of its schedules, each instant once.

Instants are counted and cut off without walking them, so that a job that slept for years wakes at once: per UTC
day, each schedule gives a bitmap of 86,400 bits. Days that look alike share a key, and with it the count.
Moments at this module's surface are µs UTC; ranges are `(after, until]`. Everything behind it is whole seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from onbeat.domain import cron
from onbeat.domain.bounds import BoundedPlan, Plan, cut
from onbeat.domain.calendar import Calendar
from onbeat.domain.calendar_plan import FilteredPlan, Gate, RolledPlan, ZonedCalendar
from onbeat.domain.cron import parse_cron
from onbeat.domain.errors import DefinitionError, RequestError
from onbeat.domain.grid import IntervalGrid, OneShot
from onbeat.domain.instants import next_whole_second, parse_local
from onbeat.domain.model import (
    MAX_SCHEDULES,
    SECOND_US,
    AfterFinishSchedule,
    AtSchedule,
    CalendarUse,
    CronSchedule,
    EverySchedule,
    RruleSchedule,
    Schedule,
)
from onbeat.domain.offsets import DAY_S, LAST_SECOND
from onbeat.domain.recurrence import SEARCHED_YEARS
from onbeat.domain.rrule import parse_rrule
from onbeat.domain.rrule_walk import RruleWalk
from onbeat.domain.walk import CronWalk, WallClockWalk
from onbeat.domain.zones import zone

MIN_EVERY_S: Final = 1
MAX_EVERY_S: Final = 10 * 366 * DAY_S
"""Ten years. A longer interval is a slip of the pen."""

_KEPT_BITMAPS = 512  # of 11 kB each, while one call counts


NO_CALENDARS: Final[Mapping[str, Calendar]] = MappingProxyType({})


class Timetable:
    """The planned instants of one job. Immutable but for the memory of its last answer."""

    __slots__ = ("_last_answer", "plans")

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = tuple(plans)
        # (after, answer) in whole seconds. Nothing lies between the two, so it also answers every moment between
        # them; jobs that share a timetable and are due together ask for the same one. Replaced as one, for threads.
        self._last_answer: tuple[int, int] = (1, 0)  # answers nothing

    def next_after(self, instant: int) -> int | None:
        """The first planned instant strictly later than `instant`. None: nothing is left."""
        second = max(instant // SECOND_US, -1) + 1
        known_from, known = self._last_answer
        if known_from <= second <= known:
            return known * SECOND_US
        found = [first for plan in self.plans if (first := plan.first_from(second)) is not None]
        if not found:
            return None
        answer = min(found)
        self._last_answer = (second, answer)
        return answer * SECOND_US

    def count(self, after: int, until: int) -> int:
        """How many planned instants lie in `(after, until]`."""
        first, last = _seconds_in(after, until)
        plan = self.plans[0]
        if len(self.plans) == 1:
            while isinstance(plan, BoundedPlan):
                first, last, plan = max(first, plan.first), min(last, plan.last), plan.plan
            if isinstance(plan, IntervalGrid | RruleWalk):
                return plan.count(first, last)
        return sum(bits.bit_count() for _day, bits in self._days(first, last))

    def newest(self, number: int, after: int, until: int) -> tuple[int, ...]:
        """The newest `number` planned instants in `(after, until]`, oldest first."""
        first, last = _seconds_in(after, until)
        plan = self.plans[0]
        if len(self.plans) == 1 and isinstance(plan, IntervalGrid):
            return _newest_of_interval(plan, number, first, last)
        found: list[int] = []
        for day in range(last // DAY_S, first // DAY_S - 1, -1):
            if len(found) >= number:
                break
            if all(plan.day_key(day) is None for plan in self.plans):
                continue
            # As text, the highest bit comes first, and finding the next "1" is a search in C.
            text = bin(cut(_union(self.plans, day), day, first, last))
            place = text.find("1", 2)
            while place >= 0 and len(found) < number:
                found.append((day * DAY_S + len(text) - 1 - place) * SECOND_US)
                place = text.find("1", place + 1)
        return tuple(reversed(found))

    def nth_walked(self, number: int, after: int) -> int | None:
        """The `number`th planned instant after `after`, found by going there. None: there are fewer."""
        instant = self.next_after(after)
        for _ in range(number - 1):
            if instant is None:
                return None
            instant = self.next_after(instant)
        return instant

    def nth_counted(self, number: int, after: int, until: int) -> int | None:
        """The `number`th planned instant in `(after, until]`, found by counting days. None: there are fewer."""
        first, last = _seconds_in(after, until)
        plan = self.plans[0]
        if len(self.plans) == 1 and isinstance(plan, IntervalGrid):
            start = plan.first_from(first)
            nth = None if start is None else start + (number - 1) * plan.every
            return nth * SECOND_US if nth is not None and nth <= min(last, plan.last) else None
        for day, bits in self._days(first, last):
            found = bits.bit_count()
            if found >= number:
                return (day * DAY_S + _place_of_bit(bits, number)) * SECOND_US
            number -= found
        return None

    def latest(self, after: int, until: int) -> int | None:
        """The newest planned instant in `(after, until]`, if there is one."""
        newest = self.newest(1, after, until)
        return newest[0] if newest else None

    def _days(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Each UTC day that `first..last` touches, with the bitmap of its instants in there."""
        steady = [plan for plan in self.plans if plan.repeats_daily]
        wandering = [plan for plan in self.plans if not plan.repeats_daily]
        kept: dict[Hashable, int] = {}
        for day in range(first // DAY_S, last // DAY_S + 1):
            key = tuple([plan.day_key(day) for plan in steady])
            bits = kept.get(key)
            if bits is None:
                if len(kept) >= _KEPT_BITMAPS:
                    kept.clear()
                bits = kept[key] = _union(steady, day)
            if wandering:
                bits |= _union(wandering, day)
            if first > day * DAY_S or last < (day + 1) * DAY_S - 1:
                bits = cut(bits, day, first, last)
            yield day, bits


class AfterFinishTimetable(Timetable):
    """At most one instant lies ahead: `every_s` after the moment that is asked about, when nothing runs.

    Which moments those are only the ends of runs say, so nothing can be counted or looked up in the past.
    """

    __slots__ = ("_every_us", "_first_at", "_last_at")

    def __init__(self, schedule: AfterFinishSchedule) -> None:
        super().__init__(())
        first, last = _bounds(schedule)
        self._every_us = schedule.every_s * SECOND_US
        self._first_at = first * SECOND_US
        self._last_at = last * SECOND_US

    def next_after(self, instant: int) -> int | None:
        """`every_s` later, rounded up to the whole second; `start_at` while that lies ahead."""
        if instant < self._first_at:
            return self._first_at
        answer = next_whole_second(instant + self._every_us)
        return answer if answer <= self._last_at else None

    def count(self, after: int, until: int) -> int:
        return 0

    def newest(self, number: int, after: int, until: int) -> tuple[int, ...]:
        return ()


def only_instant(instant: int) -> Timetable:
    """A timetable of one planned instant."""
    return Timetable([OneShot(at=instant // SECOND_US)])


def after_finish_of(schedules: Sequence[Schedule]) -> AfterFinishSchedule | None:
    """The schedule of a job whose fires follow the ends of its runs. None: the job has another kind."""
    return next((schedule for schedule in schedules if isinstance(schedule, AfterFinishSchedule)), None)


def compile_timetable(
    schedules: tuple[Schedule, ...], *, job_id: int | None, calendars: Mapping[str, Calendar] = NO_CALENDARS
) -> Timetable:
    """The timetable of a job. `job_id` resolves H in cron expressions; None stands for a job without an id yet.

    `calendars` are those of the job's namespace, by name. Cached by the ones that the schedules name, and shared by
    all jobs with equal schedules unless one holds an H. Raises DefinitionError as `check_schedules` does, so that a
    stored definition which an older version accepted, or whose calendar is gone, parks its own job only.
    """
    used = tuple([calendars[name] for name in calendar_names(schedules) if name in calendars])
    return _compile(schedules, job_id if depends_on_job(schedules) else None, used)


def depends_on_job(schedules: Sequence[Schedule]) -> bool:
    """True where one of them holds an H: it gives each job other instants."""
    return any(
        isinstance(schedule, CronSchedule)
        and isinstance(schedule.expression, str)
        and cron.depends_on_job(schedule.expression)
        for schedule in schedules
    )


def calendar_names(schedules: Sequence[Schedule]) -> tuple[str, ...]:
    """The calendars that schedules name, each once."""
    uses = [schedule.calendars for schedule in schedules if schedule.calendars is not None]
    return tuple(dict.fromkeys([name for use in uses for name in (*use.exclude, *use.only)])) if uses else ()


def walk_of(plan: Plan) -> WallClockWalk | None:
    """The walk behind the plan of a cron or rrule schedule, whatever bounds it has. None: another kind."""
    while isinstance(plan, BoundedPlan | FilteredPlan | RolledPlan):
        plan = plan.plan
    return plan if isinstance(plan, WallClockWalk) else None


def check_schedules(
    schedules: tuple[Schedule, ...],
    *,
    job_id: int | None,
    now: int,
    calendars: Mapping[str, Calendar] = NO_CALENDARS,
    former: tuple[Schedule, ...] = (),
) -> None:
    """Refuse schedules that cannot be honoured. Raises DefinitionError naming the field.

    Codes: `cron_invalid`, `rrule_invalid`, `timezone_unknown`, `interval_invalid`, `schedule_invalid` (their number, a
    duplicate, a moment out of range), `calendar_unknown` and `never_fires`. Whether an `at` in the past is welcome is
    the caller's to decide. One of `former`, the schedules that stood there before, may have come to its end.
    """
    timetable = compile_timetable(schedules, job_id=job_id, calendars=calendars)
    for index, schedule in enumerate(schedules):
        if schedule in schedules[:index]:
            raise DefinitionError(
                "schedule_invalid",
                f"schedules[{index}] repeats schedules[{schedules.index(schedule)}]",
                field=f"schedules[{index}]",
                remedy="leave it out: instants that several schedules share fire once",
            )
        if schedule in former:
            continue
        if isinstance(schedule, AfterFinishSchedule):
            has_instants = timetable.next_after(now) is not None
        else:
            after = -1 if isinstance(schedule, AtSchedule) else now // SECOND_US
            has_instants = timetable.plans[index].first_from(after + 1) is not None
        if not has_instants:
            raise _never_fires(schedule, field=f"schedules[{index}]")


def _never_fires(schedule: Schedule, *, field: str) -> DefinitionError:
    if schedule.max_fires is not None:
        detail, remedy = "all of the schedule's max_fires instants are past", "give a larger max_fires, or a start_at"
    elif schedule.calendars is not None:
        detail, remedy = "its calendars and bounds leave no instant of the schedule", "give it other days"
    elif isinstance(schedule, RruleSchedule) and schedule.start_at is None and schedule.end_at is None:
        detail = f"the rule names no instant that lies ahead, or none within {SEARCHED_YEARS} years"
        remedy = "compare its BY… parts with dtstart and INTERVAL; give a later UNTIL or a larger COUNT"
    elif schedule.start_at is None and schedule.end_at is None:
        detail, remedy = "the schedule has no instant left before the end of year 9999", "give an earlier anchor"
    else:
        detail, remedy = "no instant of the schedule lies ahead, from start_at to end_at", "give a later end_at"
    return DefinitionError("never_fires", detail, field=field, remedy=remedy)


# Some kB each. Jobs of a crowd mostly share a few schedules; those with an H or an own anchor do not.
@lru_cache(maxsize=8192)
def _compile(schedules: tuple[Schedule, ...], job_id: int | None, calendars: tuple[Calendar, ...]) -> Timetable:
    if not 1 <= len(schedules) <= MAX_SCHEDULES:
        raise DefinitionError(
            "schedule_invalid",
            f"a job has 1 to {MAX_SCHEDULES} schedules, not {len(schedules)}",
            field="schedules",
            remedy="give one" if not schedules else "spread them over several jobs",
        )
    if (after_finish := after_finish_of(schedules)) is not None:
        return _after_finish(schedules, after_finish)
    by_name = {calendar.name: calendar for calendar in calendars}
    return Timetable([_plan(schedule, by_name, index=index, job_id=job_id) for index, schedule in enumerate(schedules)])


def _plan(schedule: Schedule, calendars: Mapping[str, Calendar], *, index: int, job_id: int | None) -> Plan:
    try:
        assert not isinstance(schedule, AfterFinishSchedule)  # it has a timetable of its own
        plan = _bounded(_rule(schedule, job_id=job_id), schedule)
        if schedule.calendars is not None:
            # Bounded once more: an instant must not be moved out of the bounds either.
            plan = _bounded(_behind_calendars(plan, schedule, schedule.calendars, calendars), schedule)
        return _limited(plan, schedule)
    except DefinitionError as error:
        raise DefinitionError(
            error.reason_code, error.detail, field=f"schedules[{index}].{error.field}", remedy=error.remedy
        ) from None


def _after_finish(schedules: tuple[Schedule, ...], schedule: AfterFinishSchedule) -> Timetable:
    field = f"schedules[{schedules.index(schedule)}]"
    if len(schedules) > 1:
        raise DefinitionError(
            "schedule_invalid",
            "every_after_finish is the only schedule of its job",
            field=field,
            remedy="put the others into a job of their own",
        )
    use = schedule.calendars
    if schedule.max_fires is not None or use is not None:
        name = "max_fires" if use is None else "exclude" if use.exclude else "only"
        raise DefinitionError(
            "schedule_invalid",
            f"{name} needs instants that are known ahead; those of every_after_finish are not",
            field=f"{field}.{name}",
            remedy="leave it out, or give an end_at",
        )
    _check_length(schedule.every_s, field=f"{field}.every_after_finish")
    try:
        return AfterFinishTimetable(schedule)
    except DefinitionError as error:
        raise DefinitionError(
            error.reason_code, error.detail, field=f"{field}.{error.field}", remedy=error.remedy
        ) from None


def _rule(schedule: CronSchedule | RruleSchedule | EverySchedule | AtSchedule, *, job_id: int | None) -> Plan:
    match schedule:
        case CronSchedule():
            zone(schedule.timezone)
            return CronWalk(
                parse_cron(schedule.expression, job_id=job_id),
                timezone=schedule.timezone,
                gap=schedule.dst_gap,
                overlap=schedule.dst_overlap,
            )
        case RruleSchedule():
            zone(schedule.timezone)
            dtstart = _local_start(schedule)
            return RruleWalk(parse_rrule(schedule.rule, dtstart=dtstart), dtstart=dtstart, timezone=schedule.timezone)
        case EverySchedule():
            return _interval(schedule)
        case AtSchedule():
            return OneShot(at=_planned_second(schedule.at, field="at"))


def _local_start(schedule: RruleSchedule) -> int:
    try:
        local = parse_local(schedule.dtstart, field="dtstart")
    except RequestError as error:
        raise DefinitionError("schedule_invalid", error.detail, field=error.field, remedy=error.remedy) from None
    return _planned_second(local * SECOND_US, field="dtstart")


def _behind_calendars(plan: Plan, schedule: Schedule, use: CalendarUse, calendars: Mapping[str, Calendar]) -> Plan:
    timezone = schedule.timezone if isinstance(schedule, CronSchedule | RruleSchedule) else "UTC"

    def zoned(field: str, names: tuple[str, ...]) -> list[ZonedCalendar]:
        for name in names:
            if name not in calendars:
                raise DefinitionError(
                    "calendar_unknown",
                    f"there is no calendar named {name[:60]!r} that could be read",
                    field=field,
                    remedy="create it with PUT /v1/calendars/{name}, or leave it out",
                )
        return [ZonedCalendar(calendars[name], calendars[name].rules.timezone or timezone) for name in names]

    gate = Gate(exclude=zoned("exclude", use.exclude), only=zoned("only", use.only))
    if use.roll == "skip":
        return FilteredPlan(plan, gate)
    return RolledPlan(plan, gate, timezone=timezone, forward=use.roll == "next_business_day")


def _interval(schedule: EverySchedule) -> IntervalGrid:
    _check_length(schedule.every_s, field="every")
    first, last = _bounds(schedule)
    anchor = _planned_second(schedule.anchor_at, field="anchor")
    return IntervalGrid(anchor=anchor, every=schedule.every_s, first=first, last=last)


def _check_length(every_s: int, *, field: str) -> None:
    if not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise DefinitionError(
            "interval_invalid",
            f"an interval of {every_s} s is not between 1 second and 10 years",
            field=field,
            remedy="use whole seconds, such as 90, or text such as '1h30m'",
        )


def _bounded(plan: Plan, schedule: Schedule) -> Plan:
    if (schedule.start_at is None and schedule.end_at is None) or isinstance(plan, IntervalGrid):
        return plan  # an interval cuts itself
    first, last = _bounds(schedule)
    return BoundedPlan(plan, first=first, last=last)


def _bounds(schedule: Schedule) -> tuple[int, int]:
    """The first and the last second that `start_at` and `end_at` let pass."""
    first = 0 if schedule.start_at is None else _planned_second(schedule.start_at, field="start_at")
    last = LAST_SECOND
    if schedule.end_at is not None:
        _planned_second(schedule.end_at, field="end_at")
        last = schedule.end_at // SECOND_US
    if last < first:
        raise DefinitionError(
            "schedule_invalid", "end_at comes before start_at", field="end_at", remedy="give a later end_at"
        )
    return first, last


def _limited(plan: Plan, schedule: Schedule) -> Plan:
    """Up to the last of `max_fires`: an instant of the whole plan, after calendars have removed and moved others."""
    if schedule.max_fires is None:
        return plan
    if schedule.last_at is None:
        raise DefinitionError(
            "schedule_invalid", "max_fires has no last_at beside it", field="max_fires", remedy="save the job again"
        )
    last = schedule.last_at // SECOND_US
    if isinstance(plan, IntervalGrid):
        return IntervalGrid(anchor=plan.anchor, every=plan.every, last=min(plan.last, last))
    return BoundedPlan(plan, first=0, last=last)


def _planned_second(instant: int, *, field: str) -> int:
    """The second that a moment plans."""
    if instant < 0 or next_whole_second(instant) > LAST_SECOND * SECOND_US:
        raise DefinitionError(
            "schedule_invalid",
            f"the moment {instant} µs lies outside the years 1970 to 9999",
            field=field,
            remedy="give a moment in them",
        )
    return next_whole_second(instant) // SECOND_US


def _union(plans: Sequence[Plan], day: int) -> int:
    bits = 0
    for plan in plans:
        bits |= plan.day_bits(day)
    return bits


def _place_of_bit(bits: int, number: int) -> int:
    """Where the `number`th set bit stands, counted from 1; there are that many."""
    low, high = 0, DAY_S
    while high - low > 1:
        middle = (low + high) // 2
        if (bits & (1 << middle) - 1).bit_count() >= number:
            high = middle
        else:
            low = middle
    return low


def _seconds_in(after: int, until: int) -> tuple[int, int]:
    """The first and the last whole second in `(after, until]`."""
    return max(after // SECOND_US + 1, 0), min(until // SECOND_US, LAST_SECOND)


def _newest_of_interval(plan: IntervalGrid, number: int, first: int, last: int) -> tuple[int, ...]:
    newest = plan.last_until(last)
    count = min(number, plan.count(first, last))
    if newest is None or count <= 0:
        return ()
    return tuple((newest - step * plan.every) * SECOND_US for step in range(count - 1, -1, -1))
