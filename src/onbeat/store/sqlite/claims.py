"""Leases while they are held: claim, heartbeat, permit, give back."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

import apsw
from msgspec.json import decode

from onbeat.domain.ids import RunKey
from onbeat.domain.priority import place
from onbeat.domain.states import RunState
from onbeat.store.rows import LARGEST, TRIGGERS, Row, decode_rows, encode_rows
from onbeat.store.sqlite.endings import end_as_it_stands, read_live
from onbeat.store.sqlite.lanes import pass_lanes_on
from onbeat.store.sqlite.queries import load_queries
from onbeat.store.values import Lease, LeasedRun, LeaseStatus

_QUERIES = load_queries("leases")

Held = Sequence[tuple[RunKey, bytes]]


def claim(connection: apsw.Connection, leases: Sequence[Lease], *, now: int, queue: str | None) -> list[LeasedRun]:
    """Lease the runs that are ready, the first of them first."""
    claimed: list[LeasedRun] = []
    updates: list[Row] = []
    rows = _first_ready(connection, now=now, queue=queue, limit=len(leases))
    for lease, row in zip(leases, rows, strict=False):
        (
            slot, job_id, scheduled_at, attempt, trigger, job_version, payload, run_queue, late_after, deadline_at,
            namespace, name, key, definition, _ready_at,
        ) = row  # fmt: skip
        until = min(lease.until, deadline_at)
        updates.append((lease.token.hex(), lease.worker, until, deadline_at, slot, job_id, scheduled_at))
        claimed.append(
            LeasedRun(
                RunKey(job_id, scheduled_at), lease.token, attempt + 1, TRIGGERS[trigger], job_version, namespace,
                name, key, definition, payload, run_queue, until, now, deadline_at, late_after,
            )
        )  # fmt: skip
    if updates:
        connection.execute(_QUERIES["lease_runs"], (now, encode_rows(updates)))
    return claimed


def extend(connection: apsw.Connection, held: Held, *, now: int, until: int, slots: int) -> list[LeaseStatus]:
    """Heartbeat."""
    found = _find_leases(connection, held, now=now, slots=slots)
    connection.execute(
        _QUERIES["extend_leases"], (until, _key_rows([held[number][0] for number in found], slots=slots))
    )
    answers = [LeaseStatus.LEASE_LOST] * len(held)
    for number, lease in found.items():
        answers[number] = LeaseStatus.CANCEL if lease.cancel_requested else LeaseStatus.LIVE
    return answers


def permit(connection: apsw.Connection, held: Held, *, now: int, slots: int) -> list[LeaseStatus]:
    """May these attempts still begin?"""
    found = _find_leases(connection, held, now=now, slots=slots)
    answers = [LeaseStatus.LEASE_LOST] * len(held)
    for number, lease in found.items():
        if lease.cancel_requested:
            answers[number] = LeaseStatus.CANCEL
        else:
            answers[number] = LeaseStatus.HELD_BACK if lease.held_back else LeaseStatus.LIVE
    granted = [key for (key, _token), answer in zip(held, answers, strict=True) if answer is LeaseStatus.LIVE]
    connection.execute(_QUERIES["grant_again"], (now, _key_rows(granted, slots=slots)))
    return answers


def release(connection: apsw.Connection, held: Held, *, now: int, slots: int) -> int:
    """Give leases back. A run that was asked to stop, or whose job is deleted, ends as cancelled: nobody starts it.

    One that a handler accepted is not the worker's to give back, whichever token it knows.
    """
    given_back = 0
    freed: list[int] = []
    for key, token in held:
        connection.execute(_QUERIES["release_lease"], (now, key.job_id % slots, key.job_id, key.scheduled_at, token))
        if connection.changes():
            given_back += 1
            continue
        live = read_live(connection, key.job_id, key.scheduled_at, slots=slots)
        if live is not None and live.lease_token == token and live.run.accepted_at is None:
            end_as_it_stands(connection, live, state=RunState.CANCELLED, now=now)
            freed.append(key.job_id)
            given_back += 1
    if freed:
        pass_lanes_on(connection, freed, slots=slots, now=now)
    return given_back


def _first_ready(connection: apsw.Connection, *, now: int, queue: str | None, limit: int) -> list[Row]:
    """The runs that stand first in line. Each priority has its own line by `ready_at`: the beginnings of the lines say
    how many of which are among the first.
    """
    placed: list[tuple[int, Row]] = []
    for priority, count in _counts_by_priority(connection, now=now, queue=queue, limit=limit).items():
        answer = connection.execute(_QUERIES["claimable_runs"], (now, queue, priority, count)).get
        placed += [(place(ready_at=row[-1], standing=priority), row) for row in decode_rows(answer)]
    placed.sort(key=itemgetter(0))
    return [row for _place, row in placed]


def _counts_by_priority(connection: apsw.Connection, *, now: int, queue: str | None, limit: int) -> dict[int, int]:
    priorities: list[int] = []
    below = LARGEST
    while (priority := connection.execute(_QUERIES["next_priority"], (queue, below)).get) is not None:
        priorities.append(priority)
        below = priority
    if len(priorities) <= 1:
        return dict.fromkeys(priorities, limit)
    lines = [
        [
            (place(ready_at=ready_at, standing=priority), priority)
            for ready_at in decode(connection.execute(_QUERIES["line_of_priority"], (queue, priority, now, limit)).get)
        ]
        for priority in priorities
    ]
    first = islice(heapq.merge(*lines, key=itemgetter(0)), limit)
    return Counter(priority for _place, priority in first)


class _Found(NamedTuple):
    cancel_requested: bool
    held_back: bool


def _find_leases(connection: apsw.Connection, held: Held, *, now: int, slots: int) -> dict[int, _Found]:
    """Those that are live, by their number in `held`."""
    rows = [(key.job_id % slots, key.job_id, key.scheduled_at, token.hex()) for key, token in held]
    found = connection.execute(_QUERIES["held_leases"], (encode_rows(rows), now))
    return {number: _Found(bool(cancelled), bool(held_back)) for number, cancelled, held_back in found}


def _key_rows(keys: Iterable[RunKey], *, slots: int) -> str:
    return encode_rows([(key.job_id % slots, *key) for key in keys])
