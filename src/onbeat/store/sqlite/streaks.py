"""For how long jobs have been failing. Only jobs with a policy that asks for it have a row here, while they fail."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from onbeat.domain.auto_pause import Streak
from onbeat.store.rows import encode_rows
from onbeat.store.sqlite.queries import load_queries

_QUERIES = load_queries("streaks")


def read_streak(connection: apsw.Connection, job_id: int, *, slot: int) -> Streak | None:
    """None: the job's last run did not fail, or nobody asked to count."""
    for failures, failing_since in connection.execute(_QUERIES["get_streak"], (slot, job_id)):
        return Streak(failures, failing_since)
    return None


def keep_streak(connection: apsw.Connection, job_id: int, streak: Streak, *, slot: int) -> None:
    """Write it over what is there; a deleted job gets none."""
    connection.execute(_QUERIES["put_streak"], (slot, job_id, streak.failures, streak.failing_since))


def end_streak(connection: apsw.Connection, job_id: int, *, slot: int) -> None:
    """Forget it."""
    connection.execute(_QUERIES["drop_streaks"], (encode_rows([(slot, job_id)]),))


def end_streaks(connection: apsw.Connection, job_ids: Sequence[int], *, slots: int) -> None:
    """Forget those of many jobs, of which hardly any has one."""
    if connection.execute(_QUERIES["any_streak"]).get is not None:
        rows = [(job_id % slots, job_id) for job_id in job_ids]
        connection.execute(_QUERIES["drop_streaks"], (encode_rows(rows),))
