"""Records what a store was asked and answered about leases, as JSON lines that survive the death of the process.

`RecordingStore` goes around the real store of one process; each process appends to a file of its own. What ends a lease
is written before the call and what was answered after it, so a process that dies in between leaves the question.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onbeat.clock import host_time_us
from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import OutcomeKind
from onbeat.store.contract import Store
from onbeat.store.values import (
    BackfillAdvance,
    Completion,
    Finish,
    Finished,
    FiredBatch,
    Lease,
    LeasedRun,
    LeaseStatus,
    NewRun,
    RunView,
)
from onbeat.testing.events import (
    Call,
    Conflicted,
    EndAnswered,
    EndAsked,
    Extended,
    Granted,
    ReviveAsked,
    TakenBack,
)

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Call)


class CallLog:
    """An append-only file of calls. Every write goes to the operating system at once: a SIGKILL loses none."""

    def __init__(self, path: Path, *, read_time: Callable[[], int] = host_time_us) -> None:
        self.read_time = read_time
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, calls: Iterable[Call]) -> None:
        """Append these."""
        if lines := b"".join(_ENCODER.encode(call) + b"\n" for call in calls):
            os.write(self._descriptor, lines)

    def close(self) -> None:
        """Nothing is written from now on."""
        os.close(self._descriptor)


def read_calls(paths: Iterable[Path]) -> list[Call]:
    """What these logs hold, each in its own order. A last line that was cut short is no call."""
    calls: list[Call] = []
    for path in paths:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        calls += [_DECODER.decode(line) for line in whole.splitlines()]
    return calls


class RecordingStore:
    """The store, with the calls that grant, extend and end leases recorded. Everything else passes through."""

    def __init__(self, store: Store, log: CallLog) -> None:
        self._store = store
        self.fires = _RecordedFires(store.fires, log)
        self.backfills = _RecordedBackfills(store.backfills, log)
        self.leases = _RecordedLeases(store.leases, log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _RecordedNoun:
    def __init__(self, noun: Any, log: CallLog) -> None:
        self._noun = noun
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noun, name)

    def _write_grants(self, runs: Sequence[LeasedRun], *, asked_at: int) -> None:
        answered_at = self._log.read_time()
        self._log.write(
            Granted(asked_at, answered_at, run.key, run.token, run.attempt, run.lease_until, run.deadline_at)
            for run in runs
        )

    def _write_births(self, job_id: int, runs: Sequence[NewRun], *, asked_at: int) -> None:
        """Runs that were born with the lease that was decided for them."""
        answered_at = self._log.read_time()
        self._log.write(
            Granted(asked_at, answered_at, RunKey(job_id, run.scheduled_at), run.lease.token, 1, run.lease.until)
            for run in runs
            if run.lease is not None
        )


class _RecordedFires(_RecordedNoun):
    async def record_due(self, **named: Any) -> FiredBatch:
        asked_at = self._log.read_time()
        batch: FiredBatch = await self._noun.record_due(**named)
        self._write_grants(batch.leased, asked_at=asked_at)
        if batch.conflicts:
            self._log.write([Conflicted(asked_at, batch.conflicts)])
        return batch

    async def insert_run(
        self, job_id: int, *, now: int, decide: Callable[..., tuple[NewRun, ...]]
    ) -> list[RunView] | None:
        asked_at, decided = self._log.read_time(), list[NewRun]()

        def noted(due: Any) -> tuple[NewRun, ...]:
            runs = decide(due)
            decided[:] = runs
            return runs

        inserted: list[RunView] | None = await self._noun.insert_run(job_id, now=now, decide=noted)
        written = {run.key.scheduled_at for run in inserted or ()}
        self._write_births(job_id, [run for run in decided if run.scheduled_at in written], asked_at=asked_at)
        return inserted


class _RecordedBackfills(_RecordedNoun):
    async def advance(self, **named: Any) -> BackfillAdvance:
        asked_at = self._log.read_time()
        advanced: BackfillAdvance = await self._noun.advance(**named)
        if advanced.backfill is not None:
            self._write_births(advanced.backfill.job_id, advanced.runs, asked_at=asked_at)
        return advanced


class _RecordedLeases(_RecordedNoun):
    async def claim(self, leases: Sequence[Lease], **named: Any) -> list[LeasedRun]:
        asked_at = self._log.read_time()
        runs: list[LeasedRun] = await self._noun.claim(leases, **named)
        self._write_grants(runs, asked_at=asked_at)
        return runs

    async def extend(self, held: Sequence[tuple[RunKey, bytes]], *, now: int, until: int) -> list[LeaseStatus]:
        asked_at = self._log.read_time()
        statuses: list[LeaseStatus] = await self._noun.extend(held, now=now, until=until)
        answered_at = self._log.read_time()
        self._log.write(
            Extended(asked_at, answered_at, key, token, until)
            for (key, token), status in zip(held, statuses, strict=True)
            if status is not LeaseStatus.LEASE_LOST
        )
        return statuses

    async def finish(self, items: Sequence[Finish], **named: Any) -> list[Finished]:
        asked_at = self._log.read_time()
        self._log.write(
            EndAsked(asked_at, item.key, item.token, item.outcome.kind is OutcomeKind.INTERRUPTED) for item in items
        )
        answers: list[Finished] = await self._noun.finish(items, **named)
        answered_at = self._log.read_time()
        self._log.write(
            EndAnswered(asked_at, answered_at, item.key, item.token, answer.result)
            for item, answer in zip(items, answers, strict=True)
        )
        return answers

    async def complete(self, item: Completion, **named: Any) -> Finished:
        asked_at = self._log.read_time()
        self._log.write([EndAsked(asked_at, item.key, item.token, False)])
        answer: Finished = await self._noun.complete(item, **named)
        answered_at = self._log.read_time()
        self._log.write([EndAnswered(asked_at, answered_at, item.key, item.token, answer.result, True)])
        return answer

    async def release(self, held: Sequence[tuple[RunKey, bytes]], *, now: int) -> int:
        asked_at = self._log.read_time()
        self._log.write(EndAsked(asked_at, key, token, True) for key, token in held)
        released: int = await self._noun.release(held, now=now)
        return released

    async def expire(self, **named: Any) -> list[Finished]:
        asked_at = self._log.read_time()
        taken: list[Finished] = await self._noun.expire(**named)
        answered_at = self._log.read_time()
        self._log.write(TakenBack(asked_at, answered_at, answer.key, answer.result) for answer in taken)
        return taken

    async def revive(self, key: RunKey, **named: Any) -> Any:
        self._log.write([ReviveAsked(self._log.read_time(), key)])
        return await self._noun.revive(key, **named)
