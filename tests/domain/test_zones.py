"""Zones by name, and the stretches of constant offset that the walk stands on."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest

from onbeat.domain.errors import DefinitionError
from onbeat.domain.offsets import (
    LAST_SECOND,
    LONGEST_BACKWARD_SHIFT_S,
    format_offset,
    next_change,
    offset_at,
    pass_number,
    stretch_at,
)
from onbeat.domain.zones import TZDATA_VERSION, all_zone_names, zone

DAY_S = 86_400


def raw_changes(name: str) -> list[tuple[int, int, int]]:
    """(instant, offset before, offset after) since 1970, read from the TZif file itself."""
    data = resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()

    def counts(at: int) -> tuple[int, ...]:
        return struct.unpack(">6I", data[at + 20 : at + 44])

    isut, isstd, leap, times, types, chars = counts(0)
    second_header = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, times, types, _ = counts(second_header)
    at = second_header + 44
    instants = struct.unpack(f">{times}q", data[at : at + 8 * times])
    indexes = data[at + 8 * times : at + 9 * times]
    at += 9 * times
    offsets = [struct.unpack(">iBB", data[at + 6 * i : at + 6 * i + 6])[0] for i in range(types)]
    changes: list[tuple[int, int, int]] = []
    before = offsets[0]
    for instant, index in zip(instants, indexes, strict=True):
        if offsets[index] != before and instant > 0:
            changes.append((instant, before, offsets[index]))
        before = offsets[index]
    return changes


@pytest.mark.parametrize(
    "name",
    ["UTC", "Europe/Kyiv", "Europe/Kiev", "US/Eastern", "Etc/GMT+5", "EST5EDT", "America/Argentina/Buenos_Aires"],
)
def test_canonical_names_and_links_are_accepted(name: str) -> None:
    assert zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "../../etc/passwd",
        "/usr/share/zoneinfo/UTC",
        "Europe/../UTC",
        "Europe",
        "EST5EDT4",
        "utc+2",
        "UTC+2",
        "+02:00",
        "utc",
        "europe/berlin",
        "Europe/Berlin ",
        "Europe/Berlin\n",
        "Europe/Ber\0lin",
        "CEST",
        "Factory",
        "America/New_Yrok",
        "zone.tab",
        "tzdata.zi",
        "x" * 100_000,
        None,
        7,
        b"UTC",
        ["UTC"],
    ],
)
def test_any_other_name_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError) as refusal:
        zone(name)  # type: ignore[arg-type]
    assert refusal.value.reason_code == "timezone_unknown"
    assert refusal.value.field == "timezone"
    assert refusal.value.remedy
    assert len(refusal.value.detail) < 200


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("America/New_Yrok", "America/New_York"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("America/New York", "America/New_York"),
        ("utc", "UTC"),
    ],
)
def test_refusal_suggests_what_was_meant(wrong: str, meant: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        zone(wrong)
    assert f"'{meant}'" in (refusal.value.remedy or "")


def test_every_name_of_the_wheel_loads() -> None:
    assert len(all_zone_names()) > 590
    assert {zone(name).key for name in all_zone_names()} == all_zone_names()
    assert TZDATA_VERSION.startswith("20")


def test_zone_data_never_comes_from_the_system(tmp_path: Path) -> None:
    """A host whose own files say that Berlin is at +09:00 plans the same instants."""
    (tmp_path / "Europe").mkdir()
    tokyo = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "Europe" / "Berlin").write_bytes(tokyo)
    program = "from onbeat.domain.offsets import offset_at; print(offset_at('Europe/Berlin', 1_767_225_600))"
    environment = os.environ | {"PYTHONTZPATH": str(tmp_path), "TZ": "Asia/Tokyo"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "3600"


def test_stretches_begin_exactly_where_the_files_say() -> None:
    for name in all_zone_names():
        for instant, before, after in raw_changes(name):
            found = next_change(name, instant - 1, within_s=1)
            assert found is not None, (name, instant)
            assert (found.start, found.before, found.offset) == (instant, before, after), name
            assert stretch_at(name, instant - 1).offset == before, name


def test_wheel_keeps_what_the_stretches_assume() -> None:
    """Changes lie days apart, and no clock went back by a day or more."""
    for name in all_zone_names():
        changes = raw_changes(name)
        for (earlier, _, _), (later, _, _) in pairwise(changes):
            assert later - earlier > 3 * DAY_S, name
        for _, before, after in changes:
            assert before - after < LONGEST_BACKWARD_SHIFT_S, name


def test_stretches_are_the_same_from_every_instant_inside() -> None:
    for name in ("Africa/Casablanca", "Antarctica/Troll", "Australia/Lord_Howe", "America/New_York"):
        for second in range(1_700_000_000, 1_800_000_000, 911_911):
            stretch = stretch_at(name, second)
            assert stretch.start <= second < stretch.end
            assert offset_at(name, stretch.start) == offset_at(name, stretch.end - 1) == stretch.offset


def test_offsets_are_known_up_to_the_end_of_year_9999() -> None:
    assert offset_at("Pacific/Kiritimati", LAST_SECOND) == 14 * 3600
    assert stretch_at("Pacific/Kiritimati", LAST_SECOND).end > LAST_SECOND
    assert next_change("America/New_York", LAST_SECOND - DAY_S, within_s=400 * DAY_S) is None


def test_pass_number_tells_the_two_passes_of_an_overlap() -> None:
    change = 1_762_063_200  # 2025-11-02T06:00:00Z
    seconds = (change - 3601, change - 3600, change - 1, change, change + 3599, change + 3600)
    passes = [pass_number("America/New_York", second) for second in seconds]
    assert passes == [None, 1, 1, 2, 2, None]


def test_offsets_with_seconds_are_written_out() -> None:
    assert format_offset(offset_at("Africa/Monrovia", 0)) == "-004430"
    assert [format_offset(offset) for offset in (0, 3600, -14400, 20700)] == ["+0000", "+0100", "-0400", "+0545"]
