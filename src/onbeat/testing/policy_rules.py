"""Rules about what a job's policies promise: attempts, at most once, grace, lateness, runs at a time.

And one check that believes neither our headers nor our rows: the arrivals at a job's own URL against its plan alone.
Each judges only those plans that name the promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.states import RunState
from onbeat.testing.events import (
    Delivery,
    EndAsked,
    Extended,
    Granted,
    History,
    Planned,
    ReviveAsked,
    Rule,
    TakenBack,
    Violation,
)
from onbeat.testing.lease_rules import names


def broken_by_policies(history: History, *, tolerance_us: int) -> Iterator[Violation]:
    """Judge each plan by the promises that it names."""
    plans = {planned.job_id: planned for planned in history.planned}
    deliveries: dict[RunKey, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries or ():
        deliveries[delivery.key].append(delivery)
    yield from _given_up_early(history, plans)
    yield from _cancelled_by_nobody(history, plans)
    yield from _missed(history, plans, tolerance_us=tolerance_us)
    yield from _sent_again(history, plans, deliveries)
    yield from _late(history, plans, deliveries, tolerance_us=tolerance_us)
    yield from _mismatched(history, tolerance_us=tolerance_us)
    yield from _beyond_limits(history, plans, tolerance_us=tolerance_us)


def _given_up_early(history: History, plans: Mapping[int, Planned]) -> Iterator[Violation]:
    for run in history.runs:
        least = plans[run.key.job_id].attempts if run.key.job_id in plans else None
        if least is not None and run.state is RunState.FAILED and run.attempt < least:
            yield Violation(
                Rule.GAVE_UP_EARLY, f"{format_run_id(run.key)} failed after {run.attempt} of {least} attempts"
            )


def _cancelled_by_nobody(history: History, plans: Mapping[int, Planned]) -> Iterator[Violation]:
    for run in history.runs:
        is_ours = run.key.job_id in plans and plans[run.key.job_id].is_never_cancelled
        if is_ours and run.state is RunState.CANCELLED:
            yield Violation(Rule.FALSE_CANCEL, f"{format_run_id(run.key)} was cancelled, and nobody asked for it")


def _missed(history: History, plans: Mapping[int, Planned], *, tolerance_us: int) -> Iterator[Violation]:
    """The youngest instant of a missed mark was older than grace when it was decided, and waited in a disturbance."""
    for run in history.runs:
        grace_us = plans[run.key.job_id].grace_us if run.key.job_id in plans else None
        if grace_us is None or run.state is not RunState.MISSED:
            continue
        youngest = run.key.scheduled_at if run.until is None else run.until
        waited_us = run.created_at - youngest
        if waited_us < grace_us - tolerance_us:
            yield Violation(Rule.UNJUSTIFIED_MISS, f"{format_run_id(run.key)} was missed after {waited_us} µs")
        elif _undisturbed_us(history.disturbed, youngest, run.created_at) > grace_us:
            yield Violation(Rule.UNJUSTIFIED_MISS, f"{format_run_id(run.key)} was missed while nothing was disturbed")


def _sent_again(
    history: History, plans: Mapping[int, Planned], deliveries: Mapping[RunKey, Sequence[Delivery]]
) -> Iterator[Violation]:
    """Only a person sends such a run again."""
    revived = Counter(call.key for call in history.calls if isinstance(call, ReviveAsked))
    for key, sent in deliveries.items():
        if key.job_id in plans and plans[key.job_id].sends_once and len(sent) > 1 + revived[key]:
            yield Violation(Rule.SENT_AGAIN, f"{format_run_id(key)} arrived {len(sent)} times")


def _late(
    history: History,
    plans: Mapping[int, Planned],
    deliveries: Mapping[RunKey, Sequence[Delivery]],
    *,
    tolerance_us: int,
) -> Iterator[Violation]:
    for key, sent in deliveries.items():
        most_us = plans[key.job_id].late_after_us if key.job_id in plans else None
        if most_us is None:
            continue
        arrived_at = min(delivery.arrived_at for delivery in sent)
        waited_us = _undisturbed_us(history.disturbed, key.scheduled_at, arrived_at)
        if waited_us > most_us + tolerance_us:
            yield Violation(Rule.LATE, f"{format_run_id(key)} waited {waited_us} µs while nothing was disturbed")


def _undisturbed_us(disturbed: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """How much of `[start, end)` lies in no disturbance."""
    quiet_us, reached = 0, start
    for begins_at, ends_at in sorted(disturbed):
        if begins_at >= end:
            break
        quiet_us += max(begins_at - reached, 0)
        reached = max(reached, ends_at)
    return quiet_us + max(end - reached, 0)


def _mismatched(history: History, *, tolerance_us: int) -> Iterator[Violation]:
    """Give each arrival at a job's own URL one of its instants that has passed and is free, the oldest first. No other
    way finds more pairs, so an arrival that is left belongs to no instant, whatever it says of itself.

    Further arrivals under an id that has arrived before are no new ones.
    """
    first: dict[str, dict[RunKey, int]] = defaultdict(dict)
    for delivery in history.deliveries or ():
        if delivery.path is not None:
            seen = first[delivery.path]
            seen[delivery.key] = min(seen.get(delivery.key, delivery.arrived_at), delivery.arrived_at)
    for planned in history.planned:
        if planned.path is None:
            continue
        left = _left_by_matching(
            sorted({*planned.must, *planned.may}), sorted(first[planned.path].values()), tolerance_us=tolerance_us
        )
        if left:
            yield Violation(Rule.MISMATCH, f"{left} arrivals at {planned.path} belong to none of its instants")


def _left_by_matching(instants: Sequence[int], arrivals: Sequence[int], *, tolerance_us: int) -> int:
    given = 0
    for arrived_at in arrivals:
        given += given < len(instants) and instants[given] <= arrived_at + tolerance_us
    return len(arrivals) - given


def _beyond_limits(history: History, plans: Mapping[int, Planned], *, tolerance_us: int) -> Iterator[Violation]:
    """Count, at each moment, the leases of a job that certainly hold: from their answer until they run out, or until
    somebody asks to end them.
    """
    grants: dict[int, list[Granted]] = defaultdict(list)
    ends: dict[RunKey, list[EndAsked | TakenBack | Extended]] = defaultdict(list)
    for call in history.calls:
        if isinstance(call, Granted):
            grants[call.key.job_id].append(call)
        elif isinstance(call, EndAsked | TakenBack | Extended):
            ends[call.key].append(call)
    for job_id, planned in plans.items():
        if planned.limit is None:
            continue
        steps: list[tuple[int, int]] = []
        for grant in grants[job_id]:
            until = _surely_until(grant, ends[grant.key]) - tolerance_us
            if until > grant.answered_at:
                steps += [(grant.answered_at, 1), (until, -1)]
        held = most = 0
        for _at, step in sorted(steps):
            held += step
            most = max(most, held)
        if most > planned.limit:
            yield Violation(
                Rule.LIMIT_BROKEN, f"job {job_id} had {most} runs leased at a time, {planned.limit} allowed"
            )


def _surely_until(grant: Granted, calls: Sequence[EndAsked | TakenBack | Extended]) -> int:
    until = max(
        [grant.until, *(call.until for call in calls if isinstance(call, Extended) and call.token == grant.token)]
    )
    ended = [call.asked_at for call in calls if isinstance(call, EndAsked) and names(call.token, grant)]
    taken = [call.asked_at for call in calls if isinstance(call, TakenBack) and call.answered_at >= grant.asked_at]
    return min([until, *ended, *taken])
