"""Calendars in a running scheduler: by the command line, and what a change does at once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.scenarios.conftest import StartServer
from tests.support.receiver import receiving

from onbeat.cli.main import run

ICS = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:x\r\nDTSTART;VALUE=DATE:20301225\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"


async def test_a_job_waits_for_the_day_that_its_calendar_leaves_open(
    start_server: StartServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with receiving() as receiver, start_server() as server:
        assert await server.wait_ready()

        async def call(*words: str) -> tuple[int, str]:
            code = await asyncio.to_thread(run, [*words, "--server", server.url])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        # Three days, so that a test over midnight sees the same.
        today = datetime.fromtimestamp(int(await _now(server.url)), UTC).date()
        closed = f"{today - timedelta(days=1)}..{today + timedelta(days=1)}"
        assert (await call("calendars", "put", "closed", "--date", closed))[0] == 0
        code, out = await call(
            "jobs", "create", "--key", "ticks", "--cron", "* * * * * *", "--exclude", "closed", "--url", receiver.url,
            "--json",
        )  # fmt: skip
        assert code == 0, out
        assert json.loads(out)["next_fire_at"] == f"{today + timedelta(days=2)}T00:00:00Z"
        code, out = await call("jobs", "next", "ticks", "--explain")
        assert "closed" in out

        assert (await call("calendars", "delete", "closed"))[0] == 1
        assert receiver.calls == []
        (tmp_path / "days.ics").write_text(ICS, newline="")
        code, out = await call("calendars", "import", "closed", str(tmp_path / "days.ics"))
        assert code == 0, out
        await receiver.wait_for(lambda calls: len(calls) >= 2)  # the clock was planned again, and the dispatcher woken

        code, out = await call("calendars", "get", "closed")
        assert "2030-12-25" in out
        code, out = await call("calendars", "list")
        assert "closed" in out
        assert (await call("jobs", "delete", "ticks"))[0] == 0
        assert (await call("calendars", "delete", "closed"))[0] == 0


async def _now(url: str) -> float:
    import httpx

    async with httpx.AsyncClient(base_url=url) as http:
        date = (await http.get("/healthz")).headers["date"]
    return datetime.strptime(date, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC).timestamp()
