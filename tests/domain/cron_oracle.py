"""A second opinion on cron: slow, naive, written apart from the code that it judges.

It looks at every UTC minute, asks the zone for the local time, and lets cronsim say whether the fields match. The
rule itself (fixed-time or wildcard, gap, overlap) is spelt out again here, from `docs/time.md`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim
from hypothesis import strategies as st

from onbeat.domain.offsets import next_change
from onbeat.domain.zones import all_zone_names, zone

MINUTE_S = 60
DAY_S = 86_400


class Fields:
    """Whether a local time matches, by cronsim's reading of the fields."""

    def __init__(self, expression: str) -> None:
        self.reading = CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
        parts = expression.split()
        self.is_fixed = len(parts) == 5 and not parts[0].startswith("*") and not parts[1].startswith("*")

    def match(self, local: datetime) -> bool:
        reading = self.reading
        return (
            local.second in reading.seconds
            and local.minute in reading.minutes
            and local.hour in reading.hours
            and local.month in reading.months
            and reading.match_day(local.date())
        )


def slow_instants(
    expression: str, timezone: str, first: int, last: int, *, gap: str | None = None, overlap: str | None = None
) -> list[int]:
    """Every instant in `first..last` (seconds UTC), for expressions of five fields. `gap` None: the default."""
    fields = Fields(expression)
    gap = gap or ("shift" if fields.is_fixed else "skip")
    overlap = overlap or ("first" if fields.is_fixed else "both")
    tzinfo = zone(timezone)
    step = timedelta(seconds=MINUTE_S)
    found: list[int] = []
    shown: set[datetime] = set()  # local times that the clock has already shown
    last_shown: dict[datetime, int] = {}  # when the clock shows a local time for the last time
    if overlap == "second":
        for second in range(first // MINUTE_S * MINUTE_S, last + 2 * DAY_S, MINUTE_S):
            last_shown[datetime.fromtimestamp(second, tzinfo).replace(tzinfo=None)] = second
    expected: datetime | None = None
    # Two days earlier, so that the first pass of an overlap is known before its second one comes.
    for second in range(first // MINUTE_S * MINUTE_S - 2 * DAY_S, last + 1, MINUTE_S):
        local = datetime.fromtimestamp(second, tzinfo).replace(tzinfo=None)
        is_match = fields.match(local)
        if overlap == "first":
            is_match = is_match and local not in shown
        if overlap == "second":
            is_match = is_match and last_shown.get(local, second) == second
        hole = expected if expected is not None else local
        while hole < local:
            is_match = is_match or (gap == "shift" and fields.match(hole))
            hole += step
        shown.add(local)
        expected = local + step
        if is_match and second >= first:
            found.append(second)
    return found


def _numbers(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(str)


def _ranges(low: int, high: int) -> st.SearchStrategy[str]:
    pairs = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    # cronsim takes 5-5/9 for 5/9, which runs on to the end of the field; Vixie cron and we stop at 5.
    wide = pairs.filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    stepped = st.tuples(wide, st.integers(1, 9)).map(lambda parts: f"{parts[0]}/{parts[1]}")
    return pairs.map(lambda pair: f"{pair[0]}-{pair[1]}") | stepped


def _field(low: int, high: int, *special: str) -> st.SearchStrategy[str]:
    stars = st.just("*") | st.integers(1, high + 5).map(lambda step: f"*/{step}")
    part = _numbers(low, high) | _ranges(low, high)
    if special:
        part |= st.sampled_from(special)
    return stars | part | st.lists(part, min_size=2, max_size=4).map(",".join)


MINUTES = _field(0, 59)
# Most changes of a clock happen in the small hours.
HOURS = _field(0, 23) | _field(0, 4) | st.sampled_from(["0", "1", "2", "3", "0-3", "23,0"])
DAYS = st.just("*") | _field(1, 31, "L", "LW")
MONTHS = st.just("*") | _field(1, 12)
WEEKDAYS = st.just("*") | _field(0, 7, "5#2", "1#5", "7L", "0L")

ANY_DAY = st.tuples(MINUTES, HOURS, st.just("*"), st.just("*"), st.just("*") | _field(0, 7)).map(" ".join)
"""Expressions that fire often, for short ranges."""

EXPRESSIONS = st.tuples(MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)
"""Expressions of any kind, some of which never fire."""

ZONES = st.sampled_from(sorted(all_zone_names()))


@st.composite
def near_changes(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and a moment (seconds UTC): within a day and a half of a change of its clock where it has one."""
    timezone = draw(ZONES)
    # Before 1973 some offsets had seconds, which a walk by minutes cannot see.
    second = draw(st.integers(100_000_000, 4_200_000_000))
    change = next_change(timezone, second, within_s=400 * DAY_S)
    if change is None:
        return timezone, second
    return timezone, change.start + draw(st.integers(-36 * 3600, 36 * 3600))
