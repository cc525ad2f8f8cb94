"""What a process tells the others of its writes, so that they look at once instead of at their next look.

A hint is never the truth: any may be lost, come late or come twice, and none says more than where to look. So whoever
hears one does what it would have done soon by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from onbeat.domain.ids import RunKey
from onbeat.store.values import StoredJob

SOON_US = 1_000_000
"""Clocks that are due later than this need no hint: every dispatcher looks several times before."""

MOST_STOPPED = 100
"""So many runs fit into one hint; of more, workers hear with their next heartbeat."""


class Hint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of one transaction."""

    ready_at: int | None = None  # runs became claimable, the first of them ready at or after this instant
    due: tuple[int, ...] = ()  # slots in which clocks are due now or soon
    stopped: tuple[RunKey, ...] = ()  # running runs that were asked to stop
    ready_in: tuple[int, ...] = ()  # slots in which they did, where the store looks slot by slot


def hint_of_jobs(
    jobs: Iterable[StoredJob | None],
    *,
    slots: int,
    now: int,
    ready_at: int | None = None,
    stopped: Sequence[RunKey] = (),
) -> Hint | None:
    """Of jobs as they were written, and of their runs. None: all have time."""
    due = {
        job.job_id % slots
        for job in jobs
        if job is not None and job.next_fire_at is not None and job.next_fire_at <= now + SOON_US
    }
    of_runs = hint_of_runs(ready_at=ready_at, stopped=stopped)
    return replace(of_runs or Hint(), due=tuple(sorted(due))) if due else of_runs


def hint_of_runs(*, ready_at: int | None = None, stopped: Sequence[RunKey] = ()) -> Hint | None:
    """Of runs that became claimable, or were asked to stop. None: neither."""
    if ready_at is None and not stopped:
        return None
    return Hint(ready_at=ready_at, stopped=tuple(stopped[:MOST_STOPPED]))
