"""The history checker: was every planned instant accounted for exactly once, and was every promise kept?

Pure: what was recorded goes in, a verdict with named violations comes out. It trusts no process: plans come from the
test, rows from the store, deliveries from the receivers, and each is held against the others. A run of the checker in
which nothing went wrong on the way proves nothing, so a test says how much it must have seen, and less is a violation
(`vacuous`).

After the checker of Jepsen's Chronos test, made stricter: extra runs fail, and so does every duplicate delivery that no
attempt on record explains.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState
from onbeat.store.values import FinishResult
from onbeat.testing.delivery_rules import broken_by_deliveries
from onbeat.testing.events import Conflicted, EndAnswered, EndAsked, History, Rule, TakenBack, Violation
from onbeat.testing.lease_rules import broken_by_leases
from onbeat.testing.policy_rules import broken_by_policies
from onbeat.testing.record_rules import broken_by_records

TOLERANCE_US: Final = 100_000
"""How far two clocks of one host may disagree: the store's is read now and then and kept in between."""

SHOWN: Final = 10


class Seen(msgspec.Struct, frozen=True):
    """How often the things happened that a fault is to bring about."""

    reclaims: int = 0  # runs taken back from silent workers
    refused_finishes: int = 0  # finishes under a lease that was over, refused
    insert_conflicts: int = 0  # runs that another dispatcher had recorded first
    duplicate_deliveries: int = 0  # deliveries beyond the first of a run
    missed_marks: int = 0  # records of instants that nobody dispatched in time
    unanswered_ends: int = 0  # finishes that were asked for and whose answer nobody got
    fires: int = 0  # planned instants that were judged


class Verdict(msgspec.Struct, frozen=True):
    """What is wrong, and how much was seen."""

    violations: tuple[Violation, ...]
    seen: Seen

    @property
    def holds(self) -> bool:
        return not self.violations

    def explain(self) -> str:
        """For a failing test: how many of each, then the first of them."""
        counted = Counter(violation.rule for violation in self.violations)
        lines = [f"{rule}: {count}" for rule, count in sorted(counted.items())]
        lines += [f"  {violation.rule}: {violation.detail}" for violation in self.violations[:SHOWN]]
        return "\n".join([*lines, f"seen: {self.seen}"])


def judge(history: History, *, required: Seen | None = None, tolerance_us: int = TOLERANCE_US) -> Verdict:
    """Hold everything that was recorded against the rules. `required`: the least that must have been seen of each."""
    seen = _seen(history)
    violations = [
        *broken_by_records(history),
        *broken_by_deliveries(history, tolerance_us=tolerance_us),
        *broken_by_leases(history),
        *broken_by_policies(history, tolerance_us=tolerance_us),
        *_vacuous(seen, required or Seen()),
    ]
    return Verdict(violations=tuple(violations), seen=seen)


def _seen(history: History) -> Seen:
    lost = sum(attempt.kind == OutcomeKind.LEASE_LOST for attempts in history.attempts.values() for attempt in attempts)
    taken_back = sum(isinstance(call, TakenBack) for call in history.calls)
    refused = (FinishResult.LEASE_LOST, FinishResult.RUN_TERMINAL)
    deliveries = history.deliveries or ()
    return Seen(
        # Both count the same thing; of either, a test may have recorded a part only.
        reclaims=max(lost, taken_back),
        refused_finishes=sum(isinstance(call, EndAnswered) and call.result in refused for call in history.calls),
        insert_conflicts=sum(call.count for call in history.calls if isinstance(call, Conflicted)),
        duplicate_deliveries=len(deliveries) - len({delivery.key for delivery in deliveries}),
        missed_marks=sum(run.state is RunState.MISSED for run in history.runs),
        unanswered_ends=_unanswered(history),
        fires=sum(instant <= history.cut_off for planned in history.planned for instant in planned.must),
    )


def _unanswered(history: History) -> int:
    """A release has no answer on record, and gives back what nobody finished."""
    answered = {call.token for call in history.calls if isinstance(call, EndAnswered)}
    return len(
        {
            call.token
            for call in history.calls
            if isinstance(call, EndAsked) and not call.gives_back and call.token not in answered
        }
    )


def _vacuous(seen: Seen, required: Seen) -> list[Violation]:
    counted = msgspec.structs.asdict(seen)
    return [
        Violation(Rule.VACUOUS, f"{name}: {counted[name]} seen, at least {least} required")
        for name, least in msgspec.structs.asdict(required).items()
        if counted[name] < least
    ]
