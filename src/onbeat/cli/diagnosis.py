"""The checks of `onbeat doctor`. Each looks at one thing and says what to do about it; none changes anything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

import apsw

from onbeat.cli.data_file import inspect_file
from onbeat.cli.database_diagnosis import check_database
from onbeat.cli.findings import Finding, judge_skew
from onbeat.client.api import Api, ServerRefused, ServerUnreachable
from onbeat.clock import host_time_us
from onbeat.domain.errors import OnbeatError
from onbeat.domain.zones import TZDATA_VERSION
from onbeat.store.database_url import is_postgres_url
from onbeat.store.sqlite.datafile import NETWORK_FILESYSTEMS

OLDEST_PYTHON = (3, 11)
WAL_RESET_FIXES = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
"""First releases of each branch without the WAL-reset bug, newest branch first. Source: reliability 1.2."""

DATE_GRAIN_S = 1.0
"""A server tells its time in whole seconds, so a smaller difference says nothing."""

SYSTEM_ZONES = Path("/usr/share/zoneinfo/tzdata.zi")


def diagnose(data: str, *, server: str) -> list[Finding]:
    """Every check, in the order of the table."""
    return [
        check_python(sys.version_info[:3]),
        check_sqlite(apsw.sqlite_lib_version()),
        check_tzdata(TZDATA_VERSION, system=read_system_tzdata(SYSTEM_ZONES)),
        *(check_database(data, now_us=host_time_us) if is_postgres_url(data) else check_data_file(data)),
        check_clock(server, now_us=host_time_us),
        check_server(server),
    ]


def check_python(version: tuple[int, ...]) -> Finding:
    """New enough?"""
    found = ".".join(map(str, version))
    if version < OLDEST_PYTHON:
        return Finding("python", "bad", found, "onbeat needs 3.11 or newer")
    return Finding("python", "ok", found)


def check_sqlite(text: str) -> Finding:
    """Free of the WAL-reset bug, which loses or corrupts writes when two connections checkpoint at once?"""
    version = tuple(int(part) for part in text.split("."))
    is_fixed = version >= WAL_RESET_FIXES[0] or any(
        version[:2] == fix[:2] and version >= fix for fix in WAL_RESET_FIXES[1:]
    )
    if not is_fixed and version >= (3, 7, 0):
        return Finding("sqlite", "bad", f"{text}, with the WAL-reset bug", "upgrade the package apsw: 3.51.3 or newer")
    return Finding("sqlite", "ok", f"{text}, without the WAL-reset bug")


def check_tzdata(used: str, *, system: str | None) -> Finding:
    """As new as the system's? The system's files are never used, but they show that newer rules exist."""
    found = f"{used} is used; the system has {system or 'none'}"
    if system is not None and system > used:
        return Finding("tzdata", "warn", found, "upgrade the package tzdata: zones may have changed their rules")
    return Finding("tzdata", "ok", found)


def read_system_tzdata(path: Path) -> str | None:
    """The release of the system's zone files, such as `2026a`. None: not told."""
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            first = file.readline().strip()
    except OSError:
        return None
    return first.removeprefix("# version ") if first.startswith("# version ") else None


def check_data_file(data: str) -> list[Finding]:
    """Readable, on a local disk, of a known schema? And who holds it?"""
    try:
        file = inspect_file(data, may_be_missing=True)
    except OnbeatError as error:
        return [Finding("data file", "bad", error.detail, error.remedy)]
    found = f"{file.path}, {file.size:,} bytes" if file.exists else f"{file.path} is not there yet"
    findings = [Finding("data file", "ok", found)]
    if file.filesystem in NETWORK_FILESYSTEMS:
        findings.append(Finding("file system", "bad", file.filesystem or "", "put the data file on a local disk"))
    else:
        findings.append(Finding("file system", "ok", file.filesystem or "not told by this system"))
    known = f"version {file.schema_version}; this onbeat knows {file.newest_schema_version}"
    if file.schema_version > file.newest_schema_version:
        findings.append(Finding("schema", "bad", known, "start the newer onbeat that wrote this file"))
    elif file.exists and file.schema_version < file.newest_schema_version:
        findings.append(Finding("schema", "warn", known, "the next start upgrades it, or `onbeat db upgrade`"))
    else:
        findings.append(Finding("schema", "ok", known if file.exists else "no file yet"))
    findings.append(Finding("lock", "ok", f"held by {file.holder}" if file.holder else "free"))
    return findings


def check_clock(server: str, *, now_us: Callable[[], int]) -> Finding:
    """Does this host agree with the server? A server on SQLite takes its own host's clock as the time."""
    before = now_us()
    try:
        with Api(server, timeout_s=3.0) as api:
            told = api.server_date()
    except (ServerUnreachable, ServerRefused):
        return Finding("clock", "ok", f"no server at {server} to compare with; the database's clock decides")
    if told is None:
        return Finding("clock", "ok", f"{server} does not tell its time")
    host_s = (before + now_us()) / 2e6
    skew_s = abs(parsedate_to_datetime(told).timestamp() + DATE_GRAIN_S / 2 - host_s)
    return judge_skew("clock", max(skew_s - DATE_GRAIN_S / 2, 0), other=server)


def check_server(server: str) -> Finding:
    """Does the server do its work, and does it see anything amiss with its own host?"""
    try:
        with Api(server, timeout_s=3.0) as api:
            readiness = api.readiness()
            reasons, warnings = readiness["reasons"], readiness["warnings"]
    except (ServerUnreachable, ServerRefused):
        return Finding("server", "ok", f"no server at {server}")
    except (ValueError, KeyError, TypeError):
        return Finding("server", "warn", f"{server} is perhaps no onbeat server", "name another with --server")
    if reasons:
        return Finding("server", "bad", "; ".join(reasons), "look at its log")
    if warnings:
        return Finding("server", "warn", "; ".join(warnings), "let a time service set the clock of its host")
    return Finding("server", "ok", "does its work")
