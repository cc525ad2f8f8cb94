"""How live runs end or go back to pending: the writes that finish, expire, cancel and fires share.

None of them passes a lane on: callers do that once for all jobs of a transaction, with `lanes.pass_lanes_on`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Outcome, OutcomeKind
from onbeat.domain.states import RunState, SkipReason
from onbeat.store.live_row import LiveRow
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.streaks import lock_streaks
from onbeat.store.rows import JOB_STATES, Row, encode_response, storable_text
from onbeat.store.values import AcceptRun, EndRun, RetryRun, Verdict
from onbeat.store.verdicts import JobOfRun, allowed, counts_as_failed

_QUERIES = load_queries("leases")


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How a run ends, and what is kept of its last attempt."""

    live: LiveRow
    state: RunState
    attempt_started_at: int | None
    duration_us: int | None
    status: int | None
    outcome: str | None
    last_token: bytes | None
    error: str | None
    response: bytes | None = None
    reason: SkipReason | None = None
    blocked_by: int | None = None


class Judged(msgspec.Struct, frozen=True, gc=False):
    """An attempt that ended with `outcome`, and the verdict about it.

    `token` is the lease under which the attempt was finished; None where nobody finished it.
    """

    live: LiveRow
    verdict: Verdict
    outcome: Outcome
    token: bytes | None


async def lock_live(connection: Connection, keys: Iterable[RunKey], *, slots: int) -> dict[RunKey, LiveRow]:
    """Those of the runs that are live, by identity; nobody else changes them until the transaction ends."""
    rows = await connection.fetch(_QUERIES["lock_live"], *key_columns(keys, slots=slots))
    return {live.run.key: live for live in (LiveRow(tuple(row), slots=slots) for row in rows)}


async def read_live(connection: Connection, job_id: int, scheduled_at: int, *, slots: int) -> LiveRow | None:
    """The live run of that identity, locked. None: there is none."""
    key = RunKey(job_id, scheduled_at)
    return (await lock_live(connection, [key], slots=slots)).get(key)


async def jobs_of_runs(connection: Connection, runs: Iterable[LiveRow]) -> dict[tuple[int, int], JobOfRun]:
    """By job and version. Asked in a later statement than the one that locked the runs: see the package's docstring."""
    asked = {(live.slot, live.run.key.job_id, live.run.job_version) for live in runs}
    rows = await connection.fetch(_QUERIES["jobs_of_runs"], *columns(asked, count=3))
    streaks = await lock_streaks(connection, [(slot, job_id) for slot, job_id, _version in asked])
    return {(row[0], row[1]): JobOfRun(JOB_STATES[row[2]], row[3], row[4], streaks.get(row[0])) for row in rows}


def as_it_stands(
    live: LiveRow,
    *,
    state: RunState,
    error: str | None = None,
    reason: SkipReason | None = None,
    blocked_by: int | None = None,
) -> Ending:
    """The end of a run that no attempt of this transaction decides about: what its last attempt came to stays."""
    return Ending(
        live, state, live.run.attempt_started_at, live.duration_us, live.status, live.outcome, live.last_token,
        storable_text(error) or live.error, None, reason, blocked_by,
    )  # fmt: skip


async def end_as_it_stands(
    connection: Connection,
    live: LiveRow,
    *,
    state: RunState,
    now: int,
    error: str | None = None,
    reason: SkipReason | None = None,
    blocked_by: int | None = None,
) -> None:
    """End one run as `as_it_stands` says."""
    ending = as_it_stands(live, state=state, error=error, reason=reason, blocked_by=blocked_by)
    await end_runs(connection, [ending], now=now)


async def end_runs(connection: Connection, endings: Iterable[Ending], *, now: int) -> None:
    """Move runs to history."""
    rows: list[Row] = [
        (
            *end.live.key_columns, end.state.value, end.attempt_started_at, end.duration_us, end.status, end.outcome,
            end.last_token, end.error, end.response, end.reason, end.blocked_by,
        )
        for end in endings
    ]  # fmt: skip
    if rows:
        await connection.execute(_QUERIES["end_runs"], *columns(rows, count=13), now)


async def write_verdicts(
    connection: Connection, judged: Sequence[Judged], jobs: Mapping[tuple[int, int], JobOfRun], *, now: int
) -> list[Verdict]:
    """Write what was decided about attempts. Answer: what was in fact written, in order (see `verdicts.allowed`).

    A verdict that pauses the job only ends the run here: callers pause the job.
    """
    attempts: list[Row] = []
    accepted: list[Row] = []
    pending: list[Row] = []
    endings: list[Ending] = []
    written: list[Verdict] = []
    for item in judged:
        live, outcome = item.live, item.outcome
        job = jobs.get((live.run.key.job_id, live.run.job_version))
        verdict = allowed(item.verdict, live, job_state=None if job is None else job.state)
        written.append(verdict)
        if counts_as_failed(verdict, outcome):
            attempts.append(_attempt_row(item))
        if isinstance(verdict, AcceptRun):
            assert item.token is not None
            accepted.append(_accepted_row(live, verdict, outcome, token=item.token))
        elif isinstance(verdict, RetryRun):
            pending.append(_pending_row(item, verdict))
        else:
            endings.append(_ending(item, verdict))
    if attempts:
        await connection.execute(_QUERIES["insert_attempts"], *columns(attempts, count=12))
    if accepted:
        await connection.execute(_QUERIES["accept_runs"], now, *columns(accepted, count=8))
    if pending:
        await connection.execute(_QUERIES["make_pending"], *columns(pending, count=11))
    await end_runs(connection, endings, now=now)
    return written


async def accept(
    connection: Connection, live: LiveRow, *, token: bytes, until: int | None, outcome: Outcome, now: int
) -> None:
    """Into the hands of the handler, under the token that it has got with the request."""
    row = _accepted_row(live, AcceptRun(until), outcome, token=token)
    await connection.execute(_QUERIES["accept_runs"], now, *columns([row], count=8))


def key_columns(keys: Iterable[RunKey], *, slots: int) -> list[list[int]]:
    """Slots, job_ids and instants, in the order of the primary keys."""
    return columns(((key.job_id % slots, *key) for key in keys), count=3)


def _attempt_row(item: Judged) -> Row:
    live, outcome = item.live, item.outcome
    return (
        *live.key_columns, live.run.attempt, outcome.kind.value, outcome.started_at, outcome.duration_us,
        live.run.worker, outcome.status, storable_text(outcome.error), item.token, encode_response(outcome.response),
    )  # fmt: skip


def _accepted_row(live: LiveRow, verdict: AcceptRun, outcome: Outcome, *, token: bytes) -> Row:
    return (*live.key_columns, callback_token(token), token, verdict.until, outcome.status, outcome.duration_us)


def _pending_row(item: Judged, verdict: RetryRun) -> Row:
    outcome = item.outcome
    return (
        *item.live.key_columns, verdict.ready_at, int(not verdict.counts), int(not verdict.spends), item.token,
        outcome.kind.value, outcome.status, storable_text(outcome.error), outcome.duration_us,
    )  # fmt: skip


def _ending(item: Judged, verdict: EndRun) -> Ending:
    outcome = item.outcome
    return Ending(
        item.live, verdict.state, outcome.started_at, outcome.duration_us, outcome.status, outcome.kind.value,
        item.token,
        None if verdict.state is RunState.SUCCEEDED else storable_text(verdict.error or outcome.error),
        encode_response(outcome.response) if outcome.kind is OutcomeKind.SUCCEEDED else None,
    )  # fmt: skip
