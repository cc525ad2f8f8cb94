"""`onbeat jobs bulk …` and `onbeat runs bulk …` against a running server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Call
from tests.cli.servers import started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with started("dev", "--data", "onbeat.sqlite3", "--port", "0", cwd=tmp_path) as process:
        yield process.url
        assert process.stop() == 0


def create_jobs(server: str, count: int) -> None:
    jobs = [
        {
            "key": f"job-{number}",
            "name": f"Job {number}",
            "tags": ["even" if number % 2 == 0 else "odd"],
            "schedules": [{"cron": "0 0 1 1 *"}],
            "target": {"queue": "nobody-claims"},
        }
        for number in range(count)
    ]
    assert httpx.post(f"{server}/v1/jobs:batch", json={"jobs": jobs}).json()["created"] == count


def test_jobs_are_counted_paused_over_several_calls_resumed_and_deleted(call: Call, server: str) -> None:
    create_jobs(server, 500)
    at = ("--server", server)
    counted = call("jobs", "bulk", "pause", "--tag", "even", "--dry-run", *at)
    assert (counted.code, counted.out.splitlines()[0]) == (0, "250 found")
    assert len(counted.out.splitlines()) == 12
    paused = call("jobs", "bulk", "pause", "--tag", "even", "--note", "moving", *at)
    assert (paused.code, paused.out) == (0, "250 done, 0 unchanged, 0 refused\n")
    again = call("jobs", "bulk", "pause", "--tag", "even", "--note", "moving", "--json", *at).json
    assert again == {"done": 0, "unchanged": 250, "refused": 0, "problems": []}
    assert call("jobs", "bulk", "resume", "--state", "paused", "--json", *at).json["done"] == 250
    assert call("jobs", "bulk", "add-tag", "new", "--text", "job-49", "--json", *at).json["done"] == 11
    assert call("jobs", "bulk", "remove-tag", "new", "--all", "--json", *at).json["done"] == 11
    assert call("jobs", "bulk", "delete", "--all", "--cancel", *at).out == "500 done, 0 unchanged, 0 refused\n"
    assert call("jobs", "list", "--json", *at).json["items"] == []


def test_runs_are_triggered_and_cancelled(call: Call, server: str) -> None:
    create_jobs(server, 3)
    at = ("--server", server)
    triggered = call("jobs", "bulk", "trigger", "--all", "--payload", json.dumps({"a": 1}), *at)
    assert triggered.out == "3 done, 0 unchanged, 0 refused\n"
    pending = ("runs", "bulk", "cancel", "--state", "pending")
    assert call(*pending, "--job", "job-1", "--dry-run", "--json", *at).json["count"] == 1
    assert call(*pending, "--job", "job-1", *at).out == "1 done, 0 unchanged, 0 refused\n"
    assert call("runs", "bulk", "cancel", "--all", "--json", *at).json["done"] == 2


def test_failed_runs_are_counted_shown_with_the_last_response_and_brought_back(call: Call, server: str) -> None:
    create_jobs(server, 3)
    at = ("--server", server)
    call("jobs", "bulk", "trigger", "--all", *at)
    claim = {"worker": "w", "queue": "nobody-claims", "limit": 10}
    for held in httpx.post(f"{server}/v1/runs/claim", json=claim).json()["runs"]:
        report = {
            "token": held["token"],
            "outcome": "http_status",
            "status": 400,
            "started_at": held["granted_at"],
            "duration_us": 1,
            "response": {
                "headers": [],
                "body": base64.b64encode(b"no\x1b[31m such invoice").decode(),
                "truncated": False,
            },
        }
        assert httpx.post(f"{server}/v1/runs/{held['run_id']}/finish", json=report).json()["result"] == "ended"
    failed = ("runs", "list", "--state", "failed")
    assert call(*failed, "--response", *at).out.count("no such invoice") == 3
    assert "invoice" not in call(*failed, *at).out
    assert call(*failed, "--response", "--follow", *at).code == 2
    retry = ("runs", "bulk", "retry", "--state", "failed")
    assert call(*retry, "--dry-run", *at).out.splitlines()[0] == "3 found"
    assert call(*retry, "--job", "job-1", *at).out == "1 done, 0 unchanged, 0 refused\n"
    assert call("jobs", "bulk", "pause", "--tag", "even", *at).code == 0
    paused = call("runs", "bulk", "retry", "--all", *at)
    assert (paused.code, paused.out) == (1, "0 done, 0 unchanged, 2 refused\n")
    assert "the job is paused (state_conflict)" in paused.err


def test_refusals_are_told_and_make_the_exit_code_1(call: Call, server: str) -> None:
    create_jobs(server, 2)
    at = ("--server", server)
    assert call("jobs", "bulk", "pause", "--tag", "odd", *at).code == 0
    triggered = call("jobs", "bulk", "trigger", "--all", *at)
    assert (triggered.code, triggered.out) == (1, "1 done, 0 unchanged, 1 refused\n")
    assert "(state_conflict)" in triggered.err
    nothing_said = call("jobs", "bulk", "delete", *at)
    assert nothing_said.code == 1
    assert "field_invalid" in nothing_said.err
