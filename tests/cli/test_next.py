"""`onbeat next`: the reported cases, and every refusal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Call

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "cases" / "reported.jsonl").read_text().splitlines()]


def _reported_fires() -> list[Any]:
    return [
        pytest.param(asked, fires, id=f"{case['id']}-{number}")
        for case in CASES
        if case["input"]["kind"] == "next_fires"
        for number, (asked, fires) in enumerate(
            zip(case["input"]["cases"], case["right"]["fires_utc"], strict=True), start=1
        )
    ]


@pytest.mark.parametrize(("asked", "fires"), _reported_fires())
def test_reported_case_fires_as_it_should(call: Call, asked: dict[str, Any], fires: list[str]) -> None:
    shown = call(
        "next", asked["expr"], "--tz", asked["tz"], "--after", asked["after"], "--count", str(asked["n"]), "--json"
    )
    assert shown.code == 0
    assert set(shown.json) == {"fires", "explain"}
    assert shown.json["fires"] == fires
    assert shown.err == ""


@pytest.mark.parametrize("expression", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *", "0 0 31 4,6,9,11 *"])
def test_expression_that_can_never_fire_is_refused(call: Call, expression: str) -> None:
    shown = call("next", expression, "--json")
    assert (shown.code, shown.out) == (2, "")
    assert "never_fires" in shown.err


@pytest.mark.parametrize(
    "expression",
    ["60 * * * *", "*/0 * * * *", "* * * *", "0 0 12 * * ? 2027", "@every 5m", "@reboot", "0 2 * * *\n* * * * *", ""],
)
def test_bad_expression_is_refused_with_a_reason(call: Call, expression: str) -> None:
    shown = call("next", expression, "--json")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: ")
    assert "code:   cron_invalid" in shown.err


@pytest.mark.parametrize("zone", ["", "utc+2", "EST5EDT4", "../../etc/passwd", "Europe/Nowhere"])
def test_unknown_zone_is_refused(call: Call, zone: str) -> None:
    shown = call("next", "@daily", "--tz", zone, "--json")
    assert (shown.code, shown.out) == (2, "")
    assert "timezone_unknown" in shown.err


@pytest.mark.parametrize("after", ["yesterday", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"])
def test_instant_that_is_none_is_refused(call: Call, after: str) -> None:
    shown = call("next", "@daily", "--after", after)
    assert (shown.code, shown.out) == (2, "")
    assert "--after" in shown.err


def test_wrong_usage_is_exit_code_2(call: Call) -> None:
    assert call("next").code == 2
    assert call("next", "@daily", "--count", "0").code == 2
    assert call("nothing").code == 2


def test_words_local_times_and_changes_of_the_clock_are_shown(call: Call) -> None:
    shown = call("next", "30 2 * * *", "--tz", "America/New_York", "--after", "2025-03-08T12:00:00Z", "--count", "2")
    assert "At 02:30 every day" in shown.out
    assert "Sun 2025-03-09 03:00 -0400" in shown.out
    assert "2025-03-09T07:00:00Z" in shown.out
    assert "does not exist" in shown.out


def test_rule_for_changes_of_the_clock_and_bounds_can_be_tried(call: Call) -> None:
    asked = ["30 2 * * *", "--tz", "America/New_York", "--after", "2025-03-08T00:00:00Z", "--json"]
    shown = call("next", *asked, "--dst-gap", "skip", "--end-at", "2025-03-10T02:30")
    assert set(shown.json) == {"fires", "explain"}
    assert shown.json["fires"] == ["2025-03-08T07:30:00Z", "2025-03-10T06:30:00Z"]
    removed = shown.json["explain"]["removed"]
    assert [(instant["at"], instant["local"]) for instant in removed[:2]] == [
        (None, "Sun 2025-03-09 02:30"),
        ("2025-03-11T06:30:00Z", "Tue 2025-03-11 02:30 -0400"),
    ]
    table = call("next", "0,30 2 * * *", *asked[1:-1], "--start-at", "2025-03-09T00:00:00-05:00", "--count", "1")
    assert "moved: Sun 2025-03-09 02:30" in table.out
    assert "Sun 2025-03-09 02:00 does not exist" in table.out
    assert "removed: Sat 2025-03-08 02:30 -0500: before start_at" in table.out


def test_number_of_fires_can_be_tried(call: Call) -> None:
    shown = call("next", "@daily", "--after", "2026-01-01T00:00:00Z", "--max-fires", "2", "--json")
    assert shown.json["fires"] == ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]
    assert shown.json["explain"]["removed"][0]["note"].startswith("max_fires is 2")


def test_overlap_can_be_tried(call: Call) -> None:
    asked = ["next", "30 1 * * *", "--tz", "America/New_York", "--after", "2025-11-02T00:00:00Z", "--json"]
    fires = {
        policy: call(*asked, "--count", "2", "--dst-overlap", policy).json["fires"]
        for policy in ("first", "second", "both")
    }
    assert fires == {
        "first": ["2025-11-02T05:30:00Z", "2025-11-03T06:30:00Z"],
        "second": ["2025-11-02T06:30:00Z", "2025-11-03T06:30:00Z"],
        "both": ["2025-11-02T05:30:00Z", "2025-11-02T06:30:00Z"],
    }


@pytest.mark.parametrize("option", ["--start-at", "--end-at"])
def test_bound_that_is_no_moment_is_refused(call: Call, option: str) -> None:
    shown = call("next", "@daily", option, "soon")
    assert (shown.code, shown.out) == (2, "")
    assert option in shown.err


def test_answer_does_not_depend_on_the_hosts_zone() -> None:
    command = [sys.executable, "-c", "from onbeat.cli.main import main; main()"]
    asked = ["next", "0 * * * *", "--after", "2025-10-05T02:00:00Z", "--count", "2", "--json"]
    for zone in ("Australia/Sydney", "America/Santiago"):
        shown = subprocess.run(
            [*command, *asked], capture_output=True, check=True, env=os.environ | {"TZ": zone}, timeout=30
        )
        assert json.loads(shown.stdout)["fires"] == ["2025-10-05T03:00:00Z", "2025-10-05T04:00:00Z"]


def test_next_loads_neither_server_nor_database_nor_http() -> None:
    check = (
        "import sys; from onbeat.cli.main import run; run(['next', '@daily', '--json']);"
        "print(sorted({'apsw', 'fastapi', 'httpx', 'uvicorn'} & set(sys.modules)), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=30)
    assert shown.stderr.strip() == "[]"
