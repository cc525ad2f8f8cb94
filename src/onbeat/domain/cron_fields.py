"""One field of a cron expression: its grammar, and what it matches. No calendar, no time zone.

We read the fields ourselves where `cronsim` would do, for three things it does not: naming the part that is wrong,
ranges that wrap around (`FRI-MON`, `22-2`), and `H`. A test holds both readings equal wherever cronsim has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NoReturn

from onbeat.domain.errors import DefinitionError

LAST: Final = -1
"""In `nth_weekdays`: the last of the month."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What a field may hold. `wraps` says whether a backward range means something or is a slip of the pen."""

    name: str
    low: int
    high: int  # the largest number; 7 for a weekday, where it means Sunday like 0
    names: tuple[str, ...] = ()
    wraps: bool = False
    spread_high: int | None = None  # the largest number H may resolve to, where that is less than `high`

    @property
    def bounds(self) -> str:
        """`0-59`, for messages."""
        return f"{self.low}-{self.high}"


SECOND: Final = FieldKind("second", 0, 59)
MINUTE: Final = FieldKind("minute", 0, 59)
HOUR: Final = FieldKind("hour", 0, 23, wraps=True)
# H stays within 28 so that it comes every month.
DAY: Final = FieldKind("day-of-month", 1, 31, wraps=True, spread_high=28)
_MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAY_NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTH: Final = FieldKind("month", 1, 12, _MONTH_NAMES, wraps=True)
WEEKDAY: Final = FieldKind("day-of-week", 0, 7, _WEEKDAY_NAMES, wraps=True, spread_high=6)


@dataclass(frozen=True, slots=True)
class CronField:
    """What one field matches."""

    text: str  # the same in plain cron: numbers for names, H resolved, no `?`, wrapped ranges cut in two
    values: tuple[int, ...]  # ascending; Sunday is 0
    starts_with_star: bool  # Debian's test for "unrestricted"; `*/2` counts
    last_day: bool = False  # L
    last_weekday: bool = False  # LW: the last Monday-to-Friday of the month
    nth_weekdays: tuple[tuple[int, int], ...] = ()  # (weekday, n) of `5#2`; n is LAST for `5L`


_SPREAD = re.compile(r"H(?:\((\d{1,2})-(\d{1,2})\))?(?:/(\d{1,4}))?", re.ASCII)
_STEPPED = re.compile(r"([^/]*)/(.*)", re.ASCII)
_NTH = re.compile(r"([^#]+)#(.*)", re.ASCII)


@lru_cache(maxsize=4096)
def parse_field(kind: FieldKind, text: str, *, job_id: int | None) -> CronField:
    """Read one field, in upper case. `job_id` resolves H; None stands for a job without an id yet.

    Raises DefinitionError(`cron_invalid`) that names the field and the part.
    """
    reader = _Reader(kind, text, job_id)
    for part in text.split(","):
        reader.read(part)
    return CronField(
        text=",".join(dict.fromkeys(reader.plain)),
        values=tuple(sorted(reader.values)),
        starts_with_star=text.startswith(("*", "?")),
        last_day=reader.last_day,
        last_weekday=reader.last_weekday,
        nth_weekdays=tuple(sorted(reader.nth_weekdays)),
    )


def has_spread(text: str) -> bool:
    """True where a field, in upper case, holds an H that the job's id must resolve."""
    return any(part.startswith("H") for part in text.split(","))


class _Reader:
    """Collects what the comma-separated parts of one field match."""

    def __init__(self, kind: FieldKind, text: str, job_id: int | None) -> None:
        self.kind = kind
        self.field_text = text
        self.job_id = job_id
        self.plain: list[str] = []
        self.values: set[int] = set()
        self.last_day = False
        self.last_weekday = False
        self.nth_weekdays: set[tuple[int, int]] = set()

    def read(self, part: str) -> None:
        if not part:
            self.refuse(self.field_text, "has an empty part", "remove the stray comma")
        if part == "?":
            self.read_question_mark()
        elif part.startswith("H"):
            self.read_spread(part)
        elif self.kind is DAY and part in ("L", "LW"):
            self.last_day |= part == "L"
            self.last_weekday |= part == "LW"
            self.plain.append(part)
        elif self.kind is WEEKDAY and len(part) > 1 and part.endswith("L"):
            self.add_nth(self.number(part[:-1], part), LAST)
        elif self.kind is WEEKDAY and (match := _NTH.fullmatch(part)):
            if match[2] not in ("1", "2", "3", "4", "5"):
                self.refuse(part, "must have 1 to 5 after '#'", "write 5#2 for the second Friday of the month")
            self.add_nth(self.number(match[1], part), int(match[2]))
        else:
            self.read_range(part)

    def read_question_mark(self) -> None:
        if self.kind not in (DAY, WEEKDAY):
            self.refuse("?", "has no meaning in this field", "write *")
        if self.field_text != "?":
            self.refuse(self.field_text, "mixes '?' with other parts", "write ? alone, or *")
        self.add_run(self.kind.low, self.kind.high, 1, star=True)

    def read_spread(self, part: str) -> None:
        """H, H/15, H(0-7), H(0-29)/10: numbers that depend on the job's id, so that jobs do not all start at once."""
        match = _SPREAD.fullmatch(part)
        if match is None:
            self.refuse(part, "cannot be read", "write H, H/15, H(0-7) or H(0-29)/10")
        low_text, high_text, step_text = match.groups()
        low, high = self.kind.low, self.kind.spread_high or self.kind.high
        if low_text is not None:
            low, high = self.number(low_text, part), self.number(high_text, part)
            if low > high:
                self.refuse(part, "has a range that runs backwards", "give the smaller number first")
        step = self.step(step_text, part) if step_text is not None else 0
        room = min(step, high - low + 1) if step else high - low + 1
        start = low + self.draw() % room
        if step and start + step <= high:
            self.add_run(start, high, step)
        else:
            self.add_single(start)

    def draw(self) -> int:
        """A number that is the same for a job and field for ever, and even over jobs."""
        seed = f"{0 if self.job_id is None else self.job_id}:{self.kind.name}"
        return int.from_bytes(blake2b(seed.encode(), digest_size=8).digest())

    def read_range(self, part: str) -> None:
        body, step = part, None
        if match := _STEPPED.fullmatch(part):
            body, step = match[1], self.step(match[2], part)
        if body == "*":
            self.add_run(self.kind.low, self.kind.high, step or 1, star=True)
            return
        first_text, dash, last_text = body.partition("-")
        first = self.number(first_text, part)
        if not dash:
            if step is None:
                self.add_single(first)
            else:
                self.add_run(first, self.kind.high, step)
            return
        last = self.number(last_text, part)
        # SAT-SUN and 5-0 read like 5-7; 7-2 like 0-2.
        if self.kind is WEEKDAY and last == 0 and first > 0:
            last = 7
        if first <= last:
            self.add_run(first, last, step or 1)
            return
        if not self.kind.wraps:
            self.refuse(part, "runs backwards", "give the smaller number first, or two ranges with a comma")
        self.add_wrapped(first, last, step or 1)

    def add_wrapped(self, first: int, last: int, step: int) -> None:
        top = 6 if self.kind is WEEKDAY else self.kind.high
        first = 0 if self.kind is WEEKDAY and first == 7 else first
        size = top - self.kind.low + 1
        run = range(first, last + (size if last < first else 0) + 1, step)
        before = [value for value in run if value <= top]
        after = [value - size for value in run if value > top]
        for piece in (before, after):
            if piece:
                self.add_run(piece[0], piece[-1], step)

    def add_run(self, first: int, last: int, step: int, *, star: bool = False) -> None:
        self.values.update(self.canonical(value) for value in range(first, last + 1, step))
        if first == last:
            self.plain.append(str(first))
            return
        body = "*" if star else f"{first}-{last}"
        self.plain.append(body if step == 1 else f"{body}/{step}")

    def add_single(self, value: int) -> None:
        self.values.add(self.canonical(value))
        self.plain.append(str(value))

    def add_nth(self, weekday: int, nth: int) -> None:
        self.nth_weekdays.add((self.canonical(weekday), nth))
        self.plain.append(f"{weekday}L" if nth == LAST else f"{weekday}#{nth}")

    def canonical(self, value: int) -> int:
        return 0 if self.kind is WEEKDAY and value == 7 else value

    def number(self, text: str, part: str) -> int:
        if text in self.kind.names:
            return self.kind.names.index(text) + self.kind.low
        if not text.isdigit():
            self.refuse(part, self.fault(text), f"use numbers {self.kind.bounds}" + self.name_hint())
        if len(text) > 4 or not self.kind.low <= int(text) <= self.kind.high:
            self.refuse(part, f"is outside {self.kind.bounds}", f"use numbers {self.kind.bounds}" + self.name_hint())
        return int(text)

    def step(self, text: str, part: str) -> int:
        if not text.isdigit() or len(text) > 4:
            self.refuse(part, "has a step that is no number", "write the step as a number, such as */5")
        if int(text) == 0:
            self.refuse(part, "has step 0", "use a step of 1 or more")
        return int(text)

    def fault(self, text: str) -> str:
        if self.kind is DAY and "W" in text:
            return "asks for the nearest weekday, which is not supported (LW, the last weekday of the month, is)"
        if "L" in text and text not in self.kind.names:
            return "uses L in a way that is not supported (L and LW in day-of-month, 5L in day-of-week are)"
        return "is not understood" if text else "has a number missing"

    def name_hint(self) -> str:
        return f" or names {self.kind.names[0]}-{self.kind.names[-1]}" if self.kind.names else ""

    def refuse(self, part: str, problem: str, remedy: str) -> NoReturn:
        shown = part if len(part) <= 40 else part[:40] + "…"
        raise DefinitionError(
            "cron_invalid", f"{self.kind.name} field: '{shown}' {problem}", field="cron", remedy=remedy
        )
