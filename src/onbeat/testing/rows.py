"""Reads a history's rows out of a store, through its contract: the same for every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onbeat.domain.ids import RunKey
from onbeat.domain.states import RunState
from onbeat.store.contract import Store
from onbeat.store.values import AttemptView, Page, RunFilter, RunView
from onbeat.testing.events import Call, Delivery, History, Planned

PAGE = 1_000
AT_A_TIME = 8
"""Tens of thousands of runs are asked about one by one."""


async def read_history(
    store: Store,
    *,
    planned: Sequence[Planned],
    deliveries: Sequence[Delivery] | None,
    calls: Sequence[Call] = (),
    cut_off: int | None = None,
    disturbed: Sequence[tuple[int, int]] = (),
) -> History:
    """All rows, with what else was recorded. `cut_off` None: the last instant of any plan.

    Nothing may work on the database meanwhile: rows that move between two pages would be read twice or never.
    """
    runs = await _read_runs(store)
    counts = await store.counts()
    return History(
        cut_off=max((at for plan in planned for at in plan.must), default=0) if cut_off is None else cut_off,
        planned=planned,
        runs=runs,
        attempts=await _read_attempts(store, runs),
        deliveries=deliveries,
        calls=calls,
        disturbed=disturbed,
        live_count=counts.pending + counts.running,
    )


async def _read_runs(store: Store) -> list[RunView]:
    runs: list[RunView] = []
    after: tuple[int, ...] | None = None
    while True:
        page = await store.runs.find(RunFilter(), Page(limit=PAGE, after=after))
        runs += page
        if len(page) < PAGE:
            return runs
        after = (page[-1].key.scheduled_at, page[-1].key.job_id)


async def _read_attempts(store: Store, runs: Sequence[RunView]) -> dict[RunKey, list[AttemptView]]:
    """The attempts of these runs, but for those that succeeded at the first and those that had none."""
    asked = [run.key for run in runs if run.attempt > 1 or (run.attempt == 1 and run.state is not RunState.SUCCEEDED)]
    found: dict[RunKey, list[AttemptView]] = {}
    for start in range(0, len(asked), AT_A_TIME):
        keys = asked[start : start + AT_A_TIME]
        found |= zip(keys, await asyncio.gather(*map(store.runs.attempts, keys)), strict=True)
    return found
