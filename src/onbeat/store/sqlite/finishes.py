"""The end of attempts: finish by the worker that holds the lease, expiry when none does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.live_row import LiveRow
from onbeat.store.rows import JOB_STATES, RUN_STATES, Row, encode_response, encode_rows
from onbeat.store.sqlite.endings import end_as_it_stands, read_live, settle_job, write_verdict
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.streaks import end_streaks, read_streak
from onbeat.store.sqlite.writer import BatchRefusedError
from onbeat.store.values import EndRun, Finish, Finished, FinishResult, LiveRun, Verdict
from onbeat.store.verdicts import (
    JobOfRun,
    answer,
    is_plain_success,
    is_workers,
    judge,
    judge_lost,
    lost_outcome,
    refusal,
)

_QUERIES = load_queries("leases")
_RUNS = load_queries("runs")

DecideFinish = Callable[[LiveRun, str, Finish], Verdict]
DecideExpiry = Callable[[LiveRun, str], Verdict]


def finish(
    connection: apsw.Connection,
    items: Sequence[Finish],
    *,
    now: int,
    decide: DecideFinish,
    slots: int,
    one_by_one: bool,
) -> list[Finished]:
    """Write what workers report. Plain successes never leave SQLite: no row is read, no definition decoded.

    Raises BatchRefusedError where some success is no plain one after all: roll back and ask again, one by one.
    """
    freed: list[int] = []
    if not one_by_one:
        freed = _end_successes(connection, [item for item in items if _is_success(item)], now=now, slots=slots)
    answers = [
        Finished(item.key, FinishResult.ENDED, RunState.SUCCEEDED)
        if not one_by_one and _is_success(item)
        else _finish_one(connection, item, freed=freed, now=now, decide=decide, slots=slots)
        for item in items
    ]
    if freed:
        pass_lanes_on(connection, freed, slots=slots, now=now)
    return answers


def expire(connection: apsw.Connection, *, now: int, limit: int, decide: DecideExpiry, slots: int) -> list[Finished]:
    """Take back runs whose lease or wall clock ran out, then retries that wait beyond their deadline."""
    lost = connection.execute(_QUERIES["lost_leases"], (now, limit)).fetchall()
    overdue = connection.execute(_QUERIES["overdue_retries"], (now, limit - len(lost))).fetchall()
    answers: list[Finished] = []
    freed: list[int] = []
    for live in [LiveRow(row, slots=slots) for row in lost + overdue]:
        job = _job_of_run(connection, live)
        verdict = judge_lost(live, decide, job=job, now=now)
        if live.run.state is RunState.RUNNING:
            outcome = lost_outcome(live, now=now)
            verdict = write_verdict(connection, live, verdict, outcome, job_state=job.state, token=None, now=now)
        elif isinstance(verdict, EndRun):
            end_as_it_stands(connection, live, state=verdict.state, now=now, error=verdict.error)
            verdict = settle_job(connection, live, verdict, now=now)
        else:
            continue
        answers.append(_answer(live, verdict, freed=freed))
    if freed:
        pass_lanes_on(connection, freed, slots=slots, now=now)
    return answers


def _end_successes(connection: apsw.Connection, items: list[Finish], *, now: int, slots: int) -> list[int]:
    """End runs that succeeded, all or none. Answer: their jobs."""
    if not items:
        return []
    before = connection.total_changes()
    rows = [_success_row(item, slots=slots) for item in items]
    try:
        connection.execute(_QUERIES["end_succeeded"], (now, encode_rows(rows)))
    except apsw.ConstraintError as error:  # one run is named twice
        raise BatchRefusedError from error
    if connection.total_changes() - before != len(items):
        raise BatchRefusedError
    job_ids = [item.key.job_id for item in items]
    connection.execute(_QUERIES["delete_live"], (encode_rows([(item.key[0] % slots, *item.key) for item in items]),))
    end_streaks(connection, job_ids, slots=slots)
    return job_ids


def _finish_one(
    connection: apsw.Connection, item: Finish, *, freed: list[int], now: int, decide: DecideFinish, slots: int
) -> Finished:
    live = read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or not is_workers(live, item.token):
        return refuse(connection, item.key, live, tokens=(item.token, callback_token(item.token)), slots=slots)
    return finish_held(connection, live, item, freed=freed, now=now, decide=decide, slots=slots)


def finish_held(
    connection: apsw.Connection,
    live: LiveRow,
    item: Finish,
    *,
    freed: list[int],
    now: int,
    decide: DecideFinish,
    slots: int,
) -> Finished:
    """Write the end of an attempt that is held under the item's token."""
    job = _job_of_run(connection, live)
    if is_plain_success(live, item):
        verdict: Verdict = EndRun(RunState.SUCCEEDED)
    else:
        verdict = judge(live, lambda run, definition: decide(run, definition, item), job=job)
    written = write_verdict(connection, live, verdict, item.outcome, job_state=job.state, token=item.token, now=now)
    return _answer(live, written, freed=freed)


def _is_success(item: Finish) -> bool:
    return item.outcome.kind is OutcomeKind.SUCCEEDED


def _success_row(item: Finish, *, slots: int) -> Row:
    (job_id, scheduled_at), outcome = item.key, item.outcome
    response = encode_response(outcome.response)
    return (
        job_id % slots, job_id, scheduled_at, outcome.started_at, outcome.duration_us, outcome.status,
        None if response is None else response.decode(), item.token.hex(),
    )  # fmt: skip


def refuse(
    connection: apsw.Connection, key: RunKey, live: LiveRow | None, *, tokens: tuple[bytes, bytes], slots: int
) -> Finished:
    """Say why a token changes nothing."""
    key_columns = (key.job_id % slots, key.job_id, key.scheduled_at)
    state, last_token, ready_at = None, None, None
    if live is not None:
        state, last_token, ready_at = live.run.state, live.last_token, live.run.ready_at
    else:
        for name, ended_token in connection.execute(_RUNS["ended_token"], key_columns):
            state, last_token = RUN_STATES[name], ended_token
    has_failed_before = connection.execute(_QUERIES["finished_by_token"], (*key_columns, *tokens)).get is not None
    return refusal(
        key,
        state=state,
        last_token=last_token,
        ready_at=ready_at,
        tokens=tokens,
        has_failed_before=has_failed_before,
    )


def _job_of_run(connection: apsw.Connection, live: LiveRow) -> JobOfRun:
    job_id = live.run.key.job_id
    state = connection.execute(_QUERIES["job_state"], (job_id,)).get
    return JobOfRun(
        state=None if state is None else JOB_STATES[state],
        definition=connection.execute(_QUERIES["definition_of_version"], (live.run.job_version, job_id)).get,
        next_fire_at=connection.execute(_QUERIES["clock_of_job"], live.key_columns[:2]).get,
        streak=read_streak(connection, job_id, slot=live.slot),
    )


def _answer(live: LiveRow, written: Verdict, *, freed: list[int]) -> Finished:
    if isinstance(written, EndRun):
        freed.append(live.run.key.job_id)
    return answer(live.run.key, written)
