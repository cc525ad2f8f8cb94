"""The nouns: a job's definition and its parts. Frozen values, JSON in the database, pydantic at the API's edge.

The definition is stored as JSON text so that an operator can read it in the database. Lengths end in `_s`
(seconds), moments in `_at` (integer µs UTC).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from onbeat.domain.stored import read_stored

SECOND_US: Final = 1_000_000
MAX_SCHEDULES: Final = 16
MAX_RUNNING: Final = 100
DEFAULT_PRIORITY: Final = 5
MAX_PRIORITY: Final = 9


DstGap = Literal["shift", "skip"]
DstOverlap = Literal["first", "second", "both"]


class CalendarUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which calendars stand between a schedule and its fires, and what becomes of an instant that they keep out."""

    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # a day in any of them will do
    roll: Literal["skip", "next_business_day", "previous_business_day"] = "skip"


class Bounds(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", forbid_unknown_fields=True
):
    """From when and until when a schedule of any kind plans instants, both inclusive, and behind which calendars.

    None: without end, and on every day.
    """

    start_at: int | None = None
    end_at: int | None = None
    calendars: CalendarUse | None = None
    max_fires: int | None = None
    last_at: int | None = None  # the last of `max_fires` instants, found when the schedule was saved

    @property
    def ends_at(self) -> int | None:
        """The earlier of `end_at` and `last_at`."""
        ends = [end for end in (self.end_at, self.last_at) if end is not None]
        return min(ends) if ends else None


class CronSchedule(Bounds, frozen=True, tag="cron"):
    """Fires at the wall-clock times of `expression` in `timezone`. See domain/cron.py for the grammar.

    `dst_gap` and `dst_overlap` say what a change of the clock does, None the default rule: domain/walk.py.
    """

    expression: str
    timezone: str = "UTC"
    dst_gap: DstGap | None = None
    dst_overlap: DstOverlap | None = None


class RruleSchedule(Bounds, frozen=True, tag="rrule"):
    """Fires at the wall-clock times of an RFC 5545 rule in `timezone`, from `dtstart` on. See domain/rrule.py."""

    rule: str
    dtstart: str  # local: 2026-05-01T09:00:00
    timezone: str = "UTC"


class EverySchedule(Bounds, frozen=True, tag="every"):
    """Fires at `anchor_at + k * every_s`, elapsed time on the UTC grid: never drifts, knows no DST."""

    every_s: int
    anchor_at: int


class AtSchedule(Bounds, frozen=True, tag="at"):
    """Fires once."""

    at: int


class AfterFinishSchedule(Bounds, frozen=True, tag="after_finish"):
    """Fires `every_s` after the last run ended, however it ended. The only schedule of its job."""

    every_s: int


Schedule = CronSchedule | RruleSchedule | EverySchedule | AtSchedule | AfterFinishSchedule


class WebhookTarget(msgspec.Struct, frozen=True, tag_field="kind", tag="webhook", forbid_unknown_fields=True):
    """Where a run is delivered. `body` is sent as written; without it, a JSON envelope carries `payload`."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: str | None = None
    payload: str | None = None  # JSON text, serialised once when the job was saved
    secret: str = "default"  # noqa: S105  the name of the signing secret, not its value


class QueueTarget(msgspec.Struct, frozen=True, tag_field="kind", tag="queue", forbid_unknown_fields=True):
    """A named queue that the user's own workers claim from."""

    queue: str
    payload: str | None = None


Target = WebhookTarget | QueueTarget


class MisfirePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do about instants that nobody dispatched within grace."""

    policy: Literal["skip", "run_latest", "catch_up"] = "skip"
    max: int = 3  # catch_up: how many of the newest missed instants run
    window_s: int = 86_400  # catch_up: instants older than this are always missed
    spacing_s: int = 1  # catch_up: pause between the starts of two of them


StatusRule = Literal["retry", "fail", "succeed"]


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a failed attempt is followed by another. The waits are those of domain/backoff.py."""

    max_attempts: int = 5
    initial_s: float = 1.0
    factor: float = 4.0
    cap_s: int = 3_600
    max_age_s: int = 86_400
    backoff: Literal["exponential", "fixed", "table"] = "exponential"
    table_s: tuple[float, ...] = ()  # table: the waits, one after the other; the last one repeats
    statuses: dict[str, StatusRule] = {}  # "404" or "4xx" → what that answer means
    expires_before_next: bool = False  # no attempt starts at or after the job's next planned instant


class AutoPausePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a job that keeps failing pauses by itself: whichever comes first. See domain/auto_pause.py."""

    failures: int | None = None  # so many failed runs one after the other
    failing_s: int | None = None  # so long after the first of them


class Definition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about a job that decides when it fires and what a fire does."""

    schedules: tuple[Schedule, ...]
    target: Target
    grace_s: int = 30
    misfire: MisfirePolicy = MisfirePolicy()
    overlap: Literal["queue", "skip", "allow", "replace"] = "queue"
    max_running: int = 1
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float = 30.0  # of an attempt, from name resolution to the last byte
    connect_timeout_s: float | None = None  # the part of it until the connection stands; None: the sender's budgets
    max_run_time_s: int = 86_400
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    completion: Literal["response", "callback"] = "response"  # callback: a 2xx only means accepted
    callback_heartbeat_s: int | None = None  # longest silence of a handler that accepted; None: until max_run_time
    auto_pause: AutoPausePolicy | None = None  # None: however often it fails, it goes on
    spread_s: int = 0  # the job's fires start this much later at most, all by the same length: domain/moved_start.py
    jitter_s: int = 0  # and each by less than this on top
    priority: int = DEFAULT_PRIORITY  # 0..9: of runs that are ready, those of higher ones start first


_DECODER = msgspec.json.Decoder(Definition)
_ENCODER = msgspec.json.Encoder()


def encode_definition(definition: Definition) -> str:
    """The JSON text that the store keeps."""
    return _ENCODER.encode(definition).decode()


def decode_definition(text: str | bytes) -> Definition:
    """The definition behind stored JSON. Raises DefinitionError(`definition_unreadable`) on anything else."""
    return read_stored(
        _DECODER.decode,
        text,
        code="definition_unreadable",
        noun="definition",
        remedy="save the job again with PATCH or PUT",
    )
