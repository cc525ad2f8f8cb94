"""Writes what was decided about fires: runs, marks, clocks, states of jobs. One statement per step for all of them.

Shared by fires, backfills and job changes. The caller holds the clock or the row of every job that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from onbeat.domain.ids import RunKey
from onbeat.domain.recorded import Spans
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.planned import Decide, MarksAgain, PlannedFire, Tally, leased_run
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.job_states import NewState, drop_clocks, set_job_states
from onbeat.store.postgres.queries import load_queries
from onbeat.store.values import Mark, NewRun, StoredJob

_QUERIES = load_queries("fires")


class RunToWrite(msgspec.Struct, frozen=True, gc=False):
    """A run with the job that it is of."""

    slot: int
    job: StoredJob
    run: NewRun


class MarkToWrite(msgspec.Struct, frozen=True, gc=False):
    """A mark with the job that it is of."""

    slot: int
    job: StoredJob
    mark: Mark


async def record_fires(
    connection: Connection,
    fires: Sequence[PlannedFire],
    tally: Tally,
    *,
    decide: Decide,
    newest_live: Mapping[int, int],
    slots: int,
    now: int,
) -> None:
    """Record fires in the contract's order, counting runs that somebody else has recorded.

    `decide` is asked again for a job whose marks hold instants that have a record. `newest_live` is the newest instant
    of a live run of each job that has one.
    """
    await _make_room(connection, fires, tally, now=now)
    to_write = [RunToWrite(fire.slot, fire.due.job, run) for fire in fires for run in fire.plan.runs]
    if to_write:
        written = await insert_runs(connection, to_write, held=False, newest_live=newest_live, now=now)
        for entry in to_write:
            _count_run(entry, tally, is_written=(entry.job.job_id, entry.run.scheduled_at) in written, now=now)
    marks = [[MarkToWrite(fire.slot, fire.due.job, mark) for mark in fire.plan.marks] for fire in fires]
    recorded = await _record_marks(connection, [of_job for of_job in marks if of_job], now=now)
    tally.marks += recorded.written
    for fire in fires if recorded.refused else ():
        if spans := recorded.refused.get(fire.due.job.job_id):
            again = decide(replace(fire.due, recorded=spans))
            rest = [MarkToWrite(fire.slot, fire.due.job, mark) for mark in again.marks]
            tally.marks += (await _record_marks(connection, [rest], now=now)).written if rest else 0
    await _move_clocks(connection, fires, slots=slots, now=now)


async def insert_runs(
    connection: Connection,
    to_write: Sequence[RunToWrite],
    *,
    held: bool,
    newest_live: Mapping[int, int] | None = None,
    now: int,
) -> set[tuple[int, int]]:
    """Write runs, after those that they displace have left their lanes.

    `newest_live`, read under the lock on the jobs, saves looking at instants that are younger than every live run.
    Answer: `(job_id, scheduled_at)` of those that were written; the others' identities are recorded already, by a row
    or inside a collapsed range.
    """
    may_be_live = [
        (entry.slot, entry.job.job_id, entry.run.scheduled_at)
        for entry in to_write
        if newest_live is None or entry.run.scheduled_at <= newest_live.get(entry.job.job_id, -1)
    ]
    if may_be_live:
        await connection.execute(_QUERIES["hold_identities"], *columns(may_be_live, count=3))
    displaced = [(entry.slot, entry.job.job_id, entry.run.displaces) for entry in to_write]
    displaced = [key for key in displaced if key[2] is not None]
    if displaced:
        await connection.execute(_QUERIES["displace_runs"], *columns(displaced, count=3))
    rows = [
        (
            entry.slot, entry.job.job_id, run.scheduled_at, run.trigger, entry.job.version, run.lane, run.queue,
            run.payload, run.ready_at, run.late_after, run.max_run_us,
            *((None, None, None) if run.lease is None else (run.lease.token, run.lease.until, run.lease.worker)),
            run.moved_us, run.priority,
        )
        for entry in to_write
        for run in (entry.run,)
    ]  # fmt: skip
    instants = [entry.run.scheduled_at for entry in to_write]
    written = await connection.fetch(
        _QUERIES["insert_runs"], held, now, *columns(rows, count=16), min(instants), max(instants)
    )
    return {(row[0], row[1]) for row in written}


async def insert_marks(
    connection: Connection,
    marks: Sequence[Mark],
    job: StoredJob,
    *,
    slot: int,
    again: MarksAgain,
    now: int,
) -> None:
    """Write marks of one job. Where a range holds instants that have a record, `again` says what to write instead."""
    to_write = [[MarkToWrite(slot, job, mark) for mark in marks]] if marks else []
    if spans := (await _record_marks(connection, to_write, now=now)).refused.get(job.job_id):
        rest = [MarkToWrite(slot, job, mark) for mark in again(spans)]
        await _record_marks(connection, [rest] if rest else [], now=now)


def _count_run(entry: RunToWrite, tally: Tally, *, is_written: bool, now: int) -> None:
    run = entry.run
    if not is_written:
        tally.conflicts += 1
        # Others of its plan, or the run that it displaced, may wait for the lane that it did not take.
        tally.freed.append(entry.job.job_id)
        return
    tally.runs += 1
    if run.lease is not None:
        tally.leased.append(leased_run(entry.job, run, run.lease, now=now))
    elif run.lane is not None:
        tally.pending += 1
        tally.ready_ats.append(run.ready_at)


async def _make_room(connection: Connection, fires: Sequence[PlannedFire], tally: Tally, *, now: int) -> None:
    """End the runs that new ones replace and ask those to stop that they cancel.

    A run to be cancelled that only waits for its next attempt ends at once, as `cancel` would end it.
    """
    ended: list[tuple[object, ...]] = []
    cancelled: list[tuple[object, ...]] = []
    in_the_way = [fire for fire in fires if fire.plan.replaced or fire.plan.cancelled]
    for fire in sorted(in_the_way, key=lambda fire: (fire.slot, fire.due.job.job_id)):
        key = (fire.slot, fire.due.job.job_id)
        ended += [
            (*key, mark.scheduled_at, RunState.SKIPPED, mark.reason or SkipReason.OVERLAP, mark.blocked_by, True)
            for mark in fire.plan.replaced
        ]
        cancelled += [(*key, scheduled_at) for scheduled_at in fire.plan.cancelled]
    if cancelled:
        stopped = await connection.fetch(_QUERIES["stop_runs"], now, *columns(cancelled, count=3))
        tally.cancelled += [RunKey(row[0], row[1]) for row in stopped]
        ended += [(*key, RunState.CANCELLED, None, None, False) for key in cancelled]
    if ended:
        rows = await connection.fetch(_QUERIES["end_pending_runs"], *columns(ended, count=7), now)
        tally.freed += [row[0] for row in rows]


class _Marks(msgspec.Struct, gc=False):
    """What recording marks has come to: how many were written, and what is recorded of ranges that were not, by job."""

    written: int = 0
    refused: dict[int, Spans] = msgspec.field(default_factory=dict)


async def _record_marks(connection: Connection, marks: Sequence[Sequence[MarkToWrite]], *, now: int) -> _Marks:
    """Write the marks of several jobs: first the first ones of all, then the second ones, since whether the range of a
    blackout may grow depends on the marks before it.
    """
    recorded = _Marks()
    refused: list[MarkToWrite] = []
    while marks:
        darkening = [of_job[0] for of_job in marks if of_job[0].mark.reason is SkipReason.BLACKOUT]
        grown = await _grow_blackouts(connection, darkening, now=now) if darkening else frozenset()
        # Jobs without a blackout have nothing that could grow: all their marks go at once.
        dark_jobs = {of_job[0].job.job_id for of_job in marks if _has_blackout(of_job)}
        fresh = [
            entry
            for of_job in marks
            for entry in (of_job[:1] if of_job[0].job.job_id in dark_jobs else of_job)
            if entry.job.job_id not in grown
        ]
        if fresh:
            keys = await _insert_marks(connection, fresh, now=now)
            recorded.written += len(keys)
            if len(keys) < len(fresh):
                refused += [entry for entry in fresh if (entry.job.job_id, entry.mark.scheduled_at) not in keys]
        recorded.written += len(grown)
        marks = [of_job[1:] for of_job in marks if of_job[0].job.job_id in dark_jobs and len(of_job) > 1]
    # A single instant that was refused keeps its record, and that is all.
    for entry in refused:
        if entry.mark.count > 1:
            spans = await _recorded_spans(connection, entry)
            recorded.refused[entry.job.job_id] = recorded.refused.get(entry.job.job_id, ()) + spans
    return recorded


async def _recorded_spans(connection: Connection, entry: MarkToWrite) -> Spans:
    asked = (entry.slot, entry.job.job_id, entry.mark.scheduled_at, entry.mark.until)
    return tuple([(row[0], row[1]) for row in await connection.fetch(_QUERIES["recorded_spans"], *asked)])


def _has_blackout(marks: Sequence[MarkToWrite]) -> bool:
    return any(entry.mark.reason is SkipReason.BLACKOUT for entry in marks)


async def _insert_marks(connection: Connection, marks: Sequence[MarkToWrite], *, now: int) -> set[tuple[int, int]]:
    """Answer: `(job_id, scheduled_at)` of those that were written; of the others, some instant has a record."""
    rows = [
        (
            entry.slot, entry.job.job_id, entry.mark.scheduled_at, entry.mark.state, entry.job.version,
            entry.mark.reason, entry.mark.count, entry.mark.until, entry.mark.blocked_by,
        )
        for entry in marks
    ]  # fmt: skip
    enclosing = (min(entry.mark.scheduled_at for entry in marks), max(entry.mark.until for entry in marks))
    written = await connection.fetch(_QUERIES["insert_marks"], now, *columns(rows, count=9), *enclosing)
    return {(row[0], row[1]) for row in written}


async def _grow_blackouts(connection: Connection, marks: Sequence[MarkToWrite], *, now: int) -> frozenset[int]:
    """Add marks to the blackouts that they follow. Answer: the jobs of those that were added."""
    rows = [
        (
            entry.slot, entry.job.job_id, entry.mark.scheduled_at, entry.job.version, entry.mark.count,
            entry.mark.until,
        )
        for entry in marks
    ]  # fmt: skip
    grown = await connection.fetch(_QUERIES["grow_blackouts"], *columns(rows, count=6), now)
    return frozenset(row[0] for row in grown)


async def _move_clocks(connection: Connection, fires: Sequence[PlannedFire], *, slots: int, now: int) -> None:
    moved: list[tuple[int, int, int]] = []
    stopped: list[int] = []
    states: list[NewState] = []
    for fire in fires:
        plan, job_id = fire.plan, fire.due.job.job_id
        if plan.state is not None:
            states.append(NewState(job_id, plan.state, plan.reason))
        if plan.next_fire_at is None or plan.state not in (None, JobState.ACTIVE):
            stopped.append(job_id)
        else:
            moved.append((fire.slot, job_id, plan.next_fire_at))
    if states:
        await set_job_states(connection, states, slots=slots, now=now)
    if stopped:
        await drop_clocks(connection, stopped, slots=slots)
    if moved:
        await connection.execute(_QUERIES["move_clocks"], *columns(moved, count=3))
