"""The reported failures of other schedulers that concern planning (A* of tests/cases/reported.jsonl), run as data.

Each case stands for its kind: what is true of it under any rule is asserted too, at moments around the reported one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onbeat.domain.cron import parse_cron
from onbeat.domain.duration import parse_duration
from onbeat.domain.errors import DefinitionError
from onbeat.domain.instants import format_instant, parse_instant
from onbeat.domain.model import SECOND_US, CronSchedule, EverySchedule, Schedule
from onbeat.domain.offsets import format_local, offset_at
from onbeat.domain.timetable import Timetable, compile_timetable

QUARTER_US = 900 * SECOND_US
CASES_FILE = Path(__file__).parent.parent / "cases" / "reported.jsonl"
CASES: dict[str, dict[str, Any]] = {
    case["id"]: case for case in map(json.loads, CASES_FILE.read_text(encoding="utf-8").splitlines())
}


def schedule_of(case: dict[str, Any]) -> Schedule:
    if "expr" in case:
        return CronSchedule(case["expr"], case["tz"])
    return EverySchedule(parse_duration(case["every"], field="every"), parse_instant(case["anchor"], field="anchor"))


def listed_cases() -> list[Any]:
    found: list[Any] = []
    for name, case in CASES.items():
        if not case["input"]["kind"].startswith("next_fires"):
            continue
        right = case["right"]
        rows = zip(case["input"]["cases"], right["fires_utc"], right["fires_local"], strict=True)
        found += [pytest.param(*row, id=f"{name}-{index}") for index, row in enumerate(rows)]
    return found


@pytest.mark.parametrize(("case", "fires_utc", "fires_local"), listed_cases())
def test_reported_case_fires_as_it_should(case: dict[str, Any], fires_utc: list[str], fires_local: list[str]) -> None:
    table = compile_timetable((schedule_of(case),), job_id=1)
    after = instant = parse_instant(case["after"], field="after")
    found: list[int] = []
    for _ in range(case["n"]):
        following = table.next_after(instant)
        assert following is not None
        found.append(following)
        instant = following
    assert [format_instant(instant) for instant in found] == fires_utc
    for instant, text in zip(found, fires_local, strict=True):
        second = instant // SECOND_US
        offset = offset_at(case["tz"], second)
        assert format_local(second + offset, offset=offset).endswith(text)
    assert table.count(after, found[-1]) == len(found)
    assert list(table.newest(len(found), after, found[-1])) == found


@pytest.mark.parametrize(("case", "fires_utc", "fires_local"), listed_cases())
def test_kind_of_reported_case_holds_around_it(
    case: dict[str, Any], fires_utc: list[str], fires_local: list[str]
) -> None:
    """From every quarter of an hour around: strictly later, the same fires from everywhere, whole minutes."""
    table = compile_timetable((schedule_of(case),), job_id=1)
    after = parse_instant(case["after"], field="after")
    first, last = (parse_instant(fires_utc[end], field="fires") for end in (0, -1))
    previous = 0
    for start in range(after - 40 * QUARTER_US, last, QUARTER_US):
        found = Timetable(table.plans).next_after(start)
        assert found is not None
        assert found > start
        assert found >= previous
        previous = found
        if after <= start:
            assert format_instant(found) in fires_utc
        if after <= start < first:
            assert found == first


@pytest.mark.parametrize("text", CASES["A22"]["input"]["exprs_impossible"])
def test_date_that_never_comes_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        parse_cron(text, job_id=1)
    assert refusal.value.reason_code == "never_fires"


@pytest.mark.parametrize(
    ("case", "instant"),
    list(
        zip(
            CASES["A22"]["input"]["cases_possible"],
            ["2028-02-29T00:00:00Z", "2020-02-29T09:00:00Z", "2029-05-31T00:00:00Z", "2026-03-30T00:00:00Z"],
            strict=True,
        )
    ),
)
def test_rare_date_is_accepted_and_found(case: dict[str, str], instant: str) -> None:
    table = compile_timetable((CronSchedule(case["expr"]),), job_id=1)
    found = table.next_after(parse_instant(case["after"], field="after"))
    assert found is not None
    assert format_instant(found) == instant


READINGS: dict[str, str | None] = {
    "0 30 2 * * *": "0 30 2 * * *",  # seconds first
    "*/15 * * * * *": "*/15 * * * * *",
    "0 0 12 * * ? 2027": None,
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@every 5m": None,
    "@reboot": None,
    "  0   2 * * * ": "0 2 * * *",
    "0 2 * * *\n* * * * *": None,
}


@pytest.mark.parametrize("text", CASES["A26"]["input"]["exprs"])
def test_number_of_fields_decides_the_reading_or_the_refusal(text: str) -> None:
    reading = READINGS[text]
    if reading is not None:
        assert parse_cron(text, job_id=1).plain == reading
        return
    with pytest.raises(DefinitionError) as refusal:
        parse_cron(text, job_id=1)
    assert refusal.value.reason_code == "cron_invalid"
    assert refusal.value.remedy
