"""`onbeat db backup` and `restore`: a checked copy, its key, and what is refused without anything having changed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import pytest
from tests.cli.conftest import Call

from onbeat.store.sqlite.datafile import DataFileLock

SECRET = ("secrets", "show")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where a data file is to be; nothing is there yet."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "onbeat.sqlite3"


@pytest.fixture
def secret(call: Call, data: Path) -> str:
    """The signing secret of a data file that is there."""
    return call("secrets", "show", "--data", str(data), "--json").out


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where the backup is to be."""
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept" / "monday.sqlite3"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.usefixtures("secret")
def test_a_backup_is_two_files_for_the_owner_only(call: Call, data: Path, kept: Path) -> None:
    shown = call("db", "backup", str(kept), "--data", str(data), "--json")
    assert (shown.code, shown.json["file"], shown.json["key"]) == (0, str(kept), f"{kept}.key")
    assert sorted(files(kept.parent)) == ["monday.sqlite3", "monday.sqlite3.key"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept.parent.iterdir()] == [0o600, 0o600]
    assert shown.json["bytes"] == kept.stat().st_size


def test_what_is_restored_has_the_same_secret(call: Call, data: Path, secret: str, kept: Path, tmp_path: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    elsewhere = tmp_path / "elsewhere.sqlite3"
    shown = call("db", "restore", str(kept), "--data", str(elsewhere), "--json")
    assert (shown.code, shown.json["key"]) == (0, f"{elsewhere}.key")
    assert call("secrets", "show", "--data", str(elsewhere), "--json").out == secret
    assert call("db", "check", "--data", str(elsewhere)).code == 0


@pytest.mark.usefixtures("secret")
def test_nothing_is_replaced_without_force(call: Call, data: Path, kept: Path) -> None:
    kept.write_text("something else")
    before = files(kept.parent)
    refused = call("db", "backup", str(kept), "--data", str(data))
    assert (refused.code, "--force" in refused.err, files(kept.parent)) == (2, True, before)
    assert call("db", "backup", str(kept), "--data", str(data), "--force").code == 0
    whole = files(data.parent)
    refused = call("db", "restore", str(kept), "--data", str(data))
    assert (refused.code, "--force" in refused.err) == (2, True)
    assert {name: content for name, content in files(data.parent).items() if not name.endswith(".lock")} == {
        name: content for name, content in whole.items() if not name.endswith(".lock")
    }
    assert call("db", "restore", str(kept), "--data", str(data), "--force").code == 0


@pytest.mark.usefixtures("secret")
def test_a_key_of_another_database_is_not_replaced_without_force(call: Call, data: Path, kept: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    other = kept.with_name("other.sqlite3")
    assert call("secrets", "show", "--data", str(other)).code == 0
    other.unlink()
    refused = call("db", "restore", str(kept), "--data", str(other))
    assert (refused.code, f"{other}.key is there already" in refused.err, other.exists()) == (2, True, False)


def test_a_file_in_use_is_not_restored(call: Call, data: Path, secret: str, kept: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    lock = DataFileLock(data)
    try:
        refused = call("db", "restore", str(kept), "--data", str(data), "--force")
    finally:
        lock.release()
    assert (refused.code, f"process {os.getpid()}" in refused.err) == (1, True)
    assert call("secrets", "show", "--data", str(data), "--json").out == secret


@pytest.mark.usefixtures("secret")
def test_a_backup_without_its_key_is_refused_until_the_key_is_there(call: Call, data: Path, kept: Path) -> None:
    shown = call("db", "backup", str(kept), "--data", str(data), "--without-key", "--json")
    assert (shown.json["key"], sorted(files(kept.parent))) == (None, ["monday.sqlite3"])
    elsewhere = kept.with_name("elsewhere.sqlite3")
    refused = call("db", "restore", str(kept), "--data", str(elsewhere))
    assert (refused.code, "field:  master_key" in refused.err, elsewhere.exists()) == (2, True, False)
    kept.with_name(kept.name + ".key").write_bytes(data.with_name(data.name + ".key").read_bytes())
    assert call("db", "restore", str(kept), "--data", str(elsewhere)).code == 0


@pytest.mark.usefixtures("secret")
def test_a_key_that_does_not_open_the_secrets_is_refused(
    call: Call, data: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_MASTER_KEY", "A" * 43 + "=")
    refused = call("db", "backup", str(kept), "--data", str(data))
    assert (refused.code, "another master key" in refused.err, files(kept.parent)) == (2, True, {})


@pytest.mark.usefixtures("secret")
def test_a_damaged_backup_is_refused_and_the_data_file_stays(call: Call, data: Path, kept: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    content = bytearray(kept.read_bytes())
    content[8_192:40_960] = bytes(40_960 - 8_192)
    kept.write_bytes(content)
    before = data.read_bytes()
    refused = call("db", "restore", str(kept), "--data", str(data), "--force")
    assert refused.code in (1, 2, 3)
    assert data.read_bytes() == before
    assert [path.name for path in data.parent.iterdir() if path.name.endswith(".new")] == []


@pytest.mark.parametrize("content", [b"", b"no database, " * 1_000])
def test_what_is_no_backup_is_refused(call: Call, data: Path, kept: Path, content: bytes) -> None:
    kept.write_bytes(content)
    assert call("db", "restore", str(kept), "--data", str(data)).code in (2, 3)
    assert not data.exists()


def test_the_database_of_another_program_is_refused(call: Call, data: Path, kept: Path) -> None:
    database = apsw.Connection(str(kept))
    database.execute("create table notes (text)")
    database.close()
    assert call("db", "restore", str(kept), "--data", str(data)).code == 2
    assert not data.exists()


def test_what_is_not_there_is_said(call: Call, data: Path, kept: Path, tmp_path: Path) -> None:
    assert "there is no data file" in call("db", "backup", str(kept), "--data", str(data)).err
    assert "there is no backup" in call("db", "restore", str(kept), "--data", str(data)).err
    call("secrets", "show", "--data", str(data))
    nowhere = tmp_path / "nowhere" / "copy.sqlite3"
    assert "cannot be written" in call("db", "backup", str(nowhere), "--data", str(data)).err
    assert "the same file" in call("db", "backup", str(data), "--data", str(data), "--force").err
    assert call("db", "backup", str(tmp_path), "--data", str(data), "--force").code == 2


@pytest.mark.usefixtures("secret")
def test_restoring_over_a_file_leaves_nothing_of_its_log(call: Call, data: Path, kept: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    data.with_name(data.name + "-wal").write_bytes(b"of a crash")
    data.with_name(data.name + "-shm").write_bytes(b"of a crash")
    assert call("db", "restore", str(kept), "--data", str(data), "--force").code == 0
    assert sorted(files(data.parent)) == ["onbeat.sqlite3", "onbeat.sqlite3.key", "onbeat.sqlite3.lock"]


@pytest.mark.usefixtures("secret")
def test_restoring_paused_is_said_and_leaves_one_sound_file(call: Call, data: Path, kept: Path) -> None:
    assert call("db", "backup", str(kept), "--data", str(data)).code == 0
    elsewhere = kept.parent / "elsewhere" / "onbeat.sqlite3"
    elsewhere.parent.mkdir()
    shown = call("db", "restore", str(kept), "--paused", "--data", str(elsewhere), "--json")
    assert (shown.code, shown.json["paused"]) == (0, True)
    assert sorted(files(elsewhere.parent)) == ["onbeat.sqlite3", "onbeat.sqlite3.key", "onbeat.sqlite3.lock"]
    assert call("db", "check", "--data", str(elsewhere)).code == 0
