"""`onbeat db upgrade --citus` as a command. What it does to the tables: tests/store/test_postgres_citus.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cli.conftest import Call
from tests.support.citus import put_stand_in
from tests.support.postgres import MASTER_KEY, Databases


@pytest.mark.slow
def test_command_tells_what_it_did_and_check_knows_it(
    databases: Databases, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", MASTER_KEY)
    with databases.fresh() as url:
        monkeypatch.setenv("ONBEAT_DATA", url)
        refused = call("db", "upgrade", "--citus")
        assert (refused.code, "extension_missing" in refused.err + refused.out) == (1, True)
        assert call("db", "check", "--json").json["distributed"] is False
        asyncio.run(put_stand_in(url))
        assert call("db", "upgrade", "--citus", "--json").json["distributed"] is True
        assert "spread by slot" in call("db", "upgrade").out
        checked = call("db", "check", "--json")
        assert (checked.code, checked.json["distributed"], checked.json["problems"]) == (0, True, [])


def test_data_file_cannot_be_spread(call: Call, tmp_path: Path) -> None:
    refused = call("db", "upgrade", "--citus", "--data", f"{tmp_path}/onbeat.sqlite3", "--json")
    assert refused.code == 2
    assert "PostgreSQL" in refused.err + refused.out
