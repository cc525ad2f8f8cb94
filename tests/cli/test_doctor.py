"""`onbeat doctor` and `onbeat db`: what they find on a machine and in a file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.cli.conftest import Call

from onbeat.cli.data_file import inspect_file
from onbeat.cli.diagnosis import (
    check_data_file,
    check_python,
    check_server,
    check_sqlite,
    check_tzdata,
    read_system_tzdata,
)
from onbeat.store.sqlite.datafile import DataFileLock

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("3.6.23", "ok"),
        ("3.7.0", "bad"),
        ("3.40.1", "bad"),
        ("3.44.5", "bad"),
        ("3.44.6", "ok"),
        ("3.45.0", "bad"),
        ("3.50.6", "bad"),
        ("3.50.7", "ok"),
        ("3.51.2", "bad"),
        ("3.51.3", "ok"),
        ("3.54.1.0", "ok"),
    ],
)
def test_sqlite_with_the_wal_reset_bug_is_bad(version: str, verdict: str) -> None:
    assert check_sqlite(version).verdict == verdict


def test_old_python_is_bad() -> None:
    assert check_python((3, 10, 9)).verdict == "bad"
    assert check_python((3, 11, 0)).verdict == "ok"


def test_zone_data_older_than_the_systems_is_a_warning(tmp_path: Path) -> None:
    zones = tmp_path / "tzdata.zi"
    zones.write_text("# version 2026b\n# This zic input file is in the public domain.\n")
    assert read_system_tzdata(zones) == "2026b"
    assert read_system_tzdata(tmp_path / "nothing") is None
    assert check_tzdata("2026a", system="2026b").verdict == "warn"
    assert check_tzdata("2026b", system="2026b").verdict == "ok"
    assert check_tzdata("2026b", system=None).verdict == "ok"


def test_doctor_is_well_on_a_fresh_machine_and_creates_nothing(call: Call, tmp_path: Path) -> None:
    data = tmp_path / "onbeat.sqlite3"
    shown = call("doctor", "--data", str(data), "--server", NOBODY, "--json")
    assert (shown.code, shown.err) == (0, "")
    assert shown.json["ok"] is True
    assert {check["name"] for check in shown.json["checks"]} >= {"python", "sqlite", "tzdata", "data file", "clock"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b'{"ready": true, "reasons": [], "warnings": []}', "ok"),
        (b'{"ready": true, "reasons": [], "warnings": ["this host\'s clock is 3.0 s ahead"]}', "warn"),
        (b'{"ready": false, "reasons": ["the dispatcher loop fails"], "warnings": []}', "bad"),
        (b"<html>", "warn"),
        (b"[]", "warn"),
    ],
)
def test_doctor_tells_what_the_server_says_of_itself(answer: bytes, verdict: str) -> None:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert check_server(f"http://127.0.0.1:{server.server_port}").verdict == verdict
        server.shutdown()
    assert check_server(NOBODY).verdict == "ok"


def test_doctor_names_who_holds_the_file(tmp_path: Path) -> None:
    data = tmp_path / "onbeat.sqlite3"
    lock = DataFileLock(data)
    try:
        assert (inspect_file(str(data), may_be_missing=True).holder or "").startswith("process ")
    finally:
        lock.release()
    assert inspect_file(str(data), may_be_missing=True).holder is None


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")


def _not_a_database(path: Path) -> None:
    path.write_bytes(b"this is no database at all" * 100)


@pytest.mark.parametrize("make", [_foreign, _not_a_database])
def test_file_of_another_kind_is_bad_and_stays_as_it_is(
    call: Call, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    data = tmp_path / "onbeat.sqlite3"
    make(data)
    before = data.read_bytes()
    (finding,) = check_data_file(str(data))
    assert finding.verdict == "bad"
    assert call("doctor", "--data", str(data), "--server", NOBODY, "--json").code == 1
    assert call("db", "check", "--data", str(data)).code != 0
    assert data.read_bytes() == before


def test_db_check_of_no_file_is_refused(call: Call, tmp_path: Path) -> None:
    shown = call("db", "check", "--data", str(tmp_path / "nothing.sqlite3"))
    assert shown.code == 2
    assert list(tmp_path.iterdir()) == []


def test_db_upgrade_makes_a_file_that_db_check_finds_whole(call: Call, tmp_path: Path) -> None:
    data = str(tmp_path / "onbeat.sqlite3")
    first = call("db", "upgrade", "--data", data, "--json")
    assert (first.code, first.json["from"]) == (0, 0)
    assert call("db", "upgrade", "--data", data, "--json").json["from"] == first.json["to"]
    checked = call("db", "check", "--data", data, "--json")
    assert checked.code == 0
    assert checked.json["problems"] == []
    assert checked.json["schema_version"] == checked.json["newest_schema_version"] == first.json["to"]
