"""Rows written straight into the database that no API would accept: they park one job each and stop nobody else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import apsw
import httpx
import pytest
from tests.scenarios.conftest import StartServer
from tests.support.receiver import receiving

from onbeat.domain.ids import parse_job_id

GOOD_JOBS = 20


def _schedule(**fields: object) -> str:
    return json.dumps({"schedules": [fields], "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}})


BAD_DEFINITIONS = {
    "misspelt zone": _schedule(kind="cron", expression="* * * * *", timezone="America/New_Yrok"),
    "zone that is a path": _schedule(kind="cron", expression="* * * * *", timezone="../../etc/passwd"),
    "empty zone": _schedule(kind="cron", expression="* * * * *", timezone=""),
    "minute 61": _schedule(kind="cron", expression="61 * * * *", timezone="UTC"),
    "never fires": _schedule(kind="cron", expression="0 0 30 2 *", timezone="UTC"),
    "interval 0": _schedule(kind="every", every_s=0, anchor_at=0),
    "negative interval": _schedule(kind="every", every_s=-5, anchor_at=0),
    "interval that is text": _schedule(kind="every", every_s="5", anchor_at=0),
    "unknown kind": _schedule(kind="sometimes"),
    "unknown field": _schedule(kind="every", every_s=60, anchor_at=0, colour="red"),
    "no schedules": json.dumps({"schedules": [], "target": {"kind": "webhook", "url": "http://127.0.0.1:9/"}}),
    "not JSON": "{",
    "empty": "",
    "a list": "[]",
    "deeply nested": "[" * 5_000,
}


@pytest.mark.parametrize("clock", ["due", "far in the past"])
async def test_bad_rows_park_their_job_and_all_others_run(start_server: StartServer, data: Path, clock: str) -> None:
    async with receiving() as receiver:
        async with start_server() as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url) as http:
                jobs = [
                    {"name": f"good {n}", "schedules": [{"every": 1}], "target": {"url": receiver.url}}
                    for n in range(GOOD_JOBS)
                ] + [
                    {"name": name, "schedules": [{"every": 3_600}], "target": {"url": receiver.url}}
                    for name in BAD_DEFINITIONS
                ]
                items = (await http.post("/v1/jobs:batch", json={"jobs": jobs})).json()["items"]
            assert await server.stop() == 0
        ids = {item["job"]["name"]: item["job"]["id"] for item in items}
        database = apsw.Connection(str(data))
        for name, definition in BAD_DEFINITIONS.items():
            number = parse_job_id(ids[name])
            database.execute("update jobs set definition = ? where job_id = ?", (definition, number))
            database.execute(
                "update clocks set next_fire_at = ? where job_id = ?",
                (0 if clock != "due" else 1_700_000_000_000_000, number),
            )
        database.close()

        seen = len(receiver.calls)
        async with start_server() as server:
            assert await server.wait_ready()
            good = {ids[f"good {n}"] for n in range(GOOD_JOBS)}
            await receiver.wait_for(lambda calls: good <= {call.headers["onbeat-job"] for call in calls[seen:]})
            async with httpx.AsyncClient(base_url=server.url) as http:
                for name in BAD_DEFINITIONS:
                    job = (await http.get(f"/v1/jobs/{ids[name]}")).json()
                    assert job["state"] == "error", name
                    assert job["reason"], name
                    assert job["next_fire_at"] is None
                mended = await http.patch(
                    f"/v1/jobs/{ids['interval 0']}",
                    json={"schedules": [{"every": 1}], "target": {"url": receiver.url}},
                )
                assert (mended.status_code, mended.json()["state"]) == (200, "active"), mended.text
            await receiver.wait_for(
                lambda calls: any(call.headers["onbeat-job"] == ids["interval 0"] for call in calls[seen:])
            )
            assert await server.stop() == 0
        log = await asyncio.to_thread((data.parent / "server.log").read_text)
        assert log.count("job_parked") == len(BAD_DEFINITIONS)  # once each: no flood
