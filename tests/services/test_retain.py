"""History ends with its retention, and nothing younger goes with it."""

from __future__ import annotations

from tests.support.scheduler import START, every, scheduling

from onbeat.services.retain import Retain
from onbeat.store.values import NodeInfo, Page, RunFilter

DAY_S = 86_400


async def test_ended_runs_go_after_their_retention_and_not_before(data: str) -> None:
    async with scheduling(data) as scheduler:
        await scheduler.job(every(DAY_S))
        retain = Retain(store=scheduler.store, clock=scheduler.clock, keep_s=30 * DAY_S)
        for _ in range(40):
            scheduler.clock.advance(DAY_S)
            await scheduler.settle()
        while await retain.prune():
            pass
        runs = await scheduler.runs.find(RunFilter(), Page(limit=100), namespace="default")
        assert len(runs) == 31  # of the last 30 days, both ends included
        assert min(run.finished_at or 0 for run in runs) >= scheduler.clock.now() - 30 * DAY_S * 1_000_000


async def test_a_process_that_died_is_forgotten_after_a_day(data: str) -> None:
    async with scheduling(data) as scheduler:
        await scheduler.store.nodes.beat(NodeInfo("dead", "node", started_at=START, seen_at=START))
        retain = Retain(store=scheduler.store, clock=scheduler.clock, keep_s=30 * DAY_S)
        scheduler.clock.advance(DAY_S)
        await retain.prune()
        assert [node.name for node in await scheduler.store.nodes.find(seen_after=0)] == ["dead"]
        scheduler.clock.advance(1)
        await retain.prune()
        assert await scheduler.store.nodes.find(seen_after=0) == []
