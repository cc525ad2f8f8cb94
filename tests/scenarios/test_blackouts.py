"""A blackout that begins and ends in a running scheduler."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.accounting import planned_instants, recorded_instants
from tests.support.receiver import receiving

from onbeat.cli.main import run


async def test_nothing_fires_between_its_beginning_and_its_end(
    start_server: StartServer, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with receiving() as receiver:
        async with start_server() as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                body = {"name": "ticks", "schedules": [{"every": 1}], "target": {"url": receiver.url}, "tags": ["db"]}
                job = (await http.post("/v1/jobs", json=body)).json()
                await receiver.wait_for(lambda calls: len(calls) >= 1)
                begins = datetime.fromisoformat(receiver.calls[-1].scheduled_at) + timedelta(seconds=2)
                ends = begins + timedelta(seconds=3)
                words = ["blackouts", "put", "short", "--from", _text(begins), "--until", _text(ends), "--tag", "db"]
                assert await asyncio.to_thread(run, [*words, "--server", server.url]) == 0
                assert "short" in capsys.readouterr().out
                await receiver.wait_for(lambda calls: datetime.fromisoformat(calls[-1].scheduled_at) >= ends)
                page = (await http.get("/v1/runs", params={"job": job["id"], "state": "skipped"})).json()
            assert await server.stop() == 0
        (row,) = page["items"]
        assert (row["reason"], row["count"]) == ("blackout", 3)
        assert (row["scheduled_at"], row["until"]) == (_text(begins), _text(ends - timedelta(seconds=1)))
        fired = {datetime.fromisoformat(call.scheduled_at) for call in receiver.calls}
        assert not any(begins <= instant < ends for instant in fired)
        assert {begins - timedelta(seconds=1), ends} <= fired
        assert recorded_instants(data, job["id"]) == planned_instants(data, job["id"])


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
