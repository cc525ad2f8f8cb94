"""Blackouts: windows of time in which no fire becomes a run. Pure; moments are µs UTC, windows `[start, end)`.

A fire whose planned instant lies in a window is recorded as `skipped(blackout)`. What that does to fires that nobody
dispatched in time is decided here too: `plan_around`. The rules stand in `docs/blackouts.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from onbeat.domain.cron import depends_on_job, parse_cron
from onbeat.domain.errors import DefinitionError
from onbeat.domain.misfire import InstantRange, Instants, MisfirePlan, plan_misfires
from onbeat.domain.model import SECOND_US, MisfirePolicy
from onbeat.domain.moved_start import MovedStart
from onbeat.domain.offsets import DAY_S
from onbeat.domain.stored import read_stored
from onbeat.domain.walk import CronWalk
from onbeat.domain.zones import zone

MIN_DURATION_S: Final = 60
MAX_DURATION_S: Final = 31 * DAY_S
"""Of a window that recurs."""

WINDOWS_PER_PLAN: Final = 64
"""How many windows one plan looks at. After an outage over more of them, the rest follow in the next plan."""


class BlackoutRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the store keeps of a blackout, as JSON: one window, or windows that recur."""

    tag: str | None = None  # whose jobs; None: all of the namespace
    from_at: int | None = None
    until_at: int | None = None
    cron: str | None = None  # when a window begins
    timezone: str = "UTC"
    duration_s: int | None = None


class Window(NamedTuple):
    """Moments `start <= t < end`."""

    start: int
    end: int


class Blackout:
    """One blackout, ready to be asked. Immutable."""

    __slots__ = ("_walk", "name", "rules")

    def __init__(self, name: str, rules: BlackoutRules) -> None:
        """Raises DefinitionError as `check_blackout` does."""
        self.name = name
        self.rules = rules
        self._walk = check_blackout(rules)

    def concerns(self, tags: Sequence[str]) -> bool:
        """True for jobs with these tags."""
        return self.rules.tag is None or self.rules.tag in tags

    def covers(self, instant: int) -> bool:
        """True where the instant lies in a window."""
        return next(self.windows(after=instant - 1, until=instant), None) is not None

    def windows(self, *, after: int, until: int) -> Iterator[Window]:
        """The windows that reach into `(after, until]`, by their beginning; they may overlap."""
        rules, walk = self.rules, self._walk
        if walk is None or rules.duration_s is None:
            if rules.from_at is not None and rules.until_at is not None:
                window = Window(rules.from_at, rules.until_at)
                if window.start <= until and window.end > after + 1:
                    yield window
            return
        start = walk.first_from(max((after + 1) // SECOND_US - rules.duration_s + 1, 0))
        while start is not None and start * SECOND_US <= until:
            yield Window(start * SECOND_US, (start + rules.duration_s) * SECOND_US)
            start = walk.first_from(start + 1)


@dataclass(frozen=True, slots=True)
class FireSplit:
    """A partition of the instants from a clock's due one up to `next_fire_at`, exclusive."""

    missed: tuple[InstantRange, ...]
    blacked_out: tuple[InstantRange, ...]
    catch_up: tuple[int, ...]  # oldest first
    live: tuple[int, ...]  # inside grace, oldest first
    next_fire_at: int | None


def check_blackout(rules: BlackoutRules) -> CronWalk | None:
    """Refuse rules that cannot be honoured. Answer: the beginnings of windows that recur.

    Raises DefinitionError naming the field; codes `blackout_invalid`, `cron_invalid`, `never_fires` and
    `timezone_unknown`.
    """
    is_once, recurs = rules.from_at is not None or rules.until_at is not None, rules.cron is not None
    if is_once == recurs:
        raise _refusal("a blackout has either from and until, or cron and duration", None, "give one of the two")
    if rules.cron is None:
        if rules.from_at is None or rules.until_at is None or rules.duration_s is not None:
            raise _refusal("a blackout that comes once has from and until", None, "give both, and no duration")
        if rules.until_at <= rules.from_at:
            raise _refusal("until does not come after from", "until", "give a later one")
        return None
    if rules.duration_s is None or not MIN_DURATION_S <= rules.duration_s <= MAX_DURATION_S:
        raise _refusal("a window lasts 1 minute to 31 days", "duration", 'give its length, such as "4h"')
    zone(rules.timezone)
    expression = parse_cron(rules.cron, job_id=None)
    if depends_on_job(rules.cron):
        raise _refusal("an H has no meaning without a job", "cron", "name the minute")
    if expression.has_seconds or len(expression.minute.values) != 1:
        raise _refusal(
            "windows begin at most once an hour", "cron", "name one minute, as in '0 22 * * 5', and a longer duration"
        )
    return CronWalk(expression, timezone=rules.timezone)


def covering(blackouts: Sequence[Blackout], instant: int) -> str | None:
    """The name of the first blackout that covers an instant."""
    return next((blackout.name for blackout in blackouts if blackout.covers(instant)), None)


def open_windows(blackouts: Sequence[Blackout], *, after: int, until: int) -> tuple[Window, ...]:
    """The windows of all blackouts in `(after, until]`, joined where they meet; the first WINDOWS_PER_PLAN + 1."""
    streams = [blackout.windows(after=after, until=until) for blackout in blackouts]
    return tuple(islice(_joined(merge(*streams)), WINDOWS_PER_PLAN + 1)) if streams else ()


def plan_around(
    timetable: Instants,
    windows: Sequence[Window],
    *,
    due_at: int,
    now: int,
    grace_us: int,
    policy: MisfirePolicy,
    moved: MovedStart | None = None,
) -> FireSplit:
    """Split the instants from `due_at` (a planned one, `<= now`) to `now`, given the windows in between.

    1. Instants in a window are blacked out, one range for each window.
    2. The others are split by `plan_misfires` as if the windows' instants were not there: the newest that are caught
       up lie outside.
    3. A missed range is cut at the windows, so that ranges never overlap.
    """
    if not windows:
        return _as_split(
            plan_misfires(timetable, due_at=due_at, now=now, grace_us=grace_us, policy=policy, moved=moved)
        )
    if len(windows) > WINDOWS_PER_PLAN:
        # The first windows now; what is newest comes in a later plan, so nothing is caught up in this one.
        last = windows[WINDOWS_PER_PLAN].start - 1
        grace_us, now = max(grace_us - (now - last), -1), last
        windows, policy = windows[:WINDOWS_PER_PLAN], MisfirePolicy()
    outside = _Outside(timetable, windows)
    first = outside.next_after(due_at - 1)
    horizon = now
    misfires = MisfirePlan(missed=None, catch_up=(), live=(), next_fire_at=None)
    if first is not None and first <= now:
        misfires = plan_misfires(outside, due_at=first, now=now, grace_us=grace_us, policy=policy, moved=moved)
        if misfires.next_fire_at is not None and misfires.next_fire_at <= now:
            horizon = misfires.next_fire_at - 1
    inside = [
        _range(timetable, max(window.start, due_at) - 1, min(window.end - 1, horizon))
        for window in windows
        if window.start <= horizon
    ]
    return FireSplit(
        missed=(*_cut(timetable, misfires.missed, windows), *_alone(misfires)),
        blacked_out=tuple(found for found in inside if found is not None),
        catch_up=misfires.catch_up,
        live=misfires.live,
        next_fire_at=timetable.next_after(horizon),
    )


class _Outside:
    """A timetable without what lies in windows; ascending and apart from each other."""

    def __init__(self, timetable: Instants, windows: Sequence[Window]) -> None:
        self._timetable = timetable
        self._windows = windows

    def next_after(self, instant: int) -> int | None:
        found = self._timetable.next_after(instant)
        for window in self._windows:
            if found is None or found < window.start:
                break
            if found < window.end:
                found = self._timetable.next_after(window.end - 1)
        return found

    def count(self, after: int, until: int) -> int:
        return sum(self._timetable.count(low, high) for low, high in self._between(after, until))

    def newest(self, number: int, after: int, until: int) -> tuple[int, ...]:
        found: tuple[int, ...] = ()
        for low, high in reversed(list(self._between(after, until))):
            if len(found) >= number:
                break
            found = self._timetable.newest(number - len(found), low, high) + found
        return found

    def latest(self, after: int, until: int) -> int | None:
        newest = self.newest(1, after, until)
        return newest[0] if newest else None

    def _between(self, after: int, until: int) -> Iterator[tuple[int, int]]:
        """The pieces `(low, high]` of `(after, until]` outside the windows."""
        for window in self._windows:
            if window.start > until:
                break
            if after < window.start - 1:
                yield after, window.start - 1
            after = max(after, window.end - 1)
        if after < until:
            yield after, until


def _cut(timetable: Instants, missed: InstantRange | None, windows: Sequence[Window]) -> Iterator[InstantRange]:
    if missed is None:
        return
    for low, high in _Outside(timetable, windows)._between(missed.first - 1, missed.last):
        found = _range(timetable, low, high)
        if found is not None:
            yield found


def _range(timetable: Instants, after: int, until: int) -> InstantRange | None:
    """The instants in `(after, until]`, if there are any."""
    first, last = timetable.next_after(after), timetable.latest(after, until)
    return None if first is None or last is None else InstantRange(first, last, timetable.count(after, until))


def _as_split(plan: MisfirePlan) -> FireSplit:
    missed = () if plan.missed is None else (plan.missed,)
    return FireSplit((*missed, *_alone(plan)), (), plan.catch_up, plan.live, plan.next_fire_at)


def _alone(plan: MisfirePlan) -> Iterator[InstantRange]:
    return (InstantRange(instant, instant, 1) for instant in plan.missed_alone)


def _joined(windows: Iterator[Window]) -> Iterator[Window]:
    current: Window | None = None
    for window in windows:
        if current is None:
            current = window
        elif window.start <= current.end:
            current = Window(current.start, max(current.end, window.end))
        else:
            yield current
            current = window
    if current is not None:
        yield current


_DECODER = msgspec.json.Decoder(BlackoutRules)
_ENCODER = msgspec.json.Encoder()


def encode_blackout(rules: BlackoutRules) -> str:
    """The JSON text that the store keeps."""
    return _ENCODER.encode(rules).decode()


def decode_blackout(text: str | bytes) -> BlackoutRules:
    """The rules behind stored JSON. Raises DefinitionError(`blackout_unreadable`) on anything else."""
    return read_stored(
        _DECODER.decode,
        text,
        code="blackout_unreadable",
        noun="blackout",
        remedy="save it again with PUT /v1/blackouts/{name}",
    )


def _refusal(detail: str, field: str | None, remedy: str) -> DefinitionError:
    return DefinitionError("blackout_invalid", detail, field=field, remedy=remedy)
