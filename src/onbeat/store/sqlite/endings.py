"""How a live run ends or goes back to pending: the writes that finish, expire, cancel and fires share.

None of them passes a lane on: callers do that once for all jobs of a transaction, with `lanes.pass_lanes_on`.
"""

from __future__ import annotations

import apsw
from msgspec.structs import replace

from onbeat.domain.callback import callback_token
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.holding import pause_begins_at
from onbeat.store.live_row import LiveRow
from onbeat.store.rows import Row, encode_response, encode_rows, storable_text
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.streaks import end_streak, keep_streak
from onbeat.store.values import AcceptRun, EndRun, RetryRun, Verdict
from onbeat.store.verdicts import allowed, counts_as_failed

_LEASES = load_queries("leases")
_JOBS = load_queries("jobs")


def read_live(connection: apsw.Connection, job_id: int, scheduled_at: int, *, slots: int) -> LiveRow | None:
    """The live run of that identity. None: there is none."""
    for row in connection.execute(_LEASES["get_live"], (job_id % slots, job_id, scheduled_at)):
        return LiveRow(row, slots=slots)
    return None


def end_as_it_stands(
    connection: apsw.Connection,
    live: LiveRow,
    *,
    state: RunState,
    now: int,
    error: str | None = None,
    reason: SkipReason | None = None,
    blocked_by: int | None = None,
) -> None:
    """End a run that no attempt of this transaction decides about: what its last attempt came to stays."""
    _move_to_history(
        connection,
        live,
        (
            state, live.run.attempt_started_at, now, live.duration_us, live.status, live.outcome, live.last_token,
            storable_text(error) or live.error, None, reason, blocked_by,
        ),
    )  # fmt: skip


def write_verdict(
    connection: apsw.Connection,
    live: LiveRow,
    verdict: Verdict,
    outcome: Outcome,
    *,
    job_state: JobState | None,
    token: bytes | None,
    now: int,
) -> Verdict:
    """Write what was decided about an attempt that ended with `outcome`. Answer: what was in fact written
    (see `verdicts.allowed`).

    `token` is the lease under which the attempt was finished; None where nobody finished it.
    """
    verdict = allowed(verdict, live, job_state=job_state)
    if isinstance(verdict, AcceptRun):
        assert token is not None
        accept(connection, live, token=token, until=verdict.until, outcome=outcome, now=now)
        return verdict
    if counts_as_failed(verdict, outcome):
        connection.execute(
            _LEASES["insert_attempt"],
            (
                *live.key_columns, live.run.attempt, outcome.kind, outcome.started_at, outcome.duration_us,
                live.run.worker, outcome.status, storable_text(outcome.error), token, encode_response(outcome.response),
            ),
        )  # fmt: skip
    if isinstance(verdict, RetryRun):
        make_pending(connection, live, outcome, verdict, token=token)
        return verdict
    _move_to_history(
        connection,
        live,
        (
            verdict.state, outcome.started_at, now, outcome.duration_us, outcome.status, outcome.kind, token,
            None if verdict.state is RunState.SUCCEEDED else storable_text(verdict.error or outcome.error),
            encode_response(outcome.response) if outcome.kind is OutcomeKind.SUCCEEDED else None, None, None,
        ),
    )  # fmt: skip
    return settle_job(connection, live, verdict, now=now)


def settle_job(connection: apsw.Connection, live: LiveRow, verdict: EndRun, *, now: int) -> EndRun:
    """What the end of a run means for its job: its streak of failed runs, and a pause.

    Answer: the verdict, without the pause of a job that was not to be paused any more.
    """
    job_id = live.run.key.job_id
    if verdict.state is RunState.SUCCEEDED:
        end_streak(connection, job_id, slot=live.slot)
    elif verdict.streak is not None:
        keep_streak(connection, job_id, verdict.streak, slot=live.slot)
    if verdict.pauses_job is None or _pause_job(connection, live, reason=verdict.pauses_job, now=now):
        return verdict
    return replace(verdict, pauses_job=None)


def accept(
    connection: apsw.Connection, live: LiveRow, *, token: bytes, until: int | None, outcome: Outcome, now: int
) -> None:
    """Into the hands of the handler, under the token that it has got with the request."""
    connection.execute(
        _LEASES["accept_run"],
        (callback_token(token), token, until, now, outcome.status, outcome.duration_us, *live.key_columns),
    )


def make_pending(
    connection: apsw.Connection, live: LiveRow, outcome: Outcome, verdict: RetryRun, *, token: bytes | None
) -> None:
    """Back to pending under the same key and lane."""
    connection.execute(
        _LEASES["make_pending"],
        (
            verdict.ready_at, int(not verdict.counts), int(not verdict.spends), token, outcome.kind, outcome.status,
            storable_text(outcome.error), outcome.duration_us,
            *live.key_columns,
        ),
    )  # fmt: skip


def _move_to_history(connection: apsw.Connection, live: LiveRow, values: Row) -> None:
    connection.execute(_LEASES["end_run"], (*values, *live.key_columns))
    connection.execute(_LEASES["delete_live"], (encode_rows([live.key_columns]),))


def _pause_job(connection: apsw.Connection, live: LiveRow, *, reason: str, now: int) -> bool:
    """False: it is paused already, or deleted."""
    job_id = live.run.key.job_id
    if connection.execute(_LEASES["job_state"], (job_id,)).get in (JobState.PAUSED, JobState.DELETED):
        return False
    next_fire_at = connection.execute(_JOBS["clock_of"], (live.slot, job_id)).get
    paused_at = pause_begins_at(next_fire_at, now=now)
    connection.execute(
        _JOBS["set_job_state"], (JobState.PAUSED, storable_text(reason), 1, now, paused_at, None, job_id)
    )
    connection.execute(_JOBS["drop_clock"], (live.slot, job_id))
    connection.execute(_JOBS["hold_runs"], (1, live.slot, job_id))
    return True
