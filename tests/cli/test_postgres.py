"""The command line on a PostgreSQL database: what it makes of it, and that no password is ever shown."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Call
from tests.support.database import look
from tests.support.postgres import Databases

from onbeat.config import Settings, load_settings
from onbeat.domain.errors import ConfigError
from onbeat.store.database_url import hide_password

NOBODY = "http://127.0.0.1:9"
PASSWORD = "tr0ub4dor"  # of a server that trusts everybody
KEY = base64.b64encode(bytes(32)).decode()


@pytest.fixture
def url(databases: Databases, monkeypatch: pytest.MonkeyPatch, call: Call) -> Iterator[str]:
    """An empty database of onbeat's, as the setting `data` names it."""
    with databases.fresh() as fresh:
        with_password = fresh.replace("onbeat@", f"onbeat:{PASSWORD}@")
        monkeypatch.setenv("ONBEAT_DATA", with_password)
        monkeypatch.setenv("ONBEAT_MASTER_KEY", KEY)
        yield with_password


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    "command",
    [
        ("db", "check"),
        ("db", "check", "--json"),
        ("db", "upgrade"),
        ("doctor", "--server", NOBODY),
        ("doctor", "--server", NOBODY, "--json"),
        ("keys", "create", "--name", "ops", "--scope", "admin"),
        ("keys", "list"),
        ("secrets", "rotate", "other"),
        ("secrets", "list"),
        ("secrets", "show"),
    ],
)
def test_commands_on_the_database_work_without_a_word_of_its_password(call: Call, command: tuple[str, ...]) -> None:
    shown = call(*command)
    assert (shown.code, shown.err) == (0, "")
    assert PASSWORD not in shown.out


def test_doctor_tells_server_schema_partitions_and_clock(call: Call, url: str) -> None:
    checks = {check["name"]: check for check in call("doctor", "--server", NOBODY, "--json").json["checks"]}
    for name in ("database", "server", "durability", "schema", "partitions", "database clock"):
        assert checks[name]["verdict"] == "ok", checks[name]
    assert hide_password(url) in checks["database"]["found"]


def test_doctor_tells_of_a_copy_that_has_not_finished(call: Call, url: str) -> None:
    look(url, "update meta set unfinished_copy = 'of one that was killed' returning 1")
    shown = call("doctor", "--server", NOBODY, "--json")
    checks = {check["name"]: check for check in shown.json["checks"]}
    assert (shown.code, checks["schema"]["verdict"], "db copy" in checks["schema"]["found"]) == (1, "bad", True)


def test_upgrade_says_from_and_to_and_again_changes_nothing(call: Call, databases: Databases) -> None:
    with databases.fresh(has_schema=False) as empty:
        assert call("db", "check", "--data", empty, "--json").json["schema_version"] == 0
        shown = call("db", "upgrade", "--data", empty, "--json")
        newest = shown.json["to"]
        assert (shown.code, shown.json["from"]) == (0, 0)
        assert call("db", "upgrade", "--data", empty, "--json").json == {
            "from": newest,
            "to": newest,
            "distributed": False,
        }
        assert call("db", "check", "--data", empty, "--json").json["problems"] == []


@pytest.mark.parametrize(
    "broken",
    [
        f"postgresql://onbeat:{PASSWORD}@127.0.0.1:1/onbeat",
        f"postgresql://onbeat:{PASSWORD}/x@127.0.0.1/onbeat",
        f"postgresql://onbeat:{PASSWORD}#x@127.0.0.1/onbeat",
        f"postgresql://onbeat:{PASSWORD}[@127.0.0.1/onbeat",
        f"postgresql://onbeat:{PASSWORD}@127.0.0.1:port/onbeat",
        f"postgresql://onbeat@127.0.0.1:1/onbeat?password={PASSWORD}",
        f"postgresql://onbeat:{PASSWORD}@127.0.0.1:1/onbeat?pooled=yes",
    ],
)
@pytest.mark.usefixtures("url")
def test_a_url_that_leads_nowhere_is_told_without_its_password(
    call: Call, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONBEAT_DATA", broken)
    for command in (("db", "check"), ("keys", "list"), ("doctor", "--server", NOBODY)):
        shown = call(*command)
        assert shown.code in (1, 2, 3)
        assert PASSWORD not in shown.out + shown.err
    assert PASSWORD not in repr(load_settings())


def test_a_password_on_the_command_line_is_refused(call: Call, url: str) -> None:
    for data in (url, f"{hide_password(url)}?password={PASSWORD}"):
        shown = call("db", "check", "--data", data)
        assert shown.code == 2
        assert "ONBEAT_DATA_FILE" in shown.err
        assert PASSWORD not in shown.out + shown.err


def test_the_url_may_stand_in_a_file(tmp_path: Path, url: str) -> None:
    (tmp_path / "data").write_text(url + "\n")
    assert load_settings(environment={"ONBEAT_DATA_FILE": str(tmp_path / "data")}).data == url


@pytest.mark.usefixtures("url")
def test_without_a_master_key_it_says_how_to_make_one(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONBEAT_MASTER_KEY")
    shown = call("secrets", "list")
    assert shown.code == 2
    assert "openssl rand -base64 32" in shown.err


@pytest.mark.usefixtures("url")
def test_another_master_key_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("secrets", "rotate")
    first = call("secrets", "rotate", "other", "--json").json["secret"]
    monkeypatch.setenv("ONBEAT_MASTER_KEY", base64.b64encode(os.urandom(32)).decode())
    for command in (("secrets", "rotate", "third"), ("secrets", "rotate", "other"), ("secrets", "show", "other")):
        shown = call(*command)
        assert shown.code == 2
        assert "another master key" in shown.err
    monkeypatch.setenv("ONBEAT_MASTER_KEY", KEY)
    assert call("secrets", "show", "other", "--json").json["secret"] == first


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@h:5432/d?sslmode=require&password=x", "postgresql://u@h:5432/d"),
        ("postgres://u:p@x@h/d", "postgres://u@h/d"),
        ("postgresql:///d?host=/run", "postgresql:///d"),
        ("PostgreSQL://u:p@h/d", "PostgreSQL://u@h/d"),
        ("./u:p@h.sqlite3", "./u:p@h.sqlite3"),
    ],
)
def test_what_is_shown_of_a_url(text: str, shown: str) -> None:
    assert hide_password(text) == shown


def test_settings_that_are_printed_tell_neither_url_nor_key() -> None:
    settings = Settings(data=f"postgresql://u:{PASSWORD}@h/d", master_key=KEY)
    assert PASSWORD not in f"{settings!r} {settings}"
    assert KEY not in f"{settings!r} {settings}"
    with pytest.raises(ConfigError) as raised:
        load_settings(environment={"ONBEAT_DATA": f"postgresql://u:{PASSWORD}@h/d", "ONBEAT_PORT": "x"})
    assert PASSWORD not in str(raised.value)
