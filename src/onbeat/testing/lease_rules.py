"""Rules about leases: one at a time, no word of a former holder counts, an ended run stays ended.

Calls of several processes are compared by what is certain: one happened before another only if it was answered before
the other was asked. So a finding is never an accident of timing, and a call whose answer was lost accuses nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from onbeat.domain.callback import callback_token
from onbeat.domain.ids import RunKey, format_run_id
from onbeat.store.values import FinishResult
from onbeat.testing.events import (
    Conflicted,
    EndAnswered,
    EndAsked,
    Extended,
    Granted,
    History,
    ReviveAsked,
    Rule,
    TakenBack,
    Violation,
)

CHANGED = frozenset({FinishResult.ENDED, FinishResult.WILL_RETRY, FinishResult.ACCEPTED})
OVER = CHANGED - {FinishResult.ACCEPTED}

_OfRun = Granted | Extended | EndAsked | EndAnswered | TakenBack | ReviveAsked


def broken_by_leases(history: History) -> Iterator[Violation]:
    """Judge the recorded calls, run by run."""
    by_run: dict[RunKey, list[_OfRun]] = defaultdict(list)
    for call in history.calls:
        if not isinstance(call, Conflicted):
            by_run[call.key].append(call)
    for key, calls in by_run.items():
        grants = [call for call in calls if isinstance(call, Granted)]
        yield from _overlaps(key, grants, calls)
        yield from _stale_accepts(key, grants, calls)
        yield from _changed_after_the_end(key, grants, calls)


def _overlaps(key: RunKey, grants: Sequence[Granted], calls: Sequence[_OfRun]) -> Iterator[Violation]:
    """A lease certainly holds from its answer until it runs out, or until somebody asks to end it."""
    for held in grants:
        released_at = min(
            (call.asked_at for call in calls if isinstance(call, EndAsked) and names(call.token, held)),
            default=None,
        )
        for other in grants:
            if other is held or other.asked_at < held.answered_at:
                continue
            if other.token == held.token:
                yield Violation(Rule.LEASE_OVERLAP, f"{format_run_id(key)}: one token was granted twice")
            if released_at is not None and other.answered_at >= released_at:
                continue
            if other.answered_at < _certainly_held_until(held, calls, known_by=other.asked_at):
                yield Violation(
                    Rule.LEASE_OVERLAP,
                    f"{format_run_id(key)}: attempt {other.attempt} was leased while attempt {held.attempt} was held",
                )


def _certainly_held_until(held: Granted, calls: Sequence[_OfRun], *, known_by: int) -> int:
    """The end of the lease, as extended before `known_by`; no heartbeat reaches beyond the run's deadline."""
    extended = [
        call.until
        for call in calls
        if isinstance(call, Extended) and call.token == held.token and call.answered_at <= known_by
    ]
    until = max([held.until, *extended])
    return until if held.deadline_at is None else min(until, held.deadline_at)


def _stale_accepts(key: RunKey, grants: Sequence[Granted], calls: Sequence[_OfRun]) -> Iterator[Violation]:
    """An accepted finish or heartbeat names the lease of that moment: none granted since, none taken back since."""
    for call in calls:
        is_end = isinstance(call, EndAnswered) and call.result in CHANGED
        if not (is_end or isinstance(call, Extended)):
            continue
        assert isinstance(call, EndAnswered | Extended)
        for grant in grants:
            if names(call.token, grant) and _is_over(grant, calls, by=call):
                word = "finish" if is_end else "heartbeat"
                yield Violation(
                    Rule.STALE_ACCEPT,
                    f"{format_run_id(key)}: a {word} of attempt {grant.attempt} was accepted after its lease was over",
                )


def _is_over(grant: Granted, calls: Sequence[_OfRun], *, by: EndAnswered | Extended) -> bool:
    for call in calls:
        if call is by or isinstance(call, EndAsked | ReviveAsked | Extended) or call.answered_at > by.asked_at:
            continue
        if call.asked_at < grant.answered_at:
            continue
        if isinstance(call, Granted) and call.token != grant.token:
            return True
        if isinstance(call, TakenBack):
            return True
        if isinstance(call, EndAnswered) and names(call.token, grant) and call.result in OVER:
            return True
    return False


def names(token: bytes, grant: Granted) -> bool:
    """Does a word under this token speak of that lease? Handlers have a token of their own, made from the lease's."""
    return token in (grant.token, callback_token(grant.token))


def _changed_after_the_end(key: RunKey, grants: Sequence[Granted], calls: Sequence[_OfRun]) -> Iterator[Violation]:
    """No lease is granted after the run has ended, unless a person brought it back."""
    ends = [
        call.answered_at
        for call in calls
        if isinstance(call, EndAnswered | TakenBack) and call.result is FinishResult.ENDED
    ]
    revived = [call.asked_at for call in calls if isinstance(call, ReviveAsked)]
    for grant in grants:
        ended_at = max((end for end in ends if end <= grant.asked_at), default=None)
        if ended_at is not None and not any(ended_at <= at <= grant.answered_at for at in revived):
            yield Violation(
                Rule.TERMINAL_CHANGED, f"{format_run_id(key)} was leased as attempt {grant.attempt} after it had ended"
            )
