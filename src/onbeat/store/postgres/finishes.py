"""The end of attempts: finish by the worker that holds the lease, expiry when none does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from onbeat.domain.auto_pause import Streak
from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import JobState, RunState
from onbeat.store.hints import Hint
from onbeat.store.holding import pause_begins_at
from onbeat.store.live_row import LiveRow
from onbeat.store.postgres.arrays import columns
from onbeat.store.postgres.database import Connection, Database, nothing_to_tell
from onbeat.store.postgres.endings import (
    Judged,
    as_it_stands,
    end_runs,
    jobs_of_runs,
    lock_live,
    write_verdicts,
)
from onbeat.store.postgres.job_states import NewState, drop_clocks, set_job_states
from onbeat.store.postgres.lanes import pass_lanes_on
from onbeat.store.postgres.locks import lock_job
from onbeat.store.postgres.queries import load_queries
from onbeat.store.postgres.streaks import end_streaks, keep_streak
from onbeat.store.rows import RUN_STATES, encode_response
from onbeat.store.values import EndRun, Finish, Finished, FinishResult, LiveRun, StoredJob, Verdict
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
_JOBS = load_queries("jobs")

T = TypeVar("T")
DecideFinish = Callable[[LiveRun, str, Finish], Verdict]
DecideExpiry = Callable[[LiveRun, str], Verdict]
LockedJobs = Mapping[int, StoredJob | None]
"""Jobs that verdicts write to, locked before any run."""


class JobsNeedLocksError(Exception):
    """A verdict needs jobs that were not locked before their runs. Raised by the work inside a transaction."""

    def __init__(self, job_ids: frozenset[int]) -> None:
        super().__init__(f"{len(job_ids)} jobs are to be locked first")
        self.job_ids = job_ids


async def write_locking(
    database: Database,
    work: Callable[[Connection, LockedJobs], Awaitable[T]],
    *,
    slots: int,
    hint: Callable[[T], Hint | None] = nothing_to_tell,
    slot: int | None = None,
) -> T:
    """Run `work` in one transaction, and anew with jobs locked where its verdicts turn out to pause them, or to begin a
    streak of failures. `slot`: as `Database.write` takes it.

    Such verdicts are rare, and jobs are locked before live runs: see the package's docstring.
    """
    job_ids: frozenset[int] = frozenset()
    while True:
        try:
            return await database.write(partial(_with_locked, job_ids, work, slots=slots), hint=hint, slot=slot)
        except JobsNeedLocksError as found:
            job_ids |= found.job_ids


async def finish(
    connection: Connection,
    items: Sequence[Finish],
    *,
    now: int,
    decide: DecideFinish,
    slots: int,
    locked: LockedJobs,
) -> list[Finished]:
    """Write what workers report. Plain successes take one statement together; no definition is decoded for them."""
    answers: dict[int, Finished] = {}
    freed: set[int] = set()
    for numbers in _rounds(items):
        successes = [items[number] for number in numbers if _is_success(items[number])]
        ended = await _end_successes(connection, successes, now=now, slots=slots) if successes else frozenset()
        freed.update(key.job_id for key in ended)
        others = [items[number] for number in numbers if items[number].key not in ended]
        other_answers = (
            await _finish_others(connection, others, freed=freed, now=now, decide=decide, slots=slots, locked=locked)
            if others
            else {}
        )
        for number in numbers:
            key = items[number].key
            answers[number] = other_answers.get(key) or Finished(key, FinishResult.ENDED, RunState.SUCCEEDED)
    if freed:
        await pass_lanes_on(connection, freed, slots=slots, now=now)
    return [answers[number] for number in range(len(items))]


async def finish_held(
    connection: Connection,
    held: Sequence[tuple[LiveRow, Finish]],
    *,
    freed: set[int],
    now: int,
    decide: DecideFinish,
    slots: int,
    locked: LockedJobs,
) -> dict[RunKey, Finished]:
    """Write the ends of attempts that are held under the items' tokens. The runs are locked, each is named once."""
    jobs = await jobs_of_runs(connection, [live for live, _item in held])
    streaks = _Streaks(jobs)
    judged: list[Judged] = []
    for live, item in held:
        if is_plain_success(live, item):
            verdict: Verdict = EndRun(RunState.SUCCEEDED)
        else:
            verdict = judge(
                live,
                lambda run, definition, item=item: decide(run, definition, item),  # type: ignore[misc]
                job=streaks.job_of(live),
            )
        streaks.note(live, verdict)
        judged.append(Judged(live, verdict, item.outcome, item.token))
    _demand_locks(judged, jobs, locked)
    written = await write_verdicts(connection, judged, jobs, now=now)
    written = await _settle_jobs(connection, judged, written, locked, slots=slots, now=now)
    return {
        one.live.run.key: _answer(one.live, verdict, freed=freed) for one, verdict in zip(judged, written, strict=True)
    }


async def refuse(
    connection: Connection, asked: Sequence[tuple[RunKey, tuple[bytes, bytes]]], *, slots: int
) -> dict[RunKey, Finished]:
    """Say why tokens change nothing, each by what became of its run."""
    tokens = dict(asked)
    rows = await connection.fetch(
        _QUERIES["what_became_of"], *columns([(key.job_id % slots, *key, *pair) for key, pair in asked], count=5)
    )
    return {
        key: refusal(
            key,
            state=None if state is None else RUN_STATES[state],
            last_token=last_token,
            ready_at=ready_at,
            tokens=tokens[key],
            has_failed_before=has_failed_before,
        )
        for key, state, last_token, ready_at, has_failed_before in ((RunKey(row[0], row[1]), *row[2:]) for row in rows)
    }


async def expire(
    connection: Connection,
    floors: Sequence[int] = (0, 0),
    *,
    now: int,
    limit: int,
    decide: DecideExpiry,
    slots: int,
    locked: LockedJobs,
) -> list[Finished]:
    """Take back runs whose lease or wall clock ran out, then retries that wait beyond their deadline; of both those
    from a floor on.
    """
    leases_from, retries_from = floors
    lost = await connection.fetch(_QUERIES["lost_leases"], leases_from, now, limit)
    left = limit - len(lost)
    overdue = await connection.fetch(_QUERIES["overdue_retries"], retries_from, now, left) if left else []
    lives = [LiveRow(tuple(row), slots=slots) for row in (*lost, *overdue)]
    if not lives:
        return []
    jobs = await jobs_of_runs(connection, lives)
    streaks = _Streaks(jobs)
    judged: list[Judged] = []
    for live in lives:
        verdict = judge_lost(live, decide, job=streaks.job_of(live), now=now)
        streaks.note(live, verdict)
        judged.append(Judged(live, verdict, lost_outcome(live, now=now), None))
    _demand_locks(judged, jobs, locked)
    running = [one for one in judged if one.live.run.state is RunState.RUNNING]
    written = await write_verdicts(connection, running, jobs, now=now)
    waiting = [one for one in judged if one.live.run.state is RunState.PENDING]
    given_up = [(one, one.verdict) for one in waiting if isinstance(one.verdict, EndRun)]
    endings = [as_it_stands(one.live, state=verdict.state, error=verdict.error) for one, verdict in given_up]
    await end_runs(connection, endings, now=now)
    settled = [*running, *(one for one, _verdict in given_up)]
    written = await _settle_jobs(
        connection, settled, [*written, *(verdict for _one, verdict in given_up)], locked, slots=slots, now=now
    )
    freed: set[int] = set()
    answers = [_answer(one.live, verdict, freed=freed) for one, verdict in zip(settled, written, strict=True)]
    if freed:
        await pass_lanes_on(connection, freed, slots=slots, now=now)
    return answers


async def first_overdue(connection: Connection, floors: Sequence[int], *, now: int) -> list[int | None]:
    """What `expire` leaves, since others hold it or there was more: the first lease and the first retry."""
    leases_from, retries_from = floors
    (row,) = await connection.fetch(_QUERIES["first_overdue"], leases_from, now, retries_from)
    return [row[0], row[1]]


async def _with_locked(
    job_ids: frozenset[int],
    work: Callable[[Connection, LockedJobs], Awaitable[T]],
    connection: Connection,
    *,
    slots: int,
) -> T:
    ordered = sorted(job_ids, key=lambda job_id: (job_id % slots, job_id))
    return await work(
        connection, {job_id: await lock_job(connection, job_id, slot=job_id % slots) for job_id in ordered}
    )


def _rounds(items: Sequence[Finish]) -> Iterator[list[int]]:
    """The numbers of the items, in portions that name each run once: what becomes of a second item for a run depends
    on the first one.
    """
    left = list(range(len(items)))
    while left:
        named: set[RunKey] = set()
        portion: list[int] = []
        later: list[int] = []
        for number in left:
            (later if items[number].key in named else portion).append(number)
            named.add(items[number].key)
        yield portion
        left = later


async def _end_successes(connection: Connection, items: Sequence[Finish], *, now: int, slots: int) -> frozenset[RunKey]:
    """End those runs that may end as succeeded under the items' tokens. Answer: which did."""
    rows = [
        (
            item.key.job_id % slots, *item.key, item.token, item.outcome.started_at, item.outcome.duration_us,
            item.outcome.status, encode_response(item.outcome.response),
        )
        for item in items
    ]  # fmt: skip
    ended = await connection.fetch(_QUERIES["end_succeeded"], *columns(rows, count=8), now)
    await end_streaks(connection, [row[0] for row in ended], slots=slots)
    return frozenset(RunKey(row[0], row[1]) for row in ended)


async def _finish_others(
    connection: Connection,
    items: Sequence[Finish],
    *,
    freed: set[int],
    now: int,
    decide: DecideFinish,
    slots: int,
    locked: LockedJobs,
) -> dict[RunKey, Finished]:
    """All but plain successes. Each run is named once."""
    lives = await lock_live(connection, [item.key for item in items], slots=slots)
    held: list[tuple[LiveRow, Finish]] = []
    stale: list[tuple[RunKey, tuple[bytes, bytes]]] = []
    for item in items:
        live = lives.get(item.key)
        if live is not None and is_workers(live, item.token):
            held.append((live, item))
        else:
            stale.append((item.key, (item.token, callback_token(item.token))))
    answers = await refuse(connection, stale, slots=slots) if stale else {}
    if held:
        answers |= await finish_held(connection, held, freed=freed, now=now, decide=decide, slots=slots, locked=locked)
    return answers


def _is_success(item: Finish) -> bool:
    return item.outcome.kind is OutcomeKind.SUCCEEDED


def _answer(live: LiveRow, written: Verdict, *, freed: set[int]) -> Finished:
    if isinstance(written, EndRun):
        freed.add(live.run.key.job_id)
    return answer(live.run.key, written)


class _Streaks:
    """The jobs of a batch of runs, each as the verdicts before have left its streak."""

    def __init__(self, jobs: Mapping[tuple[int, int], JobOfRun]) -> None:
        self._jobs = jobs
        self._counted: dict[int, Streak] = {}

    def job_of(self, live: LiveRow) -> JobOfRun:
        """What the decision about this run is to know."""
        job = self._jobs[live.run.key.job_id, live.run.job_version]
        counted = self._counted.get(live.run.key.job_id)
        return job if counted is None else replace(job, streak=counted)

    def note(self, live: LiveRow, verdict: Verdict) -> None:
        """Count it in."""
        if isinstance(verdict, EndRun) and verdict.streak is not None:
            self._counted[live.run.key.job_id] = verdict.streak


def _demand_locks(judged: Sequence[Judged], jobs: Mapping[tuple[int, int], JobOfRun], locked: LockedJobs) -> None:
    """Jobs that a verdict pauses, and those whose streak begins: there is no row yet that two could count in turn."""
    wanted: set[int] = set()
    for one in judged:
        job_id, verdict = one.live.run.key.job_id, one.verdict
        if not isinstance(verdict, EndRun):
            continue
        begins = verdict.streak is not None and jobs[job_id, one.live.run.job_version].streak is None
        if begins or verdict.pauses_job is not None:
            wanted.add(job_id)
    if not wanted <= locked.keys():
        raise JobsNeedLocksError(frozenset(wanted))


async def _settle_jobs(
    connection: Connection,
    judged: Sequence[Judged],
    written: Sequence[Verdict],
    locked: LockedJobs,
    *,
    slots: int,
    now: int,
) -> list[Verdict]:
    """What the ends of runs mean for their jobs: streaks of failed runs, and pauses.

    Answer: the verdicts, without the pauses of jobs that were not to be paused any more.
    """
    answers: list[Verdict] = []
    paused: set[int] = set()
    for one, verdict in zip(judged, written, strict=True):
        job_id = one.live.run.key.job_id
        if isinstance(verdict, EndRun):
            if verdict.state is RunState.SUCCEEDED:
                await end_streaks(connection, [job_id], slots=slots)
            elif verdict.streak is not None:
                await keep_streak(connection, job_id, verdict.streak, slot=one.live.slot)
            if verdict.pauses_job is not None:
                if job_id not in paused and await _pause_job(
                    connection, locked[job_id], reason=verdict.pauses_job, slots=slots, now=now
                ):
                    paused.add(job_id)
                else:
                    verdict = replace(verdict, pauses_job=None)
        answers.append(verdict)
    return answers


async def _pause_job(connection: Connection, job: StoredJob | None, *, reason: str, slots: int, now: int) -> bool:
    """Pause a job that was locked before anything was read. False: it is paused already, or deleted."""
    if job is None or job.state in (JobState.PAUSED, JobState.DELETED):
        return False
    paused_at = pause_begins_at(job.next_fire_at, now=now)
    state = NewState(job.job_id, JobState.PAUSED, reason)
    await set_job_states(connection, [state], slots=slots, now=now, raises_version=True, paused_at=paused_at)
    await drop_clocks(connection, [job.job_id], slots=slots)
    await connection.execute(_JOBS["hold_runs"], True, job.job_id % slots, job.job_id)
    return True
