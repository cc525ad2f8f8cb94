"""Verdicts about attempts, as far as both engines come to them by the same rules. Pure: the engines read and write."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from onbeat.domain.auto_pause import Streak
from onbeat.domain.callback import callback_token, tokens_match
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.store.live_row import LiveRow
from onbeat.store.values import (
    AcceptRun,
    Completion,
    EndRun,
    Finish,
    Finished,
    FinishResult,
    LiveRun,
    RetryRun,
    Verdict,
)


class JobOfRun(msgspec.Struct, frozen=True, gc=False):
    """What a decision about a run needs to know of its job."""

    state: JobState | None  # None: there is no such job any more
    definition: str  # that the run goes by
    next_fire_at: int | None
    streak: Streak | None


def judge(live: LiveRow, decide: Callable[[LiveRun, str], Verdict], *, job: JobOfRun) -> Verdict:
    """Ask for the verdict. A decision that fails ends its own run, so that it cannot hold up the whole batch."""
    try:
        return decide(replace(live.run, next_fire_at=job.next_fire_at, streak=job.streak), job.definition)
    except Exception as error:
        return EndRun(RunState.FAILED, f"the outcome cannot be judged: {error}")


def judge_lost(live: LiveRow, decide: Callable[[LiveRun, str], Verdict], *, job: JobOfRun, now: int) -> Verdict:
    """Ask for the verdict about a run that nobody reported on, or that waits beyond its deadline."""
    verdict = judge(live, decide, job=job)
    if isinstance(verdict, RetryRun) and _is_past_deadline(live, now=now):
        # Its time is up: waiting for another attempt would bring it back here for ever.
        return EndRun(RunState.TIMED_OUT, "max_run_time passed")
    return verdict


def allowed(verdict: Verdict, live: LiveRow, *, job_state: JobState | None) -> Verdict:
    """What is in fact to be written: a run that was asked to stop, or whose job is deleted, does not run again
    whatever the verdict. It ends as cancelled.
    """
    if isinstance(verdict, RetryRun) and live.run.cancel_requested:
        return EndRun(RunState.CANCELLED, "cancelled while an attempt was running")
    if isinstance(verdict, RetryRun) and job_state is JobState.DELETED:
        return EndRun(RunState.CANCELLED, "the job was deleted while an attempt was running")
    return verdict


def counts_as_failed(verdict: Verdict, outcome: Outcome) -> bool:
    """Is the attempt to be kept among those that did not succeed?"""
    counts = isinstance(verdict, EndRun) or (isinstance(verdict, RetryRun) and verdict.counts)
    return counts and outcome.kind is not OutcomeKind.SUCCEEDED


def lost_outcome(live: LiveRow, *, now: int) -> Outcome:
    """What an attempt came to that nobody reported on."""
    run = live.run
    kind, error = OutcomeKind.LEASE_LOST, "the worker did not report in time"
    if _is_past_deadline(live, now=now):
        kind, error = OutcomeKind.TIMED_OUT, "max_run_time passed"
    elif run.accepted_at is not None and run.cancel_requested:
        kind, error = OutcomeKind.CANCELLED, "cancelled while its handler held it"
    elif run.accepted_at is not None:
        error = "the handler accepted the run and did not report in time"
    started_at = now if run.attempt_started_at is None else run.attempt_started_at
    return Outcome(kind=kind, started_at=started_at, duration_us=max(now - started_at, 0), error=error)


def completed_outcome(item: Completion, run: LiveRun, *, now: int) -> Outcome:
    """What an attempt came to, by its handler's word."""
    started_at = now if run.attempt_started_at is None else run.attempt_started_at
    return Outcome(
        kind=OutcomeKind.SUCCEEDED if item.error is None else OutcomeKind.HANDLER,
        started_at=started_at,
        duration_us=max(now - started_at, 0),
        error=item.error,
        response=item.result,
    )


def is_workers(live: LiveRow, token: bytes) -> bool:
    """Is this the token of the worker that holds the run? Once its handler has accepted it, no worker does."""
    return live.run.accepted_at is None and live.lease_token == token


def is_plain_success(live: LiveRow, item: Finish) -> bool:
    """Does the run end as succeeded without being asked about?"""
    return item.outcome.kind is OutcomeKind.SUCCEEDED and not live.run.cancel_requested


def is_handlers(live: LiveRow, token: bytes) -> bool:
    """Is this the token of the run's handler, whether its worker has said that it accepted or not?"""
    if live.run.accepted_at is not None:
        return tokens_match(live.lease_token, token)
    return live.lease_token is not None and tokens_match(callback_token(live.lease_token), token)


def answer(key: RunKey, written: Verdict) -> Finished:
    """The answer to who reported, or to who expired."""
    if isinstance(written, AcceptRun):
        return Finished(key, FinishResult.ACCEPTED, RunState.RUNNING)
    if isinstance(written, RetryRun):
        return Finished(key, FinishResult.WILL_RETRY, RunState.PENDING, written.ready_at)
    return Finished(key, FinishResult.ENDED, written.state, paused_job=written.pauses_job)


def refusal(
    key: RunKey,
    *,
    state: RunState | None,
    last_token: bytes | None,
    ready_at: int | None,
    tokens: tuple[bytes, bytes],
    has_failed_before: bool,
) -> Finished:
    """Why a token changes nothing: it has done so before, the run has ended, or the lease is another's.

    `state` None: there is no such run. `has_failed_before`: an attempt that did not succeed was finished by one of the
    tokens. They are two because a worker's report also comes too late, and is repeated, where its handler has
    reported under the token made from it.
    """
    if has_failed_before or any(tokens_match(last_token, token) for token in tokens):
        return Finished(key, FinishResult.REPEATED, state, ready_at if state is RunState.PENDING else None)
    if state not in (None, RunState.PENDING, RunState.RUNNING):
        return Finished(key, FinishResult.RUN_TERMINAL, state)
    return Finished(key, FinishResult.LEASE_LOST, state)


def _is_past_deadline(live: LiveRow, *, now: int) -> bool:
    return live.run.deadline_at is not None and live.run.deadline_at <= now
