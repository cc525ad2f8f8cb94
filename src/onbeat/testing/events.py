"""What a history is made of: plans, rows, deliveries, and the calls that a store answered.

Moments are µs UTC. All that recorded a history read the clock of one host. A call has two moments: its effect happened
somewhere between `asked_at` and `answered_at`. What was asked and never answered may have happened or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from onbeat.domain.ids import RunKey
from onbeat.store.values import AttemptView, FinishResult, RunView


class Planned(msgspec.Struct, frozen=True):
    """The planned instants of one job, ascending: those that must be accounted for, and those that may be.

    An instant that fell between the asking of a create, pause or edit and its answer is one that `may`. What follows
    are promises of the job's policies; None: that promise is not judged.
    """

    job_id: int
    must: tuple[int, ...]
    may: tuple[int, ...] = ()
    limit: int | None = None  # so many of its runs are leased at a time, at most
    attempts: int | None = None  # so many attempts, at least, has each of its runs that failed
    is_never_cancelled: bool = False  # nobody asks for the end of its runs
    sends_once: bool = False  # at most once: nothing is sent again
    grace_us: int | None = None  # no instant is missed that is younger
    late_after_us: int | None = None  # so long a first delivery waits while nothing is disturbed, at most
    path: str | None = None  # of the URL that this job calls, and no other does


class Delivery(msgspec.Struct, frozen=True):
    """A request that reached a receiver whole. `status` None: it was given no answer."""

    key: RunKey
    attempt: int
    arrived_at: int
    status: int | None
    path: str | None = None  # of the URL that was called


class Granted(msgspec.Struct, frozen=True, tag=True):
    """A claim, a hand-off or a run born with a lease: from here on `token` is the run's lease."""

    asked_at: int
    answered_at: int
    key: RunKey
    token: bytes
    attempt: int
    until: int
    deadline_at: int | None = None


class Extended(msgspec.Struct, frozen=True, tag=True):
    """A heartbeat that was accepted."""

    asked_at: int
    answered_at: int
    key: RunKey
    token: bytes
    until: int


class EndAsked(msgspec.Struct, frozen=True, tag=True):
    """A finish or release was asked for; written before the call, so that a death in it leaves the word."""

    asked_at: int
    key: RunKey
    token: bytes
    gives_back: bool  # the attempt does not count: its number is given to the next one


class EndAnswered(msgspec.Struct, frozen=True, tag=True):
    """What a finish was answered: a worker's under its lease, or a handler's under the callback token made from it."""

    asked_at: int
    answered_at: int
    key: RunKey
    token: bytes
    result: FinishResult
    by_handler: bool = False


class TakenBack(msgspec.Struct, frozen=True, tag=True):
    """A run that was taken from a silent worker, or ended because its time was up."""

    asked_at: int
    answered_at: int
    key: RunKey
    result: FinishResult


class ReviveAsked(msgspec.Struct, frozen=True, tag=True):
    """A person brought an ended run back; written before the call."""

    asked_at: int
    key: RunKey


class Conflicted(msgspec.Struct, frozen=True, tag=True):
    """So many runs of one dispatch had been recorded by somebody else."""

    asked_at: int
    count: int


Call = Granted | Extended | EndAsked | EndAnswered | TakenBack | ReviveAsked | Conflicted


class History(msgspec.Struct, frozen=True):
    """All that was recorded of one test, read after everything had come to rest.

    Planned instants up to `cut_off` are judged; by then every run must have had the time to end. `attempts` holds the
    runs whose attempts were read: one without an entry is not judged by them. `deliveries` None: no receiver's log.
    `disturbed` holds the beginnings and ends of faults, with the time that they take to heal, and of overload.
    """

    cut_off: int
    planned: Sequence[Planned]
    runs: Sequence[RunView]
    attempts: Mapping[RunKey, Sequence[AttemptView]] = {}
    deliveries: Sequence[Delivery] | None = None
    calls: Sequence[Call] = ()
    disturbed: Sequence[tuple[int, int]] = ()
    live_count: int | None = None  # how many runs the store's own counters call pending or running


class Rule(StrEnum):
    """The rules that a history can break. The names are those that the nightly reports use."""

    LOST = "lost"  # a planned instant that nothing accounts for
    DOUBLE_RECORD = "double_record"  # a planned instant that two records account for
    PHANTOM = "phantom"  # a record of an instant that nobody planned
    STUCK = "stuck"  # a run that has not ended though it had the time
    COUNTER_MISMATCH = "counter_mismatch"  # a counter that disagrees with the rows that it counts
    EARLY = "early"  # delivered before its planned instant
    UNRECORDED_SEND = "unrecorded_send"  # delivered without a run, or beyond the attempts that the run knows of
    UNEXPLAINED_DUPLICATE = "unexplained_duplicate"  # delivered again without a recorded cause
    FALSE_SUCCESS = "false_success"  # succeeded, and no delivery of it was answered 2xx
    SENT_AGAIN = "sent_again"  # a run of a job that sends at most once, delivered twice
    MISMATCH = "mismatch"  # more arrivals at a job's own URL than instants that they can belong to
    LATE = "late"  # a first delivery that waited for too long while nothing was disturbed
    UNJUSTIFIED_MISS = "unjustified_miss"  # missed inside grace, or while nothing was disturbed
    FALSE_CANCEL = "false_cancel"  # ended as cancelled though nobody asked for it
    GAVE_UP_EARLY = "gave_up_early"  # failed with attempts left
    LIMIT_BROKEN = "limit_broken"  # more runs of a job leased at a time than it may have
    LEASE_OVERLAP = "lease_overlap"  # two leases of one run at a time
    STALE_ACCEPT = "stale_accept"  # a word under a former lease that was accepted
    TERMINAL_CHANGED = "terminal_changed"  # a run that had ended and was leased again
    VACUOUS = "vacuous"  # too little happened for the verdict to mean anything


class Violation(msgspec.Struct, frozen=True):
    """One broken rule, in words that name the run."""

    rule: Rule
    detail: str
