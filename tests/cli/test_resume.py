"""`onbeat jobs resume --replay` against a running server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.api.bodies import Json, outcome, queue_job
from tests.cli.conftest import Call
from tests.cli.servers import started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with started("dev", "--data", "onbeat.sqlite3", "--port", "0", cwd=tmp_path) as process:
        yield process.url
        assert process.stop() == 0


def paused_by_failures(server: str, key: str) -> None:
    """A job with that key, which has paused by itself."""
    job: Json = queue_job(key=key, retry={"max_attempts": 1}, auto_pause={"failures": 2})
    job_id = httpx.post(f"{server}/v1/jobs", json=job).json()["id"]
    for _ in range(2):
        assert httpx.post(f"{server}/v1/jobs/{job_id}/trigger", json={}).status_code == 201
        (run,) = httpx.post(f"{server}/v1/runs/claim", json={"worker": "w", "queue": "mail"}).json()["runs"]
        report = {"runs": [outcome(run, "handler_error", error="no")]}
        assert httpx.post(f"{server}/v1/runs/finish", json=report).json()["runs"][0]["state"] == "failed"


def test_a_job_is_resumed_with_what_failed(call: Call, server: str) -> None:
    at = ("--server", server)
    paused_by_failures(server, "one")
    shown = call("jobs", "resume", "one", "--replay", "failed", *at)
    assert shown.code == 0
    lines = [line.split(maxsplit=3) for line in shown.out.splitlines()]
    assert ["runs", "brought", "back", "2"] in lines
    assert ["failed", "runs", "left", "0"] in lines
    again = call("jobs", "resume", "one", "--replay", "failed", "--json", *at).json
    assert (again["state"], again["replayed"]) == ("active", {"count": 0, "left": 0})
    assert "replayed" not in call("jobs", "resume", "one", "--json", *at).json


def test_jobs_that_a_filter_finds_are_resumed_with_what_failed(call: Call, server: str) -> None:
    at = ("--server", server)
    for key in ("one", "two"):
        paused_by_failures(server, key)
    resumed = call("jobs", "bulk", "resume", "--state", "paused", "--replay", "failed", *at)
    assert (resumed.code, resumed.out) == (0, "2 done, 0 unchanged, 0 refused\n")
    assert len(call("runs", "list", "--state", "pending", "--json", *at).json["items"]) == 4
