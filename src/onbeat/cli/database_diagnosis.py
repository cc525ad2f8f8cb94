"""What `onbeat doctor` and `onbeat db` say of a PostgreSQL database. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from onbeat.cli.findings import Finding, judge_skew
from onbeat.domain.errors import OnbeatError
from onbeat.store.database_url import hide_password
from onbeat.store.postgres.inspection import DatabaseFacts, inspect_database
from onbeat.store.postgres.partitions import DAYS_AHEAD

OLDEST_SERVER: Final = 140_000


def check_database(url: str, *, now_us: Callable[[], int]) -> list[Finding]:
    """Does it answer, can it be trusted with what it is given, and does it fit this onbeat?"""
    try:
        facts = asyncio.run(inspect_database(url))
    except OnbeatError as error:
        return [Finding("database", "bad", f"{hide_password(url)}: {error.detail}", error.remedy)]
    skew_s = abs(facts.now - now_us()) / 1e6
    return [
        Finding("database", "ok", f"{hide_password(url)}, {facts.size:,} bytes"),
        check_server(facts),
        check_durability(facts),
        check_schema(facts),
        check_partitions(facts),
        judge_skew("database clock", skew_s, other="this host; the database's clock decides"),
    ]


def check_server(facts: DatabaseFacts) -> Finding:
    """New enough, and one that takes writes?"""
    found = f"PostgreSQL {facts.server_version}"
    if facts.server_version_number < OLDEST_SERVER:
        return Finding("server", "bad", found, "onbeat needs PostgreSQL 14 or newer")
    if facts.is_standby:
        return Finding("server", "bad", f"{found}, a standby", "name the primary in the URL")
    return Finding("server", "ok", found)


def check_durability(facts: DatabaseFacts) -> Finding:
    """Is what was written there after a power cut?"""
    if facts.unsafe_settings:
        found = ", ".join(f"{name} = off" for name in facts.unsafe_settings)
        return Finding("durability", "bad", found, "turn it on: fires that were acknowledged may be lost without it")
    return Finding("durability", "ok", "commits survive a power cut")


def check_schema(facts: DatabaseFacts) -> Finding:
    """Does it fit this onbeat?"""
    schema, newest = facts.schema, facts.newest_schema_version
    known = f"version {schema.version}; this onbeat knows {newest}"
    if not schema.version:
        return Finding("schema", "ok", "none yet; the first `onbeat serve` or `onbeat db upgrade` makes it")
    if schema.is_half_copied:
        found = "`onbeat db copy` fills the database, and has not finished"
        return Finding("schema", "bad", found, "wait for it, or run the same copy again")
    if schema.serves_from > newest:
        return Finding("schema", "bad", known, "start the newer onbeat that upgraded this database")
    if schema.version < newest:
        return Finding("schema", "warn", known, "run `onbeat db upgrade` before nodes of this version start")
    return Finding("schema", "ok", known)


def check_partitions(facts: DatabaseFacts) -> Finding:
    """Has history a place for what comes?"""
    if facts.days_ahead is None:
        return Finding("partitions", "ok", "none yet")
    found = f"history has partitions for {facts.days_ahead} of the next {DAYS_AHEAD + 1} days"
    if facts.days_ahead <= DAYS_AHEAD // 2:
        return Finding("partitions", "warn", found, "see postgresql.md, Retention: a lock may be in the way")
    return Finding("partitions", "ok", found)
