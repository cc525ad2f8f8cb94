"""Rules about what receivers saw: a row before every delivery, a recorded cause for every duplicate."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from onbeat.domain.ids import RunKey, format_run_id
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.values import AttemptView, RunView
from onbeat.testing.events import Delivery, EndAnswered, EndAsked, History, Rule, Violation


def broken_by_deliveries(history: History, *, tolerance_us: int) -> Iterator[Violation]:
    """Judge the receivers' logs against rows; nothing without logs."""
    if history.deliveries is None:
        return
    runs = {run.key: run for run in history.runs}
    given_back = Counter(call.key for call in history.calls if isinstance(call, EndAsked) and call.gives_back)
    by_run: dict[RunKey, list[Delivery]] = defaultdict(list)
    for delivery in history.deliveries:
        by_run[delivery.key].append(delivery)
    for key, deliveries in by_run.items():
        yield from _early(deliveries, tolerance_us=tolerance_us)
        yield from _unrecorded(deliveries, runs.get(key), given_back=given_back[key])
        attempts = history.attempts.get(key, ())
        yield from _unexplained(deliveries, attempts, given_back=given_back[key], tolerance_us=tolerance_us)
    # A handler may report success though the answer that it had accepted was lost.
    reported = {call.key for call in history.calls if isinstance(call, EndAnswered) and call.by_handler}
    for run in history.runs:
        answers = [delivery.status for delivery in by_run.get(run.key, ())]
        is_judged = run.queue is None and run.key not in reported
        if run.state is RunState.SUCCEEDED and is_judged and not any(_is_success(status) for status in answers):
            yield Violation(Rule.FALSE_SUCCESS, f"{format_run_id(run.key)} succeeded; the receiver answered {answers}")


def _early(deliveries: Sequence[Delivery], *, tolerance_us: int) -> Iterator[Violation]:
    for delivery in deliveries:
        early_us = delivery.key.scheduled_at - delivery.arrived_at
        if early_us > tolerance_us:
            yield Violation(Rule.EARLY, f"{_name(delivery)} arrived {early_us} µs before its planned instant")


def _unrecorded(deliveries: Sequence[Delivery], run: RunView | None, *, given_back: int) -> Iterator[Violation]:
    """A grant that was given back took its number with it, so the row may know fewer attempts than were sent."""
    for delivery in deliveries:
        if run is None or run.until is not None:
            yield Violation(Rule.UNRECORDED_SEND, f"{_name(delivery)} belongs to no run")
        elif not 1 <= delivery.attempt <= run.attempt + given_back:
            yield Violation(Rule.UNRECORDED_SEND, f"{_name(delivery)}: the run knows of {run.attempt} attempts")


def _unexplained(
    deliveries: Sequence[Delivery], attempts: Sequence[AttemptView], *, given_back: int, tolerance_us: int
) -> Iterator[Violation]:
    """An attempt is delivered once, and followed by another only after a recorded end that asks for one."""
    causes = {attempt.attempt: attempt for attempt in attempts if attempt.kind != OutcomeKind.SUCCEEDED}
    newest = max(delivery.attempt for delivery in deliveries)
    sent = Counter(delivery.attempt for delivery in deliveries)
    for number, times in sent.items():
        if times > 1 + given_back:
            key = deliveries[0].key
            yield Violation(Rule.UNEXPLAINED_DUPLICATE, f"{format_run_id(key)} attempt {number} arrived {times} times")
    for delivery in deliveries:
        if delivery.attempt < newest and delivery.attempt not in causes:
            yield Violation(
                Rule.UNEXPLAINED_DUPLICATE, f"{_name(delivery)}: no recorded cause, and attempt {newest} was sent too"
            )
        before = causes.get(delivery.attempt - 1)
        # The store's clock wrote both moments of a lost lease; other ends are timed by workers, whose clocks are
        # estimates.
        if before is not None and before.kind == OutcomeKind.LEASE_LOST:
            lost_at = before.started_at + before.duration_us
            if delivery.arrived_at < lost_at - tolerance_us:
                yield Violation(
                    Rule.UNEXPLAINED_DUPLICATE, f"{_name(delivery)} arrived before the lease before it was lost"
                )


def _is_success(status: int | None) -> bool:
    return status is not None and 200 <= status < 300


def _name(delivery: Delivery) -> str:
    return f"{format_run_id(delivery.key)} attempt {delivery.attempt}"
