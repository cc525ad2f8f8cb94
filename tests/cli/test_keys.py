"""Keys and secrets on the data file, with no server there."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Call

from onbeat.store.sqlite.datafile import DataFileLock


def test_key_is_shown_once_listed_without_its_text_and_revoked(call: Call, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "onbeat.sqlite3"), "--json")
    made = call("keys", "create", "--name", "ops", "--scope", "jobs:read", "--scope", "runs:read", *data).json
    assert made["key"].startswith("onb_")
    listed = call("keys", "list", *data)
    (key,) = listed.json["items"]
    assert (key["id"], key["scopes"], key["revoked_at"]) == (made["id"], ["jobs:read", "runs:read"], None)
    assert made["key"] not in listed.out
    assert call("keys", "revoke", key["id"], *data).code == 0
    assert call("keys", "list", *data).json["items"][0]["revoked_at"] is not None
    assert call("keys", "revoke", key["id"], *data).code == 2


def test_unknown_scope_and_bad_length_are_refused(call: Call, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "onbeat.sqlite3"))
    assert call("keys", "create", "--name", "a", "--scope", "everything", *data).code == 2
    assert call("keys", "create", "--name", "a", "--expires", "later", *data).code == 2


def test_rotated_secret_is_the_one_that_is_shown(call: Call, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "onbeat.sqlite3"), "--json")
    first = call("secrets", "show", *data).json["secret"]
    second = call("secrets", "rotate", *data).json["secret"]
    assert first.startswith("whsec_")
    assert second != first
    assert call("secrets", "show", *data).json["secret"] == second
    listed = call("secrets", "list", *data)
    assert [secret["version"] for secret in listed.json["items"]] == [2, 1]
    assert second not in listed.out
    assert call("secrets", "show", "nobody", *data).code == 2


def test_held_file_without_a_server_to_ask_says_so(call: Call, tmp_path: Path) -> None:
    data = tmp_path / "onbeat.sqlite3"
    lock = DataFileLock(data)
    try:
        shown = call("secrets", "show", "--data", str(data))
    finally:
        lock.release()
    assert shown.code == 1
    assert "process" in shown.err
    assert "data_file_in_use" in shown.err
