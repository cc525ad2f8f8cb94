"""Writes what was decided about a fire: runs, marks, the clock, the job's state. Shared by fires and job changes."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from msgspec.structs import replace

from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.store.planned import Decide, MarksAgain, PlannedFire, Tally, leased_run
from onbeat.store.rows import Row, encode_rows, storable_text
from onbeat.store.sqlite.endings import end_as_it_stands, read_live
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import Mark, NewRun, StoredJob

_FIRES = load_queries("fires")
_JOBS = load_queries("jobs")


def record_together(
    connection: apsw.Connection, fires: list[PlannedFire], tally: Tally, *, slots: int, now: int
) -> bool:
    """Record many fires with few statements. False: some run, or an instant of a range, is recorded already, and the
    caller must roll back.
    """
    for fire in fires:
        if fire.plan.replaced or fire.plan.cancelled:
            make_room(connection, fire, tally, slots=slots, now=now)
    rows: list[Row] = []
    handed_out = tally.leased
    for fire in fires:
        job, slot = fire.due.job, fire.slot
        for run in fire.plan.runs:
            if run.displaces is not None:
                connection.execute(_FIRES["displace_run"], (slot, job.job_id, run.displaces))
            rows.append(_run_row(job, run, slot=slot, held=False))
            if run.lease is not None:
                handed_out.append(leased_run(job, run, run.lease, now=now))
            else:
                tally.pending += run.lane is not None
    tally.runs += len(rows)
    if rows:
        before = connection.total_changes()
        connection.execute(_FIRES["insert_runs"], (now, encode_rows(rows)))
        if connection.total_changes() - before != len(rows):
            return False
    marks: list[Row] = []
    for fire in fires:
        if not fire.plan.marks:
            continue
        if any(mark.reason is SkipReason.BLACKOUT for mark in fire.plan.marks):
            # One after the other: whether a range may grow depends on the marks before it.
            for mark in fire.plan.marks:
                is_written = _insert_mark(connection, mark, fire.due.job, slot=fire.slot, now=now)
                if not is_written and mark.count > 1:
                    return False
                tally.marks += is_written
        else:
            marks += [_mark_row(mark, fire.due.job, slot=fire.slot) for mark in fire.plan.marks]
    if marks:
        before = connection.total_changes()
        connection.execute(_FIRES["insert_marks"], (encode_rows(marks), now))
        written = connection.total_changes() - before
        if written < len(marks):
            return False
        tally.marks += written
    _move_clocks(connection, fires, now=now)
    return True


def record_alone(
    connection: apsw.Connection, fire: PlannedFire, tally: Tally, *, decide: Decide, slots: int, now: int
) -> None:
    """Record one fire, counting runs that somebody else has recorded.

    `decide` is asked again where its marks hold instants that have a record.
    """
    make_room(connection, fire, tally, slots=slots, now=now)
    job = fire.due.job
    for run in fire.plan.runs:
        if not insert_run(connection, job, run, slot=fire.slot, held=False, now=now):
            tally.conflicts += 1
            # Others of its plan, or the run that it displaced, may wait for the lane that it did not take.
            tally.freed.append(job.job_id)
            continue
        tally.runs += 1
        if run.lease is not None:
            tally.leased.append(leased_run(job, run, run.lease, now=now))
        elif run.lane is not None:
            tally.pending += 1
    tally.marks += insert_marks(
        connection,
        fire.plan.marks,
        job,
        slot=fire.slot,
        again=lambda recorded: decide(replace(fire.due, recorded=recorded)).marks,
        now=now,
    )
    _move_clocks(connection, [fire], now=now)


def make_room(connection: apsw.Connection, fire: PlannedFire, tally: Tally, *, slots: int, now: int) -> None:
    """End the runs that the new one replaces and ask those to stop that it cancels.

    A run to be cancelled that only waits for its next attempt ends at once, as `cancel` would end it.
    """
    job_id = fire.due.job.job_id
    for mark in fire.plan.replaced:
        live = read_live(connection, job_id, mark.scheduled_at, slots=slots)
        if live is None or live.run.state is not RunState.PENDING or live.run.attempt:
            continue
        reason = mark.reason or SkipReason.OVERLAP
        end_as_it_stands(connection, live, state=RunState.SKIPPED, now=now, reason=reason, blocked_by=mark.blocked_by)
        tally.freed.append(job_id)
    for scheduled_at in fire.plan.cancelled:
        live = read_live(connection, job_id, scheduled_at, slots=slots)
        if live is None:
            continue
        if live.run.state is RunState.RUNNING:
            connection.execute(_FIRES["stop_run"], live.key_columns)
            tally.cancelled.append(live.run.key)
        else:
            end_as_it_stands(connection, live, state=RunState.CANCELLED, now=now)
            tally.freed.append(job_id)


def insert_run(connection: apsw.Connection, job: StoredJob, run: NewRun, *, slot: int, held: bool, now: int) -> bool:
    """Write one run. False: its identity is recorded already, by a row or inside a collapsed range."""
    if run.displaces is not None:
        connection.execute(_FIRES["displace_run"], (slot, job.job_id, run.displaces))
    row = _run_row(job, run, slot=slot, held=held)
    connection.execute(_FIRES["insert_runs"], (now, encode_rows([row])))
    return connection.changes() == 1


def insert_marks(
    connection: apsw.Connection, marks: Sequence[Mark], job: StoredJob, *, slot: int, again: MarksAgain, now: int
) -> int:
    """Write marks of one job. Where a range holds instants that have a record, `again` says what to write instead.
    Answer: how many were written.
    """
    refused = [mark for mark in marks if not _insert_mark(connection, mark, job, slot=slot, now=now)]
    written = len(marks) - len(refused)
    # A single instant that was refused keeps its record, and that is all.
    recorded = tuple(
        [span for mark in refused if mark.count > 1 for span in _recorded(connection, mark, job, slot=slot)]
    )
    if recorded:
        written += sum(_insert_mark(connection, mark, job, slot=slot, now=now) for mark in again(recorded))
    return written


def _recorded(connection: apsw.Connection, mark: Mark, job: StoredJob, *, slot: int) -> list[tuple[int, int]]:
    asked = (slot, job.job_id, mark.scheduled_at, mark.until)
    return [(first, last) for first, last in connection.execute(_FIRES["recorded_spans"], asked)]


def _insert_mark(connection: apsw.Connection, mark: Mark, job: StoredJob, *, slot: int, now: int) -> bool:
    """Write instants that will never run, as history. False: one of them is recorded already."""
    if mark.reason is SkipReason.BLACKOUT:
        grown = (mark.until, mark.count, now, slot, job.job_id, job.version, mark.scheduled_at)
        connection.execute(_FIRES["grow_blackout"], grown)
        if connection.changes():
            return True
    connection.execute(_FIRES["insert_marks"], (encode_rows([_mark_row(mark, job, slot=slot)]), now))
    return connection.changes() == 1


def park(connection: apsw.Connection, job_id: int, *, slot: int, reason: str, now: int) -> None:
    """Set a job to `error`, without a clock, so that it stops no other."""
    connection.execute(_JOBS["set_job_state"], (JobState.ERROR, storable_text(reason), 0, now, None, None, job_id))
    connection.execute(_JOBS["drop_clock"], (slot, job_id))


def _move_clocks(connection: apsw.Connection, fires: list[PlannedFire], *, now: int) -> None:
    moved: list[Row] = []
    for fire in fires:
        plan, job_id = fire.plan, fire.due.job.job_id
        is_active = plan.state is None or plan.state is JobState.ACTIVE
        if plan.state is not None:
            reason = storable_text(plan.reason)
            connection.execute(_JOBS["set_job_state"], (plan.state, reason, 0, now, None, None, job_id))
        if plan.next_fire_at is None or not is_active:
            connection.execute(_JOBS["drop_clock"], (fire.slot, job_id))
        else:
            moved.append((plan.next_fire_at, fire.slot, job_id))
    if moved:
        connection.execute(_FIRES["move_clocks"], (encode_rows(moved),))


def _mark_row(mark: Mark, job: StoredJob, *, slot: int) -> Row:
    return (
        slot, job.job_id, mark.scheduled_at, mark.state, job.version, mark.reason, mark.count,
        mark.until if mark.count > 1 else None, mark.blocked_by,
    )  # fmt: skip


def _run_row(job: StoredJob, run: NewRun, *, slot: int, held: bool) -> Row:
    lease = run.lease
    return (
        slot, job.job_id, run.scheduled_at, run.trigger, job.version, run.lane, held, run.queue, run.payload,
        run.ready_at, run.late_after, run.max_run_us,
        *((None, None, None) if lease is None else (lease.token.hex(), lease.until, lease.worker)),
        run.moved_us, run.priority,
    )  # fmt: skip
