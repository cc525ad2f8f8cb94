"""The values that cross the store's contract. Frozen; moments in µs UTC; states as text enums.

They are msgspec Structs: made in C, and left alone by the cycle collector, since they cannot be
part of a cycle. Measured on bench/store_life_cycle.py: 49 µs of CPU per fire, 58 with frozen dataclasses.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from onbeat.domain.auto_pause import Streak
from onbeat.domain.backfill import BackfillOrder, BackfillState
from onbeat.domain.ids import RunKey
from onbeat.domain.model import DEFAULT_PRIORITY
from onbeat.domain.outcome import Outcome, Response
from onbeat.domain.recorded import Spans
from onbeat.domain.states import JobState, RunState, SkipReason, Trigger

# ---------------------------------------------------------------- jobs


class AfterFinish(msgspec.Struct, frozen=True, gc=False):
    """The clock of this job is set by the end of its run: `every_us` later, rounded up to the whole second."""

    every_us: int
    until: int | None = None  # no instant after it; the job is completed instead


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to be written. `job_id` is drawn by the caller; `next_fire_at` None writes no clock row."""

    job_id: int
    namespace: str
    key: str | None
    name: str
    tags: tuple[str, ...]
    definition: str  # JSON text
    max_running: int  # of the definition; in the row because a lane is given away in SQL
    state: JobState
    next_fire_at: int | None
    calendars: tuple[str, ...] = ()  # those that the definition names
    after_finish: AfterFinish | None = None


class StoredJob(msgspec.Struct, frozen=True, gc=False):
    """A job as it stands. `definition` is JSON text and may be unreadable: decode it with the domain."""

    job_id: int
    namespace: str
    key: str | None
    name: str
    tags: tuple[str, ...]
    version: int
    state: JobState
    reason: str | None  # why it is in `error`, or the note of a pause
    definition: str
    next_fire_at: int | None
    created_at: int
    updated_at: int
    paused_at: int | None = None
    paused_until: int | None = None
    paused_by: str | None = None  # None: its own pause; else the tag of a Pause ("": of everything)
    recorded_until: int = 0  # the newest instant that has a record; filled for decisions that set a clock
    recorded: Spans = ()  # as in DueJob; filled for the decision of a change only


class KeepClock(StrEnum):
    """Says that a change leaves the clock alone."""

    KEEP = "keep"


KEEP = KeepClock.KEEP


class Mark(msgspec.Struct, frozen=True, gc=False):
    """Planned instants that will never run: one, or `count` of them from `scheduled_at` to `until`, both planned."""

    scheduled_at: int
    until: int
    count: int
    state: RunState  # missed or skipped
    reason: SkipReason | None = None
    blocked_by: int | None = None  # skipped(overlap): `scheduled_at` of the run in the way


class JobChange(msgspec.Struct, frozen=True, gc=False):
    """One change of a job, decided from what was read in the same transaction. None leaves a field as it is."""

    key: str | None = None
    name: str | None = None
    tags: tuple[str, ...] | None = None
    definition: str | None = None
    max_running: int | None = None  # given with `definition`
    calendars: tuple[str, ...] | None = None  # given with `definition`: those that it names
    state: JobState | None = None
    reason: str | None = None  # written whenever `state` is
    paused_at: int | None = None  # written whenever `state` is
    paused_until: int | None = None  # written whenever `state` is
    paused_by: str | None = None  # written whenever `state` is
    next_fire_at: int | KeepClock | None = KEEP
    marks: tuple[Mark, ...] = ()
    raises_version: bool = True
    cancels_pending: bool = False  # end every pending run as `cancelled`
    cancels_running: bool = False  # set cancel_requested on every running run
    after_finish: AfterFinish | None = None  # given with `definition`


class Pause(msgspec.Struct, frozen=True, gc=False):
    """A pause of many jobs at once. `tag` "" covers everything in the namespace."""

    namespace: str
    tag: str
    note: str | None
    paused_at: int
    until: int | None = None
    cancels: bool = False  # what runs is asked to stop
    is_spread: bool = False  # every job that it covers is paused
    ended_at: int | None = None  # it is over, and its jobs are being resumed


class JobFilter(msgspec.Struct, frozen=True, gc=False):
    """Which jobs to list."""

    namespace: str | None = None
    state: JobState | None = None
    tag: str | None = None
    text: str | None = None  # part of name or key, any case


class Page(msgspec.Struct, frozen=True, gc=False):
    """Where to go on: `after` is the last item's sort key, None the start; `limit` 1..1000."""

    limit: int = 50
    after: tuple[int, ...] | None = None


# ---------------------------------------------------------------- calendars


class StoredCalendar(msgspec.Struct, frozen=True, gc=False):
    """A calendar as it stands. `rules` is JSON text and may be unreadable: decode it with the domain."""

    namespace: str
    name: str
    version: int
    rules: str
    created_at: int
    updated_at: int


class Replanned(msgspec.Struct, frozen=True, gc=False):
    """What one batch of re-planning did."""

    jobs: int  # looked at
    parked: tuple[tuple[int, str], ...]  # (job_id, reason) of jobs set to `error`
    more: bool  # other jobs still have clocks from before a change


class StoredBlackout(msgspec.Struct, frozen=True, gc=False):
    """A blackout as it stands. `rules` is JSON text and may be unreadable: decode it with the domain."""

    namespace: str
    name: str
    version: int
    rules: str
    created_at: int
    updated_at: int


# ---------------------------------------------------------------- fires


class LaneHold(msgspec.Struct, frozen=True, gc=False):
    """A live run that holds a running lane: running, waiting for a worker, or waiting for its next attempt."""

    lane: int
    scheduled_at: int
    state: RunState
    trigger: Trigger
    attempt: int
    ready_at: int
    is_brought_back: bool = False  # ended once, and has not begun since


class DueJob(msgspec.Struct, frozen=True, gc=False):
    """A job whose clock is due, with everything that decides what becomes of its fires."""

    job: StoredJob
    due_at: int  # the clock's next_fire_at
    holds: tuple[LaneHold, ...]  # every lane that is held, by lane
    waiting: int | None  # `scheduled_at` of the newest schedule-triggered run that waits for a lane
    recorded: Spans = ()  # filled where a mark that was decided turned out to hold instants that have a record


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A right to one attempt, to be written with a run."""

    token: bytes  # 16 random bytes: the fencing token
    worker: str
    until: int


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to be recorded. With a lease it is born `running`, otherwise `pending`."""

    scheduled_at: int
    trigger: Trigger
    ready_at: int
    late_after: int  # starting later than this is `late`
    lane: int | None  # None: waits for a lane
    queue: str | None = None  # None: delivered by onbeat's own workers
    payload: str | None = None  # JSON text that overrides the target's payload
    lease: Lease | None = None
    max_run_us: int = 86_400_000_000  # from the first start over all attempts
    moved_us: int = 0  # how much later than planned it is to start, by spread and jitter
    priority: int = DEFAULT_PRIORITY  # its standing in line, see domain/priority.py
    displaces: int | None = None  # `scheduled_at` of an unstarted run of the same job that gives it its lane


class FirePlan(msgspec.Struct, frozen=True, gc=False):
    """What becomes of one due clock, decided in Python and written in the transaction that read it.

    Written in this order: replaced, cancelled, runs, marks, clock, state.
    """

    next_fire_at: int | None
    runs: tuple[NewRun, ...] = ()
    marks: tuple[Mark, ...] = ()
    replaced: tuple[Mark, ...] = ()  # live pending runs that end as skipped(overlap)
    cancelled: tuple[int, ...] = ()  # running runs to be asked to stop
    state: JobState | None = None  # completed or error
    reason: str | None = None


class FiredBatch(msgspec.Struct, frozen=True, gc=False):
    """What one `record_due` transaction did."""

    leased: tuple[LeasedRun, ...]
    jobs: int  # clocks looked at
    runs: int
    pending: int  # of the runs, how many wait for a worker
    marks: int
    conflicts: int  # runs that were already recorded by somebody else
    cancelled: tuple[RunKey, ...]
    parked: tuple[tuple[int, str], ...]  # (job_id, reason) of jobs set to `error`
    next_due_at: int | None  # the earliest clock left, after this batch


# ---------------------------------------------------------------- backfills


class NewBackfill(msgspec.Struct, frozen=True, gc=False):
    """A backfill to be begun: the planned instants of a job with `from_at <= t < to_at`."""

    job_id: int
    from_at: int
    to_at: int
    order: BackfillOrder
    rate_per_s: int
    most: int  # runs that it creates at most
    instants: int  # in the range


class StoredBackfill(msgspec.Struct, frozen=True, gc=False):
    """A backfill as it stands. What it has still to look at lies in `left_from <= t < left_to`."""

    job_id: int
    number: int  # from 1, per job
    from_at: int
    to_at: int
    order: BackfillOrder
    rate_per_s: int
    most: int
    instants: int
    looked_at: int  # of the instants
    created: int  # of those, how many became runs
    left_from: int
    left_to: int
    state: BackfillState
    reason: str | None  # why it was cancelled, where no person did it
    next_at: int
    created_at: int
    ended_at: int | None


class DueBackfill(msgspec.Struct, frozen=True, gc=False):
    """A backfill whose next batch is due, and its job with the lanes that are held; `due_at` is now."""

    backfill: StoredBackfill
    due: DueJob


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """The record that accounts for an instant: a run, or a mark with the definition that it was planned by."""

    mark: Mark | None = None
    job_version: int = 0
    definition: str = ""


class MarkCut(msgspec.Struct, frozen=True, gc=False):
    """A mark loses instants that become runs. `rest` is what is left of it, oldest first."""

    scheduled_at: int
    rest: tuple[Mark, ...]


class BackfillStep(msgspec.Struct, frozen=True, gc=False):
    """What one batch comes to. Written in one transaction: cuts, runs, then how far the backfill is."""

    left_from: int
    left_to: int
    next_at: int
    looked_at: int = 0
    runs: tuple[NewRun, ...] = ()
    cuts: tuple[MarkCut, ...] = ()
    state: BackfillState = BackfillState.RUNNING
    reason: str | None = None


class BackfillAdvance(msgspec.Struct, frozen=True, gc=False):
    """What one call of `advance` did."""

    backfill: StoredBackfill | None  # None: none was due
    runs: tuple[NewRun, ...]
    next_at: int | None  # when the next batch of any backfill is due


# ---------------------------------------------------------------- leases


class LeasedRun(msgspec.Struct, frozen=True, gc=False):
    """A run in the hands of a worker: what it needs to deliver one attempt."""

    key: RunKey
    token: bytes
    attempt: int
    trigger: Trigger
    job_version: int
    namespace: str
    job_name: str
    job_key: str | None
    definition: str  # of `job_version`
    payload: str | None
    queue: str | None
    lease_until: int
    granted_at: int
    deadline_at: int | None
    late_after: int


class LiveRun(msgspec.Struct, frozen=True, gc=False):
    """A live run as the finish, expiry and cancel decisions see it."""

    key: RunKey
    state: RunState
    trigger: Trigger
    job_version: int
    attempt: int
    lane: int | None
    ready_at: int
    late_after: int
    created_at: int
    first_started_at: int | None
    attempt_started_at: int | None
    deadline_at: int | None
    lease_until: int | None
    worker: str | None
    cancel_requested: bool
    queue: str | None
    payload: str | None
    free_attempts: int = 0  # of `attempt`, how many take nothing from the job's max_attempts
    revived_at: int | None = None  # when a person brought it back
    next_fire_at: int | None = None  # the job's clock; filled for decisions only
    accepted_at: int | None = None  # since then its handler holds it
    streak: Streak | None = None  # of the job's failed runs so far; filled for decisions only


class Finish(msgspec.Struct, frozen=True, gc=False):
    """A worker's word about the attempt it holds."""

    key: RunKey
    token: bytes
    outcome: Outcome


class EndRun(msgspec.Struct, frozen=True, gc=False):
    """The run ends here."""

    state: RunState
    error: str | None = None
    pauses_job: str | None = None  # a reason: the job is paused in the same transaction
    streak: Streak | None = None  # kept for the job from now on; None: what is kept stays


class RetryRun(msgspec.Struct, frozen=True, gc=False):
    """The run waits for its next attempt and keeps its lane. `counts` False gives the attempt number back; `spends`
    False adds the attempt to the run's `free_attempts`.
    """

    ready_at: int
    counts: bool = True
    spends: bool = True


class AcceptRun(msgspec.Struct, frozen=True, gc=False):
    """The handler holds the run from here on, under its callback token, until it reports or `until` passes.

    `until` None: until the run's deadline.
    """

    until: int | None


Verdict = EndRun | RetryRun | AcceptRun


class Completion(msgspec.Struct, frozen=True, gc=False):
    """A handler's word about the end of the work that it accepted. `token` is its callback token."""

    key: RunKey
    token: bytes
    error: str | None = None  # None: it succeeded
    result: Response | None = None  # whatever it wants to be kept


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A sign of life of a handler; without percent and message nothing but that."""

    key: RunKey
    token: bytes
    percent: float | None = None
    message: str | None = None


class FinishResult(StrEnum):
    """What a finish changed."""

    ENDED = "ended"
    WILL_RETRY = "will_retry"
    ACCEPTED = "accepted"  # it goes on in the hands of its handler
    REPEATED = "repeated"  # the same token already finished this attempt: answer as before
    LEASE_LOST = "lease_lost"  # nothing changed
    RUN_TERMINAL = "run_terminal"  # the run had ended by another hand; nothing changed


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The answer to one Finish."""

    key: RunKey
    result: FinishResult
    state: RunState | None = None
    ready_at: int | None = None
    paused_job: str | None = None  # the reason, where this end has paused the job


class LeaseStatus(StrEnum):
    """What a heartbeat or permit found."""

    LIVE = "live"
    LEASE_LOST = "lease_lost"
    CANCEL = "cancel"  # live, and asked to stop
    HELD_BACK = "held_back"  # permit only: the job is not active; give the lease back
    RUN_TERMINAL = "run_terminal"  # told to handlers only: the run has ended


# ---------------------------------------------------------------- views


class RunView(msgspec.Struct, frozen=True, gc=False):
    """A run, live or ended, as users see it. Collapsed marks have `count` > 1 and `until`."""

    key: RunKey
    state: RunState
    trigger: Trigger
    job_version: int
    attempt: int
    created_at: int
    reason: str | None = None  # skip reason
    count: int = 1
    until: int | None = None
    blocked_by: int | None = None
    ready_at: int | None = None
    started_at: int | None = None  # of the first attempt
    attempt_started_at: int | None = None
    finished_at: int | None = None
    duration_us: int | None = None  # of the last attempt
    late: bool = False
    status: int | None = None
    outcome: str | None = None  # OutcomeKind of the last attempt
    error: str | None = None
    worker: str | None = None
    queue: str | None = None
    lane: int | None = None
    cancel_requested: bool = False
    lease_until: int | None = None
    deadline_at: int | None = None
    moved_us: int = 0  # how much later than planned it was to start
    accepted_at: int | None = None  # since then its handler holds it
    progress_percent: float | None = None  # as its handler said, and when
    progress_message: str | None = None
    progress_at: int | None = None


class AttemptView(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a run."""

    attempt: int
    kind: str  # OutcomeKind
    started_at: int
    duration_us: int
    worker: str | None
    status: int | None = None
    error: str | None = None
    response: bytes | None = None  # JSON: headers, body (base64), truncated


class RunFilter(msgspec.Struct, frozen=True, gc=False):
    """Which runs to look for."""

    job_id: int | None = None
    states: frozenset[RunState] = frozenset()
    late: bool | None = None
    scheduled_from: int | None = None  # inclusive
    scheduled_to: int | None = None  # exclusive


# ---------------------------------------------------------------- the rest


class NodeInfo(msgspec.Struct, frozen=True, gc=False):
    """A process with a dispatcher, or a worker process: its last heartbeat and what it said of itself."""

    name: str
    kind: str  # node | worker
    started_at: int
    seen_at: int
    detail: str = "{}"  # JSON: version, host, pid, capacity, …


class ApiKey(msgspec.Struct, frozen=True, gc=False):
    """An API key at rest: only the SHA-256 of its secret half is kept."""

    key_id: str
    namespace: str
    name: str
    secret_hash: bytes
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None


class SecretVersion(msgspec.Struct, frozen=True, gc=False):
    """One version of a named signing secret, encrypted. It signs until `retires_at`; None is the current one."""

    namespace: str
    name: str
    version: int
    ciphertext: bytes
    created_at: int
    retires_at: int | None = None


class SavedAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer kept under an Idempotency-Key. `status` 0: the first request is still being worked on."""

    fingerprint: bytes
    status: int
    headers: str
    body: bytes


class Counts(msgspec.Struct, frozen=True, gc=False):
    """Cheap figures for health and the first page: live rows counted, history never."""

    jobs_by_state: dict[str, int] = msgspec.field(default_factory=dict)
    pending: int = 0
    running: int = 0
    oldest_ready_at: int | None = None
    next_due_at: int | None = None
