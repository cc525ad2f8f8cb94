"""Takes the locks on jobs that decisions need, in the order that all keep. See "Locks" in `onbeat.store.postgres`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onbeat.store.postgres.database import Connection
from onbeat.store.postgres.queries import load_queries

_QUERIES = load_queries("locks")


async def lock_jobs(connection: Connection, job_ids: Iterable[int], *, slots: int, waits: bool = True) -> set[int]:
    """Lock jobs and their clocks until the transaction ends. Answer: those of them that there are.

    What is decided from them must be read in a later statement. `waits` False is for callers that hold runs already:
    where another transaction holds one of them, LockNotAvailableError makes this one begin anew.
    """
    pairs = sorted((job_id % slots, job_id) for job_id in set(job_ids))
    rows = await connection.fetch(_QUERIES["lock_jobs" if waits else "lock_jobs_nowait"], *_columns(pairs))
    without_clock = sorted((slot, job_id) for slot, job_id, has_clock in rows if not has_clock)
    if without_clock:
        # One may have appeared before the job was locked; none will from now on. It comes after its job here, against
        # the order, so it is not waited for.
        await connection.execute(_QUERIES["lock_clocks_nowait"], *_columns(without_clock))
    return {job_id for _slot, job_id, _has_clock in rows}


async def lock_pauses(connection: Connection, namespaces: Iterable[str]) -> None:
    """Keep the pauses of these namespaces from beginning and ending until the transaction ends."""
    await connection.execute(_QUERIES["lock_pauses_shared"], sorted(set(namespaces)))


async def lock_pauses_alone(connection: Connection, namespace: str) -> None:
    """Wait for all that make jobs of the namespace active, and keep others from it until the transaction ends."""
    await connection.execute(_QUERIES["lock_pauses_alone"], namespace)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [slot for slot, _job_id in pairs], [job_id for _slot, job_id in pairs]
