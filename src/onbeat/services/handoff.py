"""Hand-off: a dispatcher gives runs straight to workers that wait for work, which saves one write per fire.

A worker that wants work parks here with its free capacity, and looks into the database while it stands in line. The
dispatcher reserves that capacity before its transaction, writes the runs already leased, and delivers them after the
commit. What was reserved and not used goes back. Everything here happens on the event loop, except `Reservation.take`,
which is called while the dispatcher waits for its transaction.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from typing import overload

from onbeat.services.wake import Wake
from onbeat.store.values import Lease, LeasedRun

TOKEN_BYTES = 16
TOKENS_AT_ONCE = 64
"""Drawn by whoever grants many leases: a call of the system for each would cost more than the rest."""

COMES_BACK_WITHIN_S = 0.25
"""A worker that was given work, and sends it to receivers that answer, is back for more within this. Where none is,
receivers are slow, and nobody waits for them.
"""

HEARD_FOR_S = 1.0
"""What a claim said of itself or of the database holds so long: it looks four times a second while it has reason to,
and says nothing any more when its worker has gone.
"""


def new_tokens(count: int) -> list[bytes]:
    """Fencing tokens: 128 random bits each, new for every lease."""
    drawn = secrets.token_bytes(TOKEN_BYTES * count)
    return [drawn[start : start + TOKEN_BYTES] for start in range(0, len(drawn), TOKEN_BYTES)]


def draw_tokens() -> Iterator[bytes]:
    """One after the other, without end."""
    while True:
        yield from new_tokens(TOKENS_AT_ONCE)


class NewLeases(Sequence[Lease]):
    """So many leases of one worker, each drawn when it is first looked at: a claim asks for as many runs as its worker
    has room for, and mostly finds few.
    """

    def __init__(self, count: int, *, worker: str, until: int) -> None:
        self._count = count
        self._worker = worker
        self._until = until
        self._tokens = draw_tokens()
        self._drawn: list[Lease] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Lease: ...

    @overload
    def __getitem__(self, at: slice) -> list[Lease]: ...

    def __getitem__(self, at: int | slice) -> Lease | list[Lease]:
        wanted = range(self._count)[at]
        last = wanted if isinstance(wanted, int) else max(wanted, default=-1)
        while len(self._drawn) <= last:
            self._drawn.append(Lease(next(self._tokens), self._worker, self._until))
        return self._drawn[wanted] if isinstance(wanted, int) else [self._drawn[number] for number in wanted]


def _now() -> float:
    return asyncio.get_running_loop().time()


def _is_heard(at: float) -> bool:
    return _now() < at + HEARD_FOR_S


class Parked:
    """A claim that waits. `runs` is resolved once, with what was handed over; `wake` says that this happened, or that
    there may be something to claim in the database.
    """

    __slots__ = ("capacity", "leaves", "queue", "reserved", "runs", "wake", "worker")

    def __init__(self, worker: str, queue: str | None, capacity: int) -> None:
        self.worker = worker
        self.queue = queue
        self.capacity = capacity
        self.reserved = False
        self.leaves = False  # while reserved: goes home as soon as the transaction is over
        self.wake = Wake()
        self.runs: asyncio.Future[list[LeasedRun]] = asyncio.get_running_loop().create_future()


class Reservation:
    """Capacity of parked claims that one transaction may use up."""

    def __init__(self, parked: Sequence[Parked], *, until: int) -> None:
        self.claims = parked
        self.owners: dict[bytes, Parked] = {}
        self._until = until
        self._tokens = draw_tokens()
        self._free = {claim: claim.capacity for claim in parked}
        self._lines: dict[str | None, deque[Parked]] = {}
        for claim in parked:
            self._lines.setdefault(claim.queue, deque()).append(claim)

    def take(self, queue: str | None) -> Lease | None:
        """A lease for one run of `queue`, or None when nobody who waits for it has room. Those who wait get runs in
        turn, so that workers share what is due at one moment.
        """
        line = self._lines.get(queue)
        if not line:
            return None
        claim = line[0]
        self._free[claim] -= 1
        if self._free[claim]:
            line.rotate(-1)
        else:
            line.popleft()
        token = next(self._tokens)
        self.owners[token] = claim
        return Lease(token=token, worker=claim.worker, until=self._until)


class Handoff:
    """Where claims park."""

    def __init__(self) -> None:
        self._parked: list[Parked] = []
        self.closed = False
        self.wakes = 0  # how often runs became claimable: whoever looks outside the line compares it
        self._has_answered = False  # since the last reservation
        self._worked_at: dict[str | None, float] = {}  # by queue: when a claim got work, on the event loop's clock
        self._came = Wake()  # a claim stands in line
        self._left_at: dict[str | None, float] = {}  # by queue: when a claim saw runs that were ready
        self._wanted_at: dict[str | None, float] = {}  # by queue: when a claim outside the line found too little
        self.passed_over: set[str | None] = set()  # queues with runs that were ready when others were handed over

    def close(self) -> None:
        """The process stops: whoever waits goes home, and no claim is answered with work any more."""
        self.closed = True
        self._send_home(self._parked)

    def park(self, worker: str, *, queue: str | None, capacity: int) -> Parked:
        """Wait in line for runs of `queue`. Whoever looks into the database looks after this, so that no run becomes
        claimable unnoticed in between.
        """
        claim = Parked(worker, queue, capacity)
        self._parked.append(claim)
        self._came.set()
        return claim

    def note_work(self, queue: str | None) -> None:
        """A claim was answered with work, from here or from the database."""
        self._worked_at[queue] = _now()

    def note_ready(self, queue: str | None, *, is_ready: bool) -> None:
        """What a claim saw in the database when it looked."""
        if is_ready:
            self._left_at[queue] = _now()
        else:
            self._left_at.pop(queue, None)

    @property
    def is_left(self) -> bool:
        """Are there runs that were recorded for nobody and that nobody has taken yet, of every queue whose workers come
        and go?
        """
        left = {queue for queue, at in self._left_at.items() if _is_heard(at)}
        busy = self._busy()
        return bool(busy) and busy <= left

    def note_outside(self, queue: str | None, *, is_filled: bool) -> None:
        """A claim that does not stand in line was answered, with as much as it asked for or with less."""
        self._wanted_at = {name: at for name, at in self._wanted_at.items() if name != queue and _is_heard(at)}
        if not is_filled:
            self._wanted_at[queue] = _now()
            self._came.set()  # whoever waits for room learns that there is some elsewhere

    @property
    def is_wanted_outside(self) -> bool:
        """Would webhooks that are recorded for nobody be taken at once, by a worker that does not stand in line? One
        that is full of slow receivers takes those for others from the database, beyond its capacity.
        """
        at = self._wanted_at.get(None)
        return at is not None and _is_heard(at)

    @property
    def has_idle_queue(self) -> bool:
        """Is there a worker of a queue that has had nothing to do? What is due may be for it."""
        busy = self._busy()
        return any(claim.queue is not None and claim.queue not in busy for claim in self._parked) or any(
            queue is not None and _is_heard(at) for queue, at in self._wanted_at.items()
        )

    def leave(self, claim: Parked) -> None:
        """Stop waiting. Runs that a transaction under way leases to this claim are given back by the dispatcher."""
        if claim in self._parked:
            self._parked.remove(claim)
        if not claim.runs.done():
            claim.runs.cancel()

    def dismiss(self, claim: Parked) -> None:
        """Let one claim go home: at once, or with what a transaction under way gives it."""
        self._send_home([claim])

    def wake(self, queue: str | None) -> None:
        """Runs of `queue` became claimable: everybody who waits for them looks for himself, and stays in line."""
        self.wakes += 1
        for claim in self._parked:
            if claim.queue == queue:
                claim.wake.set()

    def wake_all(self) -> None:
        """Runs became claimable, of whichever queue."""
        self.wakes += 1
        for claim in self._parked:
            claim.wake.set()

    async def line_up(self, *, turns: int) -> None:
        """Let those of this process who were just handed something come back with the capacity that they have left: a
        dispatcher that has more to fire would otherwise always be quicker than they are, and make small batches. In one
        turn of the loop they are back, in more of them they have begun to send.
        """
        if self._has_answered:
            self._has_answered = False
            for _ in range(turns):
                await asyncio.sleep(0)

    async def wait_for_room(self, *, limit_s: float) -> int:
        """How many runs those in line would take, by what they took lately. Where there is no room, wait up to
        `limit_s`, as long as workers come and go and none outside the line would take more: they take a fire with one
        write less than a run that was recorded before they came.
        """
        ends_at = _now() + limit_s
        while not (room := self._room()) and not self.is_wanted_outside:
            left_s = min(ends_at, max(self._worked_at.values(), default=0.0) + COMES_BACK_WITHIN_S) - _now()
            if left_s <= 0:
                break
            await self._came.wait(left_s)
        return room

    def _room(self) -> int:
        # Whoever waits for a queue that has had nothing to do will take none of what is due now either.
        busy = self._busy()
        return sum(
            claim.capacity
            for claim in self._parked
            if not claim.reserved and (claim.queue is None or claim.queue in busy)
        )

    def _busy(self) -> set[str | None]:
        """Queues whose workers come and go."""
        now = _now()
        return {queue for queue, at in self._worked_at.items() if now < at + COMES_BACK_WITHIN_S}

    def reserve(self, *, until: int) -> Reservation:
        """Set aside everything that waits now. `until` is the lease's end for runs handed over."""
        free = [claim for claim in self._parked if not claim.reserved]
        for claim in free:
            claim.reserved = True
        return Reservation(free, until=until)

    def settle(self, reservation: Reservation, leased: Sequence[LeasedRun]) -> list[LeasedRun]:
        """After the transaction: deliver, and let those who got nothing wait on.

        Answer: the runs whose claim has left meanwhile; their leases are to be released.
        """
        batches: dict[int, list[LeasedRun]] = {}
        for run in leased:
            batches.setdefault(id(reservation.owners[run.token]), []).append(run)
        orphans: list[LeasedRun] = []
        if len(batches) < len(reservation.claims):
            self._came.set()  # whoever waits for room found these reserved, by a sweep or for a single job
        for claim in reservation.claims:
            claim.reserved = False
            batch = batches.get(id(claim))
            if batch is not None and claim.runs.done():
                orphans.extend(batch)
            elif batch is not None:
                self._answer(claim, batch)
            elif claim.leaves:
                self._answer(claim, [])
        return orphans

    def _send_home(self, claims: Sequence[Parked]) -> None:
        """Answer these claims with nothing; those that a transaction has reserved hear it when it is over."""
        for claim in list(claims):
            if claim.reserved:
                claim.leaves = True
            elif claim in self._parked:
                self._answer(claim, [])

    def _answer(self, claim: Parked, runs: list[LeasedRun]) -> None:
        self._parked.remove(claim)
        if runs:
            self._has_answered = True
            self.note_work(claim.queue)
        claim.runs.set_result(runs)
        claim.wake.set()
