"""`onbeat db copy`: what it prints, says of the master key, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Call
from tests.support.postgres import Databases

from onbeat.store.moving import MOVED_TABLES


@pytest.fixture
def url(databases: Databases) -> Iterator[str]:
    with databases.fresh() as fresh:
        yield fresh


@pytest.fixture
def path(call: Call, tmp_path: Path) -> Path:
    """A data file with a signing secret and a key file beside it."""
    made = tmp_path / "onbeat.sqlite3"
    assert call("secrets", "show", "--data", str(made)).code == 0
    return made


def test_a_data_file_is_copied_with_its_secret_and_the_key_file_is_named(
    call: Call, path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = call("secrets", "show", "--data", str(path)).out
    shown = call("db", "copy", str(path), url)
    assert (shown.code, f"ONBEAT_MASTER_KEY_FILE={path}.key" in shown.out) == (0, True)
    assert {table.name for table in MOVED_TABLES} <= set(shown.out.split())
    monkeypatch.setenv("ONBEAT_MASTER_KEY_FILE", f"{path}.key")
    assert call("secrets", "show", "--data", url).out == secret
    back = path.with_name("back.sqlite3")
    shown = call("db", "copy", url, str(back), "--json")
    assert (shown.code, shown.err, shown.json["master_key_file"]) == (0, "", None)
    assert shown.json["rows"] == sum(table["rows"] for table in shown.json["tables"]) > 0
    assert call("secrets", "show", "--data", str(back)).out == secret


def test_what_cannot_be_copied_is_refused(call: Call, path: Path, url: str, tmp_path: Path) -> None:
    for source, target, word in (
        (str(tmp_path / "none.sqlite3"), url, "there is no data file"),
        (str(path), str(tmp_path / "b.sqlite3"), "or back"),
        (str(path), url.replace("onbeat@", "onbeat:tr0ub4dor@"), "PGPASSWORD"),
    ):
        refused = call("db", "copy", source, target)
        assert (refused.code, word in refused.err, "tr0ub4dor" in refused.err) == (2, True, False), refused.err


def test_a_full_target_is_replaced_only_with_force(call: Call, path: Path, url: str) -> None:
    assert call("db", "copy", str(path), url).code == 0
    refused = call("db", "copy", str(path), url)
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert call("db", "copy", str(path), url, "--force").code == 0
