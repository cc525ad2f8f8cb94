"""What a pause makes of a job, as both engines write it. Pure: the engines find the pause."""

from __future__ import annotations

from msgspec.structs import replace

from onbeat.domain.states import JobState
from onbeat.store.values import KEEP, JobChange, StoredJob


def pause_begins_at(next_fire_at: int | None, *, now: int) -> int:
    """`paused_at` of a job with this clock, paused at `now`.

    An instant that the clock shows and nobody has recorded belongs to the pause: nothing else would account for it.
    """
    return now if next_fire_at is None else min(now, next_fire_at - 1)


def held_by_pause(before: StoredJob, change: JobChange, *, pause: tuple[str, str | None], now: int) -> JobChange:
    """The change of a job that would be active by it, though a pause covers it: that pause, `(tag, note)`, holds it."""
    tag, note = pause
    clock = before.next_fire_at if change.next_fire_at is KEEP else change.next_fire_at
    return replace(
        change,
        state=JobState.PAUSED,
        reason=note,
        paused_at=pause_begins_at(clock, now=now),
        paused_until=None,
        paused_by=tag,
        next_fire_at=None,
    )
