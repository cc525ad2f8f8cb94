"""Hand-off: a dispatcher gives runs straight to workers that wait for work, which saves one write per fire.

A worker that found nothing to claim parks here with its free capacity. The dispatcher reserves that capacity before
its transaction, writes the runs already leased, and delivers them after the commit. What was reserved and not used
goes back. Everything here happens on the event loop, except `Reservation.take`, which is called while the dispatcher
waits for its transaction.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from onbeat.store.values import Lease, LeasedRun

TOKEN_BYTES = 16


def new_token() -> bytes:
    """A fencing token: 128 random bits, new for every lease."""
    return secrets.token_bytes(TOKEN_BYTES)


class Parked:
    """A claim that waits. `runs` is resolved once, with what was handed over."""

    __slots__ = ("capacity", "queue", "reserved", "runs", "woken", "worker")

    def __init__(self, worker: str, queue: str | None, capacity: int) -> None:
        self.worker = worker
        self.queue = queue
        self.capacity = capacity
        self.reserved = False
        self.woken = False  # while reserved: looks for itself as soon as the transaction is over
        self.runs: asyncio.Future[list[LeasedRun]] = asyncio.get_running_loop().create_future()


class Reservation:
    """Capacity of parked claims that one transaction may use up."""

    def __init__(self, parked: Sequence[Parked], *, until: int) -> None:
        self.claims = parked
        self._until = until
        self._free = {index: claim.capacity for index, claim in enumerate(parked)}
        self.owners: dict[bytes, Parked] = {}

    def take(self, queue: str | None) -> Lease | None:
        """A lease for one run of `queue`, or None when nobody who waits for it has room."""
        for index, claim in enumerate(self.claims):
            if claim.queue == queue and self._free[index]:
                self._free[index] -= 1
                token = new_token()
                self.owners[token] = claim
                return Lease(token=token, worker=claim.worker, until=self._until)
        return None


class Handoff:
    """Where claims park."""

    def __init__(self) -> None:
        self._parked: list[Parked] = []
        self.closed = False
        self.wakes = 0  # how often runs became claimable: whoever looks notes it first, see `park`

    def close(self) -> None:
        """The process stops: whoever waits goes home, and no claim is answered with work any more."""
        self.closed = True
        self._send_home(self._parked)

    def park(self, worker: str, *, queue: str | None, capacity: int, wakes: int) -> Parked:
        """Wait in line for runs of `queue`.

        `wakes` is this object's count from before the caller looked into the database: runs that became claimable
        between that look and this call would otherwise be noticed only at the next poll.
        """
        claim = Parked(worker, queue, capacity)
        if wakes == self.wakes:
            self._parked.append(claim)
        else:
            claim.runs.set_result([])
        return claim

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
        """Runs of `queue` became claimable: everybody who waits for them looks for himself."""
        self.wakes += 1
        self._send_home([claim for claim in self._parked if claim.queue == queue])

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
        for claim in reservation.claims:
            claim.reserved = False
            batch = batches.get(id(claim))
            if batch is not None and claim.runs.done():
                orphans.extend(batch)
            elif batch is not None:
                self._parked.remove(claim)
                claim.runs.set_result(batch)
            elif claim.woken:
                self._send_home([claim])
        return orphans

    def _send_home(self, claims: Sequence[Parked]) -> None:
        """Answer these claims with nothing; those that a transaction has reserved hear it when it is over."""
        for claim in list(claims):
            if claim.reserved:
                claim.woken = True
            elif claim in self._parked:
                self._parked.remove(claim)
                claim.runs.set_result([])
