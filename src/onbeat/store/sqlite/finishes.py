"""The end of attempts: finish by the worker that holds the lease, expiry when none does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw
from msgspec.structs import replace

from onbeat.domain.callback import callback_token, tokens_match
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.sqlite.endings import LiveRow, end_as_it_stands, read_live, settle_job, write_verdict
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.sqlite.rows import RUN_STATES, Row, encode_response
from onbeat.store.sqlite.streaks import end_streaks, read_streak
from onbeat.store.sqlite.writer import BatchRefusedError
from onbeat.store.values import AcceptRun, EndRun, Finish, Finished, FinishResult, LiveRun, RetryRun, Verdict

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
        verdict = _judge(connection, live, decide)
        if isinstance(verdict, RetryRun) and _is_past_deadline(live, now=now):
            # Its time is up: waiting for another attempt would bring it back here for ever.
            verdict = EndRun(RunState.TIMED_OUT, "max_run_time passed")
        if live.run.state is RunState.RUNNING:
            written = write_verdict(connection, live, verdict, _lost_outcome(live, now=now), token=None, now=now)
            answers.append(_answer(live, written, freed=freed))
        elif isinstance(verdict, EndRun):
            end_as_it_stands(connection, live, state=verdict.state, now=now, error=verdict.error)
            answers.append(_answer(live, settle_job(connection, live, verdict, now=now), freed=freed))
    if freed:
        pass_lanes_on(connection, freed, slots=slots, now=now)
    return answers


def _end_successes(connection: apsw.Connection, items: list[Finish], *, now: int, slots: int) -> list[int]:
    """End runs that succeeded, all or none. Answer: their jobs."""
    before = connection.total_changes()
    try:
        connection.executemany(_QUERIES["end_succeeded"], [_success_row(item, now=now, slots=slots) for item in items])
    except apsw.ConstraintError as error:  # one run is named twice
        raise BatchRefusedError from error
    if connection.total_changes() - before != len(items):
        raise BatchRefusedError
    job_ids = [item.key.job_id for item in items]
    connection.executemany(_QUERIES["delete_live"], [(item.key[0] % slots, *item.key) for item in items])
    end_streaks(connection, job_ids, slots=slots)
    return job_ids


def _finish_one(
    connection: apsw.Connection, item: Finish, *, freed: list[int], now: int, decide: DecideFinish, slots: int
) -> Finished:
    live = read_live(connection, item.key.job_id, item.key.scheduled_at, slots=slots)
    if live is None or live.lease_token != item.token:
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
    if _is_success(item) and not live.run.cancel_requested:
        freed += _end_successes(connection, [item], now=now, slots=slots)
        return Finished(item.key, FinishResult.ENDED, RunState.SUCCEEDED)
    verdict = _judge(connection, live, lambda run, definition: decide(run, definition, item))
    written = write_verdict(connection, live, verdict, item.outcome, token=item.token, now=now)
    return _answer(live, written, freed=freed)


def _is_success(item: Finish) -> bool:
    return item.outcome.kind is OutcomeKind.SUCCEEDED


def _success_row(item: Finish, *, now: int, slots: int) -> Row:
    (job_id, scheduled_at), outcome = item.key, item.outcome
    response = None if outcome.response is None else encode_response(outcome.response)
    return (
        outcome.started_at, now, outcome.duration_us, outcome.status, response, job_id % slots, job_id, scheduled_at,
        item.token,
    )  # fmt: skip


def refuse(
    connection: apsw.Connection, key: RunKey, live: LiveRow | None, *, tokens: tuple[bytes, bytes], slots: int
) -> Finished:
    """Say why a token changes nothing: it has done so before, the run has ended, or the lease is another's.

    `tokens` are two because a worker's report also comes too late, and is repeated, where its handler has reported
    under the token made from it.
    """
    key_columns = (key.job_id % slots, key.job_id, key.scheduled_at)
    state, last_token, ready_at = None, None, None
    if live is not None:
        state, last_token = live.run.state, live.last_token
        ready_at = live.run.ready_at if state is RunState.PENDING else None
    else:
        for name, ended_token in connection.execute(_RUNS["ended_token"], key_columns):
            state, last_token = RUN_STATES[name], ended_token
    if (
        any(tokens_match(last_token, token) for token in tokens)
        or connection.execute(_QUERIES["finished_by_token"], (*key_columns, *tokens)).get
    ):
        return Finished(key, FinishResult.REPEATED, state, ready_at)
    if live is None and state is not None:
        return Finished(key, FinishResult.RUN_TERMINAL, state)
    return Finished(key, FinishResult.LEASE_LOST, state)


def _judge(connection: apsw.Connection, live: LiveRow, decide: Callable[[LiveRun, str], Verdict]) -> Verdict:
    """Ask for the verdict. A decision that fails ends its own run, so that it cannot hold up the whole batch."""
    definition = connection.execute(_QUERIES["definition_of_version"], (live.run.job_version, live.run.key.job_id)).get
    next_fire_at = connection.execute(_QUERIES["clock_of_job"], live.key_columns[:2]).get
    streak = read_streak(connection, live.run.key.job_id, slot=live.slot)
    try:
        return decide(replace(live.run, next_fire_at=next_fire_at, streak=streak), definition)
    except Exception as error:
        return EndRun(RunState.FAILED, f"the outcome cannot be judged: {error}")


def _lost_outcome(live: LiveRow, *, now: int) -> Outcome:
    run = live.run
    started_at = now if run.attempt_started_at is None else run.attempt_started_at
    kind, error = OutcomeKind.LEASE_LOST, "the worker did not report in time"
    if _is_past_deadline(live, now=now):
        kind, error = OutcomeKind.TIMED_OUT, "max_run_time passed"
    elif run.accepted_at is not None and run.cancel_requested:
        kind, error = OutcomeKind.CANCELLED, "cancelled while its handler held it"
    elif run.accepted_at is not None:
        error = "the handler accepted the run and did not report in time"
    return Outcome(kind=kind, started_at=started_at, duration_us=max(now - started_at, 0), error=error)


def _is_past_deadline(live: LiveRow, *, now: int) -> bool:
    return live.run.deadline_at is not None and live.run.deadline_at <= now


def _answer(live: LiveRow, written: Verdict, *, freed: list[int]) -> Finished:
    if isinstance(written, AcceptRun):
        return Finished(live.run.key, FinishResult.ACCEPTED, RunState.RUNNING)
    if isinstance(written, RetryRun):
        return Finished(live.run.key, FinishResult.WILL_RETRY, RunState.PENDING, written.ready_at)
    freed.append(live.run.key.job_id)
    return Finished(live.run.key, FinishResult.ENDED, written.state, paused_job=written.pauses_job)
