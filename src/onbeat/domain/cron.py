"""The cron grammar: text to a `CronExpression`, and every refusal with its reason.

Five fields (minute hour day-of-month month day-of-week), or six with leading seconds, or a macro. `docs/time.md`
has the whole grammar. This module knows no time zone and finds no instants; see walk.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from onbeat.domain.cron_fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    CronField,
    has_spread,
    parse_field,
)
from onbeat.domain.days import DayRule, day_rule
from onbeat.domain.errors import DefinitionError

LONGEST_EXPRESSION: Final = 256
"""Characters. The longest sensible expression lists 60 minutes and takes 170."""

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_KINDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=", re.IGNORECASE)
_FIELD_HELP = "write five fields: minute hour day-of-month month day-of-week, or six with seconds first"


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A cron expression, understood."""

    second: CronField
    minute: CronField
    hour: CronField
    day: CronField
    month: CronField
    weekday: CronField
    has_seconds: bool  # six fields were written
    macro: str | None  # the macro that was written, in lower case

    @property
    def is_fixed_time(self) -> bool:
        """True for a job that means times of the day; Debian's textual test decides. See walk.py for what follows."""
        return not (self.has_seconds or self.minute.starts_with_star or self.hour.starts_with_star)

    @property
    def days(self) -> DayRule:
        """Which days match."""
        return day_rule(self.day, self.month, self.weekday)

    @property
    def plain(self) -> str:
        """The same in plain cron: macro expanded, H resolved, numbers for names."""
        fields = (self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in ((self.second, *fields) if self.has_seconds else fields))


def parse_cron(text: str, *, job_id: int | None) -> CronExpression:
    """Understand `text`. `job_id` resolves H; None takes an example value, for a job without an id yet.

    Raises DefinitionError(`cron_invalid`), or (`never_fires`) where no day of any year matches.
    """
    macro, texts = _split(text)
    has_seconds = len(texts) == len(_KINDS)
    if not has_seconds:
        texts = ["0", *texts]
    second, minute, hour, day, month, weekday = (
        parse_field(kind, part, job_id=job_id if has_spread(part) else None)
        for kind, part in zip(_KINDS, texts, strict=True)
    )
    expression = CronExpression(second, minute, hour, day, month, weekday, has_seconds, macro)
    if not expression.days.can_match:
        raise DefinitionError(
            "never_fires",
            f"'{text.strip()}' matches no day of any year",
            field="cron",
            remedy="check day-of-month against the months; for the last day of a month write L",
        )
    return expression


def depends_on_job(text: str) -> bool:
    """True where the expression holds an H, so that two jobs with it fire at different times."""
    return any(has_spread(part) for part in text.upper().split())


def _split(text: str) -> tuple[str | None, list[str]]:
    """The macro, if any, and the five or six fields, in upper case."""
    if not isinstance(text, str):
        raise _refusal("the expression is not text", _FIELD_HELP)
    if len(text) > LONGEST_EXPRESSION:
        raise _refusal(
            f"the expression has {len(text)} characters; at most {LONGEST_EXPRESSION} are read",
            "use ranges and steps, or several schedules in one job",
        )
    if "\n" in text or "\r" in text:
        raise _refusal("the expression has more than one line", "give one schedule per line of your crontab")
    # Also keeps out letters that only become ASCII when put in upper case.
    strange = next((letter for letter in text if letter != "\t" and not " " <= letter <= "~"), None)
    if strange is not None:
        raise _refusal(f"the expression contains {strange!r}", "use plain ASCII digits, letters and blanks")
    if _ZONE_PREFIX.match(text.strip()):
        raise _refusal("the expression sets a time zone", "give the zone in the schedule's own 'timezone' field")
    words = text.split()
    if words and words[0].startswith("@"):
        return _expand(words)
    if len(words) not in (5, 6):
        raise _refusal(*_count_fault(len(words)))
    return None, [word.upper() for word in words]


def _expand(words: list[str]) -> tuple[str, list[str]]:
    macro = words[0].lower()
    if macro == "@every":
        raise _refusal("@every is not a cron expression", 'use an interval schedule: {"every": "5m"}')
    if macro == "@reboot":
        raise _refusal(
            "@reboot names no instant: a scheduler that restarts must not fire jobs by it",
            "trigger the job from the machine's own boot sequence",
        )
    if macro not in MACROS or len(words) > 1:
        raise _refusal(f"'{' '.join(words)[:40]}' is not a macro", "use one of " + ", ".join(MACROS))
    return macro, MACROS[macro].split()


def _count_fault(count: int) -> tuple[str, str]:
    found = f"found {count} field{'' if count == 1 else 's'}"
    if count == 7:
        return (
            f"{found}; that would need a reading with seconds first and a year last, which is not supported",
            "leave the year out, and set the job's start and end instead",
        )
    return f"{found}, expected 5 or 6", _FIELD_HELP


def _refusal(detail: str, remedy: str) -> DefinitionError:
    return DefinitionError("cron_invalid", detail, field="cron", remedy=remedy)
