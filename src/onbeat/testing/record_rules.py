"""Rules about rows: every planned instant exactly once, nothing unplanned, nothing stuck, counters equal rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.states import LIVE, RunState, Trigger
from onbeat.store.values import RunView
from onbeat.testing.events import History, Planned, Rule, Violation

_NOT_ASKED_OF_A_CLOCK = frozenset({Trigger.MANUAL, Trigger.TEST})


def broken_by_records(history: History) -> Iterator[Violation]:
    """Judge rows against plans and against each other."""
    by_job: dict[int, list[RunView]] = defaultdict(list)
    for run in history.runs:
        if run.trigger not in _NOT_ASKED_OF_A_CLOCK:
            by_job[run.key.job_id].append(run)
    for planned in history.planned:
        yield from _accounting(planned, by_job[planned.job_id], cut_off=history.cut_off)
    yield from _rows_of_one_identity(history)
    yield from _stuck(history)
    yield from _counters(history)


def _accounting(planned: Planned, runs: Sequence[RunView], *, cut_off: int) -> Iterator[Violation]:
    """Count how many records hold each instant: the differences at both ends of each record, then their sum."""
    must = frozenset(planned.must)
    instants = sorted(must.union(planned.may))
    steps = [0] * (len(instants) + 1)
    for run in runs:
        last_at = run.key.scheduled_at if run.until is None else run.until
        first, end = bisect_left(instants, run.key.scheduled_at), bisect_right(instants, last_at)
        steps[first] += 1
        steps[end] -= 1
        yield from _ends_of(run, instants, first=first, end=end, last_at=last_at)
        at_least = sum(instant in must for instant in instants[first:end]) if run.count > 1 else 0
        if run.count > 1 and not at_least <= run.count <= end - first:
            yield Violation(
                Rule.COUNTER_MISMATCH, f"{_name(run.key)} counts {run.count} instants and holds {end - first}"
            )
    records = 0
    for instant, step in zip(instants, steps, strict=False):
        records += step
        if records == 0 and instant in must and instant <= cut_off:
            yield Violation(Rule.LOST, f"nothing accounts for {_name(RunKey(planned.job_id, instant))}")
        if records > 1:
            yield Violation(Rule.DOUBLE_RECORD, f"{records} records of {_name(RunKey(planned.job_id, instant))}")


def _ends_of(run: RunView, instants: Sequence[int], *, first: int, end: int, last_at: int) -> Iterator[Violation]:
    """Both ends of a record are planned instants; a run has one end."""
    starts_planned = first < len(instants) and instants[first] == run.key.scheduled_at
    ends_planned = end > 0 and instants[end - 1] == last_at
    if not (starts_planned and ends_planned):
        yield Violation(Rule.PHANTOM, f"{_name(run.key)} ({run.state}) was never planned")


def _rows_of_one_identity(history: History) -> Iterator[Violation]:
    """One row for each identity, also of runs by hand and of jobs without a plan: no table sees to it alone."""
    for key, rows in Counter(run.key for run in history.runs).items():
        if rows > 1:
            yield Violation(Rule.DOUBLE_RECORD, f"{rows} rows of {_name(key)}")


def _stuck(history: History) -> Iterator[Violation]:
    for run in history.runs:
        if run.state in LIVE and run.key.scheduled_at <= history.cut_off:
            yield Violation(Rule.STUCK, f"{_name(run.key)} is still {run.state}")


def _counters(history: History) -> Iterator[Violation]:
    """A run's attempt counter equals its attempts, and the store's count of live runs equals those rows."""
    for run in history.runs:
        if run.key not in history.attempts:
            continue
        ended = run.attempt - 1 if run.state is RunState.RUNNING else run.attempt
        numbers = [attempt.attempt for attempt in history.attempts[run.key]]
        if numbers != list(range(1, ended + 1)):
            yield Violation(
                Rule.COUNTER_MISMATCH, f"{_name(run.key)} ({run.state}, attempt {run.attempt}) has attempts {numbers}"
            )
    live = sum(run.state in LIVE for run in history.runs)
    if history.live_count is not None and history.live_count != live:
        yield Violation(Rule.COUNTER_MISMATCH, f"the store counts {history.live_count} live runs and has {live}")


def _name(key: RunKey) -> str:
    return f"{format_run_id(key)} planned for {key.scheduled_at}"
