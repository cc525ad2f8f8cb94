"""Calendars: save, import, delete; and the clocks of the jobs behind a calendar that changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date

import structlog

from onbeat.clock import Clock
from onbeat.domain.calendar import CalendarRules, check_calendar, decode_rules, encode_rules
from onbeat.domain.errors import CalendarInUse, CalendarNotFound, DefinitionError
from onbeat.domain.ics import IcsDays, read_ics
from onbeat.domain.ids import format_job_id
from onbeat.domain.model import decode_definition
from onbeat.services.almanac import Almanac
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import KEEP, KeepClock, StoredCalendar, StoredJob

log = structlog.get_logger(__name__)

REPLAN_BATCH = 200
"""Jobs per transaction: below 50 ms, so that fires do not wait for a calendar with a million jobs behind it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A calendar after an import, and what was found in the text."""

    calendar: StoredCalendar
    found: IcsDays


class Calendars:
    """What people do with calendars."""

    def __init__(self, *, store: Store, clock: Clock, almanac: Almanac, replan_wake: Wake, dispatch_wake: Wake) -> None:
        self._store = store
        self._clock = clock
        self._almanac = almanac
        self._replan_wake = replan_wake
        self._dispatch_wake = dispatch_wake

    async def put(self, namespace: str, name: str, rules: CalendarRules) -> StoredCalendar:
        """Create the calendar, or give it these rules. Raises DefinitionError.

        The clocks of the jobs behind it are planned again: the first batch now, the others by the replanner.
        """
        await asyncio.to_thread(check_calendar, rules)  # thousands of dates, and modules of countries
        saved = await self._store.calendars.put(namespace, name, rules=encode_rules(rules), now=self._clock.now())
        await self._almanac.load(now=self._clock.now())
        if await self.replan():
            self._replan_wake.set()
        return saved

    async def import_ics(self, namespace: str, name: str, text: str, *, until: date | None) -> Imported:
        """Put the days of an iCalendar text in place of the calendar's dates; its other rules stay.

        Creates the calendar where there is none. Raises DefinitionError.
        """
        found = await asyncio.to_thread(read_ics, text, until=until)
        stored = await self._store.calendars.get(namespace, name)
        before = CalendarRules() if stored is None else decode_rules(stored.rules)
        rules = CalendarRules(
            timezone=before.timezone,
            dates=found.ranges,
            weekdays=before.weekdays,
            cron=before.cron,
            holidays=before.holidays,
        )
        return Imported(await self.put(namespace, name, rules), found)

    async def get(self, namespace: str, name: str) -> StoredCalendar:
        """Raises CalendarNotFound."""
        stored = await self._store.calendars.get(namespace, name)
        if stored is None:
            raise CalendarNotFound(f"there is no calendar named {name!r}")
        return stored

    async def find(self, namespace: str) -> list[StoredCalendar]:
        """Every calendar of a namespace, by name."""
        return [stored for stored in await self._store.calendars.find() if stored.namespace == namespace]

    async def delete(self, namespace: str, name: str) -> None:
        """Raises CalendarNotFound, CalendarInUse."""
        users = await self._store.calendars.delete(namespace, name)
        if users is None:
            raise CalendarNotFound(f"there is no calendar named {name!r}")
        if users:
            raise CalendarInUse(
                f"{users} job{'' if users == 1 else 's'} use the calendar {name!r}",
                remedy="take it out of their schedules, or delete them, first",
            )
        await self._almanac.load(now=self._clock.now())

    async def replan(self) -> bool:
        """Set the clocks of one batch of jobs whose calendar changed. True: others wait."""
        await self._almanac.refresh(now=self._clock.now())
        done = await self._store.calendars.replan(
            now=self._clock.now(), limit=REPLAN_BATCH, revision=self._almanac.revision, decide=self._next_fire
        )
        for job_id, reason in done.parked:
            log.error("job_parked", job_id=format_job_id(job_id), reason=reason)
        if done.jobs:
            self._dispatch_wake.set()
        elif done.more:  # perhaps since a change was written and then could not be loaded
            await self._almanac.load(now=self._clock.now())
        return done.more

    def _next_fire(self, job: StoredJob) -> int | KeepClock | None:
        """The clock of a job whose calendar changed: its next future instant. What is due already is the dispatcher's.

        A completed job goes on where its calendar has days again.
        """
        now = self._clock.now()
        if job.next_fire_at is not None and job.next_fire_at <= now:
            return KEEP
        definition = decode_definition(job.definition)
        timetable = self._almanac.timetable(job.namespace, definition.schedules, job_id=job.job_id)
        # Another node's estimate of the time may be a little ahead, and has recorded what this one takes for future.
        next_fire_at = timetable.next_after(max(now, job.recorded_until))
        return KEEP if next_fire_at == job.next_fire_at else next_fire_at


def readable_rules(stored: StoredCalendar) -> CalendarRules | None:
    """The rules of a calendar, None where a hand has written something else."""
    try:
        return decode_rules(stored.rules)
    except DefinitionError:
        return None
