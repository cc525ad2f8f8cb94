"""The almanac: calendars and blackouts of the database in memory, as immutable values that plans are made with.

Decisions inside a transaction, on the store's writer thread, cannot ask the database for them. So all of them are
loaded when the process starts and again after each change; a reader gets the whole new set or the whole old one.
Changes by other processes are seen by the store's revision, which whoever is about to decide has compared first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from onbeat.domain.blackout import Blackout, covering, decode_blackout
from onbeat.domain.calendar import Calendar, day_of, decode_rules
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import SECOND_US, Schedule
from onbeat.domain.offsets import DAY_S
from onbeat.domain.public_holidays import public_holidays
from onbeat.domain.timetable import NO_CALENDARS, Timetable, compile_timetable
from onbeat.store.contract import Store
from onbeat.store.values import StoredBlackout, StoredCalendar

log = structlog.get_logger(__name__)


class Almanac:
    """What is known of calendars and blackouts now."""

    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._loading = asyncio.Lock()  # a load that began earlier must not end later, and bring back what it read
        self.revision = -1  # the store's, of what is in memory; what is there may be newer and is never older
        self._versions: dict[tuple[str, str], tuple[str, Calendar]] = {}
        self._by_namespace: Mapping[str, Mapping[str, Calendar]] = {}
        self._blackouts: Mapping[str, tuple[Blackout, ...]] = {}

    async def refresh(self, *, now: int) -> None:
        """Read what another process has changed, if any may and one has."""
        if self._store.is_shared and await self._store.almanac_revision() != self.revision:
            await self.load(now=now)

    async def load(self, *, now: int) -> None:
        """Read everything. What cannot be read is left out and told: schedules that name such a calendar are refused,
        and such a blackout holds nothing back.
        """
        async with self._loading:
            revision = await self._store.almanac_revision()
            await self._read_all(now=now)
            self.revision = revision

    def calendars(self, namespace: str) -> Mapping[str, Calendar]:
        """The calendars of a namespace, by name."""
        return self._by_namespace.get(namespace, NO_CALENDARS)

    def blackouts(self, namespace: str, tags: Sequence[str]) -> Sequence[Blackout]:
        """The blackouts that concern jobs of a namespace with these tags."""
        known = self._blackouts.get(namespace, ())
        return [blackout for blackout in known if blackout.concerns(tags)] if known else known

    def blackout_at(self, instant: int, *, namespace: str, tags: Sequence[str]) -> str | None:
        """The blackout that covers an instant for jobs with these tags, by name."""
        return covering(self.blackouts(namespace, tags), instant)

    def timetable(self, namespace: str, schedules: tuple[Schedule, ...], *, job_id: int | None) -> Timetable:
        """The timetable of a job in that namespace. Raises DefinitionError, also for a calendar that is not there."""
        return compile_timetable(schedules, job_id=job_id, calendars=self.calendars(namespace))

    async def _read_all(self, *, now: int) -> None:
        known: dict[tuple[str, str], tuple[str, Calendar]] = {}
        by_namespace: dict[str, dict[str, Calendar]] = {}
        for stored in await self._store.calendars.find():
            calendar = self._read(stored)
            if calendar is not None:
                known[stored.namespace, stored.name] = (stored.rules, calendar)
                by_namespace.setdefault(stored.namespace, {})[stored.name] = calendar
                _warm(calendar, now=now)
        self._versions = known
        self._by_namespace = by_namespace
        blackouts: dict[str, tuple[Blackout, ...]] = {}
        for row in await self._store.blackouts.find():
            blackout = _read_blackout(row)
            if blackout is not None:
                blackouts[row.namespace] = (*blackouts.get(row.namespace, ()), blackout)
        self._blackouts = blackouts

    def _read(self, stored: StoredCalendar) -> Calendar | None:
        # The same value while the rules stay the same, so that compiled timetables stay good.
        text, calendar = self._versions.get((stored.namespace, stored.name), (None, None))
        if text == stored.rules:
            return calendar
        try:
            return Calendar(stored.name, decode_rules(stored.rules))
        except DefinitionError as error:
            log.error("calendar_unreadable", namespace=stored.namespace, name=stored.name, reason=error.detail)
            return None


def _read_blackout(stored: StoredBlackout) -> Blackout | None:
    try:
        return Blackout(stored.name, decode_blackout(stored.rules))
    except DefinitionError as error:
        log.error("blackout_unreadable", namespace=stored.namespace, name=stored.name, reason=error.detail)
        return None


def _warm(calendar: Calendar, *, now: int) -> None:
    """Have this year's and the next year's holidays computed: the first look loads a country, which takes 0.2 s."""
    year = day_of(now // SECOND_US // DAY_S).year
    for place in calendar.rules.holidays:
        for near in (year, year + 1):
            public_holidays(place.country, place.subdivision, near)
