"""Leases while they are held: claim, heartbeat, permit, give back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from asyncpg import Record

from onbeat.domain.ids import RunKey
from onbeat.domain.priority import AGEING_US, STANDINGS
from onbeat.domain.states import JobState, RunState
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.endings import as_it_stands, end_runs, jobs_of_runs, key_columns, lock_live
from onbeat.store.postgres.lanes import pass_lanes_on
from onbeat.store.postgres.queries import load_queries
from onbeat.store.rows import TRIGGERS, Row, storable_text
from onbeat.store.values import Lease, LeasedRun, LeaseStatus

_QUERIES = load_queries("leases")

Held = Sequence[tuple[RunKey, bytes]]

FEW = 64
"""So many runs are looked for first: a claim mostly finds few, and a lease for each that it would take is sent."""

FROM_THE_BEGINNING = (0,) * len(STANDINGS)
"""Floors of all lines, where none are known."""


async def first_ready(connection: Connection, floors: Sequence[int], *, queue: str | None) -> list[int | None]:
    """When the first run of each line is ready, from the line's floor on. The lines are those of STANDINGS."""
    rows = await connection.fetch(_QUERIES["first_ready"], STANDINGS, floors, queue or "")
    found = {row[0]: row[1] for row in rows}
    return [found.get(standing) for standing in STANDINGS]


async def claim(
    connection: Connection, leases: Sequence[Lease], floors: Sequence[int], *, now: int, queue: str | None
) -> list[LeasedRun]:
    """Lease the runs that are ready, the first of them first.

    Each priority has its own line by `ready_at`, looked at from its floor on. Where a line had fewer runs left than it
    seemed, because another claim was taking them at the same time, the other lines are asked for more.
    """
    claimed: list[LeasedRun] = []
    at_once = FEW
    lines = dict(zip(STANDINGS, floors, strict=True))
    while len(claimed) < len(leases):
        left = leases[len(claimed) : len(claimed) + at_once]
        at_once = len(leases)
        rows = await _lease_runs(connection, left, lines, now=now, queue=queue)
        missing = {row[0]: row[1] for row in rows}
        wanted = sum(missing.values())
        taken = [tuple(row)[2:] for row in rows if row[2] is not None]
        claimed += [_leased_run(row, now=now) for row in sorted(taken)]
        if wanted < len(left):
            break  # the rest of all lines was in sight
        for row in rows:
            missing[row[0]] -= row[2] is not None
        lines = {standing: floor for standing, floor in lines.items() if not missing.get(standing)}
    return claimed


async def extend(connection: Connection, held: Held, *, now: int, until: int, slots: int) -> list[LeaseStatus]:
    """Heartbeat."""
    rows = await connection.fetch(_QUERIES["extend_leases"], until, *_held_columns(held, slots=slots), now)
    found = {(row[0], row[1], row[2]): LeaseStatus.CANCEL if row[3] else LeaseStatus.LIVE for row in rows}
    return [found.get((*key, token), LeaseStatus.LEASE_LOST) for key, token in held]


async def permit(connection: Connection, held: Held, *, now: int, slots: int) -> list[LeaseStatus]:
    """May these attempts still begin?"""
    rows = await connection.fetch(_QUERIES["grant_again"], now, *_held_columns(held, slots=slots))
    found = {(row[0], row[1], row[2]): _permission(is_cancelled=row[3], is_held_back=row[4]) for row in rows}
    return [found.get((*key, token), LeaseStatus.LEASE_LOST) for key, token in held]


async def release(connection: Connection, held: Held, *, now: int, slots: int) -> int:
    """Give leases back. A run that was asked to stop, or whose job is deleted, ends as cancelled: nobody starts it.

    One that a handler accepted is not the worker's to give back, whichever token it knows.
    """
    tokens = set(held)
    locked = await lock_live(connection, {key for key, _token in held}, slots=slots)
    lives = [live for key, live in locked.items() if (key, live.lease_token) in tokens and live.run.accepted_at is None]
    if not lives:
        return 0
    jobs = await jobs_of_runs(connection, lives)
    stopped = [
        live
        for live in lives
        if live.run.cancel_requested or jobs[live.run.key.job_id, live.run.job_version].state is JobState.DELETED
    ]
    ended = {live.run.key for live in stopped}
    given_back = [live.run.key for live in lives if live.run.key not in ended]
    if given_back:
        await connection.execute(_QUERIES["release_leases"], now, *key_columns(given_back, slots=slots))
    if stopped:
        await end_runs(connection, [as_it_stands(live, state=RunState.CANCELLED) for live in stopped], now=now)
        await pass_lanes_on(connection, {key.job_id for key in ended}, slots=slots, now=now)
    return len(lives)


async def _lease_runs(
    connection: Connection, leases: Sequence[Lease], lines: Mapping[int, int], *, now: int, queue: str | None
) -> list[Record]:
    return await connection.fetch(
        _QUERIES["lease_runs"],
        list(lines),
        list(lines.values()),
        queue or "",
        now,
        len(leases),
        AGEING_US,
        [lease.token for lease in leases],
        [storable_text(lease.worker) for lease in leases],
        [lease.until for lease in leases],
    )


def _leased_run(row: Row, *, now: int) -> LeasedRun:
    (
        _number, job_id, scheduled_at, token, attempt, trigger, job_version, namespace, name, key, definition,
        payload, queue, lease_until, deadline_at, late_after,
    ) = row  # fmt: skip
    return LeasedRun(
        RunKey(job_id, scheduled_at), token, attempt, TRIGGERS[trigger], job_version, namespace, name, key, definition,
        payload, queue, lease_until, now, deadline_at, late_after,
    )  # fmt: skip


def _permission(*, is_cancelled: bool, is_held_back: bool) -> LeaseStatus:
    if is_cancelled:
        return LeaseStatus.CANCEL
    return LeaseStatus.HELD_BACK if is_held_back else LeaseStatus.LIVE


def _held_columns(held: Iterable[tuple[RunKey, bytes]], *, slots: int) -> list[list[int]]:
    return columns([(key.job_id % slots, *key, token) for key, token in held], count=4)
