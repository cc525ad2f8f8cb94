"""The store's contract: one Protocol per noun. The docstrings are the contract; both engines pass one test-suite.

Rules that hold for every method:
- One call is one transaction. It is either wholly there or not at all, and durable before it returns.
- `now` is µs UTC from the DatabaseClock. No engine reads another clock to decide anything.
- A `decide` callback is pure and quick: it may be called inside the transaction, on another thread, and again
  after a serialisation failure. It must not call the store.
- Runs are addressed by `RunKey`; the engine derives the slot (`job_id % slots`) and puts it in every key.
- Losing a race is a return value. StoreUnavailable is raised when the database does not answer; nothing else escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from onbeat.domain.ids import RunKey
from onbeat.domain.model import DEFAULT_PRIORITY
from onbeat.domain.states import RunState
from onbeat.store.hints import Hint
from onbeat.store.values import (
    ApiKey,
    AttemptView,
    BackfillAdvance,
    BackfillStep,
    Completion,
    Counts,
    DueBackfill,
    DueJob,
    Finish,
    Finished,
    FiredBatch,
    FirePlan,
    JobChange,
    JobFilter,
    KeepClock,
    Lease,
    LeasedRun,
    LeaseStatus,
    LiveRun,
    NewBackfill,
    NewJob,
    NewRun,
    NodeInfo,
    Page,
    Pause,
    Progress,
    Recorded,
    Replanned,
    RunFilter,
    RunView,
    SavedAnswer,
    SecretVersion,
    StoredBackfill,
    StoredBlackout,
    StoredCalendar,
    StoredJob,
    Verdict,
)

RESERVED_FOR_US = 60_000_000
"""How long a request may take to answer under its Idempotency-Key: far longer than any does."""


class Jobs(Protocol):
    """Definitions and their clocks."""

    async def create(self, jobs: Sequence[NewJob], *, now: int) -> list[StoredJob | None]:
        """Write jobs and their clocks, all at version 1. One answer per job, in order.

        A job that a pause covers (see Pauses) is written as paused by it, without a clock.
        None: a job with that key or that `job_id` is there already (in the database, deleted ones too, or earlier in
        this batch), nothing was written for that one.
        """
        ...

    async def get(self, job_id: int) -> StoredJob | None:
        """The job, deleted ones too. None: never existed or pruned."""
        ...

    async def get_by_key(self, namespace: str, key: str) -> StoredJob | None:
        """The job that holds `key` now. Deleted jobs hold no key."""
        ...

    async def find(self, where: JobFilter, page: Page) -> list[StoredJob]:
        """Jobs that are not deleted, newest first: order and cursor are `(created_at desc, job_id desc)`."""
        ...

    async def change(
        self, job_id: int, *, now: int, decide: Callable[[StoredJob], JobChange | None]
    ) -> StoredJob | None:
        """Read a job, decide, write: the only way a job changes. Exceptions of `decide` leave nothing behind.

        `decide` sees `recorded_until` too: the newest instant of the job that has a record. Where a mark would hold an
        instant that has one, it is asked again with `recorded` and its marks are written instead.

        Changes in this order: marks are recorded as ended runs, pending runs are cancelled and running ones asked to
        stop where the change says so, the former definition is kept under its version when the definition changed
        (runs already recorded keep using it), then the job's row and clock. `decide` returning None writes nothing.
        `calendars` replaces the job's uses of calendars; a deleted job uses none.
        A job that would be active though a pause covers it is paused by that one instead, at `now`.
        When the change raises max_running, runs that wait for a lane get one as far as lanes are free.
        A change that writes a state other than paused drops the job's streak (see Leases.finish).
        A taken key raises KeyTaken. Answer: the job after the change; None: no such job.
        """
        ...


class Calendars(Protocol):
    """Named sets of days, and which jobs stand behind them. A job's uses are written by `Jobs.create` and `change`."""

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredCalendar:
        """Create a calendar at version 1, or give it other rules: version + 1, and its jobs wait to be re-planned.

        The same rules again change nothing at all.
        """
        ...

    async def get(self, namespace: str, name: str) -> StoredCalendar | None:
        """None: there is none of that name."""
        ...

    async def find(self) -> list[StoredCalendar]:
        """All calendars of all namespaces, by namespace and name."""
        ...

    async def delete(self, namespace: str, name: str) -> int | None:
        """Delete a calendar that no job uses. Answer: how many jobs use it; 0: it is deleted; None: there is none.

        Users are jobs in any state but deleted.
        """
        ...

    async def replan(
        self, *, now: int, limit: int, revision: int, decide: Callable[[StoredJob], int | KeepClock | None]
    ) -> Replanned:
        """Take up to `limit` jobs of one changed calendar that were not looked at since, by job_id; set their clocks.

        Asked of active and completed jobs only; `decide` sees `recorded_until`, as in `Jobs.change`. An instant moves
        (or starts) the clock and the job is active; None removes the clock and the job is completed; KEEP changes
        nothing. No version is raised, and `updated_at` moves only with the state. Where `decide` raises, that job is
        set to `error` and the others go on.
        How far it came is remembered in the same transaction, so that a crash leaves no job out.
        `revision` is the Store's `almanac_revision` that `decide` knows. Where there is another by now, nothing is
        done though more may wait: what would be decided by former rules would stand as planned anew. No calendar
        changes between that look and the commit.
        """
        ...


class Pauses(Protocol):
    """Pauses of a tag or of everything, and pauses that are over.

    While one has not ended, no job that it covers can become active, and none is created active: `Jobs` sees to it in
    its own transactions. What is left is to pause those that were active when it began.
    """

    async def begin(self, pause: Pause) -> None:
        """Write it. One that is there for the same tag keeps its `paused_at` and has to be spread anew."""
        ...

    async def find(self) -> list[Pause]:
        """All of them, those that end too."""
        ...

    async def note_spread(self, namespace: str, tag: str) -> None:
        """Every job that it covers is paused."""
        ...

    async def end(self, namespace: str, tag: str, *, ended_at: int) -> bool:
        """It covers nothing from now on; its jobs are still to be resumed. False: there is no such pause."""
        ...

    async def drop(self, namespace: str, tag: str) -> None:
        """Forget one that has ended. One that was begun again meanwhile stays."""
        ...

    async def jobs_held_by(self, namespace: str, tag: str, *, limit: int) -> list[int]:
        """Jobs that are paused by it."""
        ...

    async def jobs_over(self, *, now: int, limit: int) -> list[int]:
        """Jobs whose own pause ended by itself: `paused_until <= now`, earliest first."""
        ...


class Blackouts(Protocol):
    """Windows in which no fire becomes a run. The store only keeps them; `decide` callbacks know what they mean."""

    async def put(self, namespace: str, name: str, *, rules: str, now: int) -> StoredBlackout:
        """Create a blackout at version 1, or give it other rules: version + 1. The same rules change nothing."""
        ...

    async def get(self, namespace: str, name: str) -> StoredBlackout | None:
        """None: there is none of that name."""
        ...

    async def find(self) -> list[StoredBlackout]:
        """All blackouts of all namespaces, by namespace and name."""
        ...

    async def delete(self, namespace: str, name: str) -> bool:
        """False: there is none of that name."""
        ...


class Fires(Protocol):
    """A fire becomes a run here, in one transaction with the advance of its clock.

    A job with `after_finish`, while active, has a clock or a live run, and never a clock that lies ahead beside a
    live run: a run that is recorded, by hand or brought back takes the clock away, and where the last live run ends,
    by whatever call, or a plan without a clock leaves none, that transaction sets the clock to `every_us` after
    `now`, rounded up to the whole second, or the job to `completed` where that lies after `until`; and always later
    than the job's newest record.
    """

    async def record_due(
        self,
        *,
        now: int,
        limit: int,
        decide: Callable[[DueJob], FirePlan],
        latest: int = 0,
        only: int | None = None,
        slots: Sequence[int] | None = None,
        in_any_order: bool = False,
    ) -> FiredBatch:
        """Take up to `limit` clocks with `next_fire_at <= now` whose job is active, earliest first; decide; record.
        Where deciding takes long, an engine takes fewer, at least one.

        With `latest`, that many of them are the ones that came due last, taken before the earliest.
        `only` takes the clock of that one job, if it is due, past all that are due before it.
        `slots` takes clocks of these slots alone, and the answer's `next_due_at` is theirs; None: of all slots. A job
        named by `only` may be in any slot.
        `in_any_order`, for a large backlog, takes them in the order that costs the engine least. Each that is due
        has its turn.

        Per job: `replaced` runs end as skipped(overlap) if still pending and unstarted; `cancelled` runs get
        cancel_requested; runs are inserted (a duplicate key is counted in `conflicts` and changes nothing: somebody
        else recorded that fire), and a run that one displaces gives it its lane and waits for one again, if it is
        still pending and unstarted; marks are inserted as ended runs; where one would hold an instant that has a record
        (runs by hand are none), `decide` is asked again with `recorded`, and its marks are written instead; the clock
        moves to the plan's `next_fire_at` (None removes it); state and reason are written.
        A skipped(blackout) mark that follows the job's newest record, itself skipped(blackout) by the same version of
        the job, is added to that range: its `until` and `count` grow, so that a job that is due each second leaves one
        row behind a blackout of hours. If `decide` raises for one job, that job is set to `error` with the exception's
        text, its clock is removed, and the others go on.
        A clock whose job is not active is removed. On PostgreSQL due clocks are locked with SKIP LOCKED.
        """
        ...

    async def insert_run(
        self, job_id: int, *, now: int, decide: Callable[[DueJob], tuple[NewRun, ...]]
    ) -> list[RunView] | None:
        """Record runs that no clock asked for (manual, backfill), with lanes decided from the same transaction.

        `decide` gets the job with `due_at` = now; displaced runs wait as in `record_due`. Runs whose key exists, live
        or ended, are not written and not in the answer. None: no such job.
        """
        ...

    async def next_due_at(self, *, slots: Sequence[int] | None = None) -> int | None:
        """The earliest `next_fire_at` of all clocks, or of those in `slots`. None: no clocks."""
        ...

    async def recovery_places(self) -> list[tuple[int, int]]:
        """`(second, count)`: how many pending runs that were caught up or brought back are ready in which second UTC.
        Asked once, at a start.
        """
        ...


class Backfills(Protocol):
    """Runs of the past that people asked for, batch after batch."""

    async def begin(self, new: NewBackfill, *, now: int) -> StoredBackfill | None:
        """Write it, with its first batch due now. None: another backfill of the job is going on."""
        ...

    async def get(self, job_id: int, number: int) -> StoredBackfill | None:
        """None: there is none of that number."""
        ...

    async def find(self, job_id: int) -> list[StoredBackfill]:
        """All of a job, newest first, at most 100."""
        ...

    async def cancel(self, job_id: int, number: int, *, now: int) -> StoredBackfill | None:
        """It creates nothing from now on. One that has ended stays as it is. None: there is none of that number."""
        ...

    async def look_up(self, job_id: int, instants: Sequence[int]) -> list[Recorded | None]:
        """What accounts for each of these instants, in order. None: nothing does."""
        ...

    async def advance(
        self,
        *,
        now: int,
        choose: Callable[[DueBackfill], tuple[int, ...]],
        decide: Callable[[DueBackfill, Sequence[tuple[int, Recorded | None]]], BackfillStep],
    ) -> BackfillAdvance:
        """Take the backfill whose `next_at <= now` is the earliest: choose instants, look them up, decide, record.

        The marks that lose instants, the runs and how far the backfill came are one transaction. Runs are inserted as
        by `Fires.insert_run`; `created` grows by those whose key was free. If `choose` or `decide` raises, the
        backfill is cancelled with the exception's text.
        """
        ...


class Leases(Protocol):
    """Who may deliver what, until when."""

    async def next_ready_at(self, *, queue: str | None, now: int) -> int | None:
        """The earliest `ready_at` of claimable runs (pending, holding a lane) of `queue`. A read; may be stale.

        An engine need not look again, each time, for what may have become ready long before `now`: such a run is seen
        (by `claim`, too) within 5 s of its commit, and at once where this process wrote it or has heard a hint of it.
        """
        ...

    async def claim(self, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
        """Lease the first runs that are ready, at most one per given lease.

        Those first that stand first in line: by `ready_at`, where each step of priority is worth a minute
        (domain/priority.py).

        Eligible: pending, holding a lane, `ready_at <= now`, of `queue`, not cancelled, job not paused. Becomes
        running: attempt + 1, the lease's token, worker and until, granted_at = now; at its first start also
        first_started_at = now and deadline_at = now + the run's `max_run_us`. (A run born with a lease by `record_due`
        gets the same values from the same rule.)
        """
        ...

    async def extend(self, held: Sequence[tuple[RunKey, bytes]], *, now: int, until: int) -> list[LeaseStatus]:
        """Heartbeat. Runs that are running under exactly that token and whose lease has not ended get
        lease_until = min(until, deadline_at). CANCEL is extended too, so that the worker can report the end.
        """
        ...

    async def permit(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> list[LeaseStatus]:
        """May the attempt begin, though more than 2 s passed since it was granted? LIVE sets granted_at = now.

        LIVE only if the token is current, the lease live, the run not cancelled and the job not paused.
        """
        ...

    async def finish(
        self, items: Sequence[Finish], *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> list[Finished]:
        """Record the end of attempts. One answer per item, in order.

        Only a run that is running under exactly that token, and that no handler has accepted, changes. A succeeded
        outcome of a run that is not cancelled ends it as succeeded without asking; every other outcome is put to
        `decide(run, definition, item)`.
        EndRun: moves to ended_runs with the outcome and leaves its lane; while the job then holds fewer lanes than its
        max_running, the next run that waits for one (schedule-triggered first, then oldest) gets the lowest free lane
        and becomes ready at max(now, its ready_at) (the same wherever a run ends: cancel, expire, change, record_due);
        a `pauses_job` reason pauses the job and removes its clock; `paused_at` is now, or just before the instant that
        the clock showed if that is due and not recorded, so that the pause accounts for it.
        RetryRun: pending again under the same key and lane, at `ready_at`. One that does not count was given back
        before anything was sent: where it was the first, the run has not started and has no deadline. One that does not
        spend raises `free_attempts`.
        `decide` sees the job's clock as the run's `next_fire_at`, and the streak that is kept for the job, read under
        the lock under which it is written (here, in `complete` and in `expire`). An EndRun with a `streak` writes that
        one over it, but not for a deleted job; a run that ends as succeeded drops it. What ends in one call ends at one
        moment: plain successes first. `paused_job` in the answer is the reason, where this end has paused the job.
        AcceptRun: the run goes on in the hands of its handler: the lease's token becomes its callback token
        (domain/callback.py) and lease_until = min(until, deadline_at); workers neither extend nor permit it any more.
        Every attempt that did not succeed and counts is added to `attempts`.
        A run that was asked to stop and that its handler holds is given to the next `expire`: its lease ends at once.
        REPEATED: the same token has already finished this attempt, whatever became of the run. RUN_TERMINAL: ended
        under another token or by cancel. LEASE_LOST: all else. None of these three changes anything.
        """
        ...

    async def complete(
        self, item: Completion, *, now: int, decide: Callable[[LiveRun, str, Finish], Verdict]
    ) -> Finished:
        """Record what the handler of an accepted attempt says of its end: as `finish` does, under the callback token.

        Also before the worker's word that it was accepted, which then comes too late and is REPEATED. The outcome is
        `succeeded`, or `handler_error` which is put to `decide`; it began with the attempt and ended now. The lease's
        own token changes nothing here. Tokens are compared in constant time.
        """
        ...

    async def report(self, item: Progress, *, now: int, decide: Callable[[LiveRun, str], int | None]) -> LeaseStatus:
        """A sign of life under the callback token: where the run was accepted, lease_until = min(decide(),
        deadline_at), None being the deadline. What it says of its progress replaces what it said before.

        LIVE; CANCEL: asked to stop; RUN_TERMINAL: ended, under this token or another; LEASE_LOST: all else. Only LIVE
        changes anything.
        """
        ...

    async def release(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> int:
        """Give leases back unstarted or interrupted: pending, ready at `now`, the attempt does not count.

        A run that was asked to stop, or whose job is deleted, ends as cancelled instead.
        Answer: how many were given back; stale tokens, and runs that a handler accepted, are passed over.
        """
        ...

    async def expire(self, *, now: int, limit: int, decide: Callable[[LiveRun, str], Verdict]) -> list[Finished]:
        """Take up to `limit` running runs whose `lease_until < now` or `deadline_at <= now`, earliest first, decide,
        write as `finish` does. The lost attempt is recorded in `attempts` as `lease_lost` (`timed_out` past the
        deadline). Also takes pending retries whose `deadline_at <= now`, which end as the verdict says.
        """
        ...

    async def count_overdue(self, *, now: int) -> int:
        """How many runs are running although their `deadline_at` has passed: more than 0 only while nobody expires."""
        ...

    async def cancel(self, key: RunKey, *, now: int) -> RunState | None:
        """Pending → cancelled at once, lane passed on. Running → cancel_requested; answer `running`.

        Already ended → its state, unchanged. None: no such run.
        """
        ...

    async def revive(
        self,
        key: RunKey,
        *,
        now: int,
        late_after: int,
        ready_at: int | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> RunState | None:
        """Bring a failed, timed_out, cancelled or unknown run back under its own id.

        It goes from ended_runs to live_runs as pending with `priority`, ready at `ready_at` (None: now), attempt count
        kept, with a lane if one is free (lowest number below the job's max_running), else waiting for one, behind those
        of the schedule. Until it begins it gives its lane to live work, as a caught-up run does. `revived_at` is now
        and all attempts so far are free: it gets as many again. Answer: `pending`, or the unchanged state of a run that
        cannot come back. None: no such run.
        """
        ...


class Runs(Protocol):
    """What became of fires, for people."""

    async def get(self, key: RunKey) -> RunView | None:
        """The live or ended run; for an instant inside a collapsed mark, that mark."""
        ...

    async def find(self, where: RunFilter, page: Page) -> list[RunView]:
        """Live and ended runs, newest planned instant first.

        Order and cursor are `(scheduled_at desc, job_id desc)`.
        """
        ...

    async def find_revivable(self, where: RunFilter, page: Page) -> list[RunView]:
        """Ended runs in the states from which `revive` brings back, of them those of `where`, oldest planned instant
        first.

        Order and cursor are `(scheduled_at, job_id)`.
        """
        ...

    async def last_responses(self, keys: Sequence[RunKey]) -> dict[RunKey, bytes]:
        """What receivers answered to the last finished attempt of these runs, as in `AttemptView.response`. Those
        without an answer are left out.
        """
        ...

    async def attempts(self, key: RunKey) -> list[AttemptView]:
        """Every finished attempt of a run, by number."""
        ...

    async def prune(self, *, ended_before: int, limit: int) -> int:
        """Delete up to `limit` ended runs (and their attempts) that finished before that. Answer: how many.

        PostgreSQL keeps runs in a partition per day UTC of the planned instant. Such a day is dropped whole, however
        many runs it has, once the last of them finished before that, and stays whole until then; in the answer it
        counts for as many as `limit` leaves room for.

        Definitions of former versions that no live run uses, and deleted jobs without runs, go with them, and with
        those jobs their backfills.
        """
        ...


class Nodes(Protocol):
    """Processes that work on this database."""

    async def beat(self, info: NodeInfo) -> None:
        """Write a heartbeat: insert or replace by name."""
        ...

    async def leave(self, name: str) -> None:
        """Remove a node that stops in order."""
        ...

    async def find(self, *, seen_after: int) -> list[NodeInfo]:
        """Nodes and workers seen since, by name."""
        ...

    async def prune(self, *, seen_before: int) -> None:
        """Forget processes that have been silent since before that: those that died leave no word."""
        ...


class Access(Protocol):
    """API keys, signing secrets and answers kept for Idempotency-Keys."""

    async def add_key(self, key: ApiKey) -> None: ...

    async def get_key(self, key_id: str) -> ApiKey | None: ...

    async def find_keys(self) -> list[ApiKey]: ...

    async def revoke_key(self, key_id: str, *, now: int) -> bool:
        """True: revoked now. False: no such key or revoked before."""
        ...

    async def touch_key(self, key_id: str, *, now: int) -> None:
        """Note the key's last use."""
        ...

    async def add_secret(self, secret: SecretVersion, *, retire_others_at: int | None) -> bool:
        """Add a version; every current version of that name retires at `retire_others_at` (None: there is none).

        False: that version is there already, by another hand; nothing was written.
        """
        ...

    async def find_secrets(self, namespace: str, name: str | None = None) -> list[SecretVersion]:
        """Versions of one or all names, newest first."""
        ...

    async def reserve_answer(self, scope: str, key: str, fingerprint: bytes, *, now: int) -> SavedAnswer | None:
        """Reserve an Idempotency-Key. None: it is yours now. Otherwise what is kept under it, maybe status 0.

        A reservation of more than RESERVED_FOR_US ago without an answer is void: whoever made it has died.
        """
        ...

    async def save_answer(self, scope: str, key: str, answer: SavedAnswer) -> None: ...

    async def drop_answer(self, scope: str, key: str) -> None:
        """Give a reservation back after a failure that changed nothing."""
        ...

    async def prune_answers(self, *, before: int, limit: int) -> int: ...


class Store(Protocol):
    """One database."""

    @property
    def jobs(self) -> Jobs: ...

    @property
    def calendars(self) -> Calendars: ...

    @property
    def pauses(self) -> Pauses: ...

    @property
    def blackouts(self) -> Blackouts: ...

    @property
    def fires(self) -> Fires: ...

    @property
    def backfills(self) -> Backfills: ...

    @property
    def leases(self) -> Leases: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def nodes(self) -> Nodes: ...

    @property
    def access(self) -> Access: ...

    @property
    def slots(self) -> int:
        """Number of hash buckets, fixed when the database was created."""
        ...

    @property
    def is_shared(self) -> bool:
        """May other processes write this database meanwhile? Then what one remembers of it can be out of date."""
        ...

    async def listen(self, tell: Callable[[Hint], None]) -> bool:
        """Have `tell` called with the hints of other processes, on this loop. Called again from time to time, it makes
        sure that a connection is there that hears them.

        Other processes hint at runs that became claimable (by record_due, insert_run, release, expire, revive, change),
        clocks that are due within a second (by create, change) and running runs that were asked to stop (by record_due,
        cancel, change): at most once for a transaction, and after its commit.
        False: none are heard, because nobody else writes, a pooler stands in between, or the database does not answer.
        """
        ...

    def hint_to_others(self, are_there: bool) -> None:
        """Whether anybody is there to hear hints. Until it was said, somebody may be."""
        ...

    async def almanac_revision(self) -> int:
        """Grows in the transaction of each change of a calendar or a blackout; the same rules again are none."""
        ...

    async def read_clock(self) -> int:
        """The database's own time, µs UTC."""
        ...

    async def counts(self) -> Counts:
        """Figures for health and the first page; must not walk history."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then let go of the database."""
        ...
