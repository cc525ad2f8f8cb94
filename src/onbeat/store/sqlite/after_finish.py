"""Jobs whose clock is set by the end of their run. The rule: such a job, while active, has a clock or a live run.

Called wherever runs end (by `lanes.pass_lanes_on`), in the transaction in which they end, and wherever one is added.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from onbeat.domain.instants import next_whole_second
from onbeat.domain.states import JobState
from onbeat.store.rows import Row
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import AfterFinish

_QUERIES = load_queries("after_finish")
_JOBS = load_queries("jobs")


def write_after_finish(connection: apsw.Connection, job_id: int, rule: AfterFinish | None, *, slot: int) -> None:
    """Note that a job is one of these, or no longer."""
    if rule is None:
        connection.execute(_QUERIES["drop_after_finish"], (slot, job_id))
    else:
        connection.execute(_QUERIES["put_after_finish"], (slot, job_id, rule.every_us, rule.until))


def set_clocks_after(connection: apsw.Connection, job_ids: Iterable[int], *, slots: int, now: int) -> None:
    """Set the clock of those jobs that are such, active, and have neither a clock nor a live run any more."""
    if connection.execute(_QUERIES["any_after_finish"]).get is None:
        return
    for job_id in set(job_ids):
        slot = job_id % slots
        rows: list[Row] = connection.execute(_QUERIES["idle_after_finish"], (slot, job_id)).fetchall()
        for every_us, until in rows:
            # After a clock that was set back, an instant must not be planned that has a record.
            recorded_until = connection.execute(_JOBS["recorded_until"], (slot, job_id)).get
            next_fire_at = max(next_whole_second(now + every_us), next_whole_second(recorded_until + 1))
            if until is None or next_fire_at <= until:
                connection.execute(_JOBS["put_clock"], (slot, job_id, next_fire_at))
            else:
                connection.execute(_JOBS["set_job_state"], (JobState.COMPLETED, None, 0, now, None, None, job_id))


def withhold_clock(connection: apsw.Connection, job_id: int, *, slot: int, now: int) -> None:
    """Take away the clock of such a job while it has a live run."""
    connection.execute(_QUERIES["withhold_clock"], (slot, job_id, now))
