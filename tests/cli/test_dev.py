"""The first run: `onbeat dev --demo`, what it prints, and every line that it tells a newcomer to paste."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Call
from tests.cli.servers import DEADLINE_S, Started, started


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One demo for the whole module: it takes a second to start."""
    directory = tmp_path_factory.mktemp("demo")
    with started("dev", "--demo", "--port", "0", cwd=directory) as server:
        server.wait_for("Fires, as they happen")
        yield server


def test_demo_shows_fires_with_their_lag_and_a_verified_signature(demo: Started) -> None:
    fire = demo.wait_for(r"demo every 5s .* (run_\w{26}) .*lag +(\d+\.\d) ms +20\d .*signature ok")
    assert len(fire[1]) == 30
    demo.wait_for(r"demo cron .* lag .* signature ok")


def test_demo_says_what_dev_allows(demo: Started) -> None:
    demo.wait_for("No API keys.*this machine only.*loopback.*http")


def test_every_suggested_line_works(demo: Started) -> None:
    url = demo.url
    suggested = [line.strip() for line in demo.lines if line.startswith("  ") and not line.strip().startswith("#")]
    commands = [line for line in suggested if line.split()[0].endswith(("onbeat", "curl"))]
    assert len(commands) == 5
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in commands:
        if command.startswith("curl") and shutil.which("curl") is None:
            continue
        if "--follow" in command:
            _follow_until_first_line(command, path=search)
            continue
        shown = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            env={"PATH": search},
            timeout=DEADLINE_S,
            check=False,
        )
        assert shown.returncode == 0, (command, shown.stderr)
        assert '"code"' not in shown.stdout, (command, shown.stdout)
    demo.wait_for(r"hello .* signature ok")
    assert url in "".join(commands)


def _follow_until_first_line(command: str, *, path: str) -> None:
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, text=True, env={"PATH": path})
    assert process.stdout is not None
    try:
        assert "run_" in process.stdout.readline()
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)


def test_job_made_by_hand_runs_and_is_told_in_every_view(demo: Started, call: Call) -> None:
    server = ("--server", demo.url)
    receiver = demo.wait_for(r"receiver at (\S+)")[1]
    made = call(
        "jobs", "create", "--key", "mine", "--name", "mine \x1b]0;x\x07", "--every", "1d",
        "--url", receiver, "--payload", '{"a": 1}', "--tag", "t", *server, "--json",
    )  # fmt: skip
    assert made.code == 1  # a control character in a name
    assert "name" in made.err
    made = call(
        "jobs", "create", "--key", "mine", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--grace", "1m",
        "--url", receiver, "--payload", '{"a": 1}', "--tag", "t", *server, "--json",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert made.json["grace_s"] == 60
    run = call("jobs", "trigger", "mine", *server, "--json").json
    demo.wait_for(f"{run['id']} .* signature ok")
    assert call("runs", "get", run["id"], *server, "--json").json["state"] == "succeeded"
    shown = call("runs", "list", "--job", "mine", *server)
    assert run["id"] in shown.out
    assert "Europe/Berlin" in shown.out
    assert call("runs", "attempts", run["id"], *server, "--json").code == 0
    assert call("runs", "get", run["id"], *server).code == 0
    assert call("jobs", "next", "mine", "--count", "2", *server).out.count("03:00:00") == 2


def test_nodes_and_the_servers_own_word_are_shown(demo: Started, call: Call, tmp_path: Path) -> None:
    (node,) = call("nodes", "--server", demo.url, "--json").json["items"]
    assert (node["state"], node["slots"], node["warnings"]) == ("alive", 256, [])
    assert node["name"] in call("nodes", "--server", demo.url).out
    checks = call("doctor", "--data", str(tmp_path / "onbeat.sqlite3"), "--server", demo.url, "--json").json["checks"]
    assert [check["found"] for check in checks if check["name"] == "server"] == ["does its work"]


def test_job_is_changed_paused_resumed_and_deleted(demo: Started, call: Call) -> None:
    server = ("--server", demo.url)
    assert call("jobs", "create", "--key", "changing", "--every", "1d", "--queue", "mail", *server).code == 0
    changed = call("jobs", "update", "changing", "--name", "other", "--url", "http://127.0.0.1:1/x", *server, "--json")
    assert (changed.json["name"], changed.json["target"]["url"]) == ("other", "http://127.0.0.1:1/x")
    assert call("jobs", "update", "changing", "--name", "late", "--if-version", "1", *server).code == 1
    assert "paused" in call("jobs", "pause", "changing", "--note", "why", *server).out
    assert call("jobs", "list", "--state", "paused", *server, "--json").json["items"][0]["key"] == "changing"
    assert call("jobs", "resume", "changing", *server, "--json").json["state"] == "active"
    assert call("jobs", "list", "--text", "other", *server).code == 0
    assert call("jobs", "delete", "changing", *server).code == 0
    gone = call("jobs", "get", "changing", *server)
    assert (gone.code, gone.out) == (1, "")
    assert "job_not_found" in gone.err


def test_file_of_jobs_is_accepted_line_by_line(demo: Started, call: Call, tmp_path: Path) -> None:
    lines = [
        f'{{"key": "many-{number}", "name": "many", "schedules": [{{"every": "1d"}}], "target": {{"queue": "mail"}}}}'
        for number in range(1_200)
    ]
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join([*lines, lines[0], '{"name": "bad"}']))
    shown = call("jobs", "create", "--from-file", str(path), "--server", demo.url)
    assert shown.code == 1
    assert "1200 created, 2 refused" in shown.out
    assert "job 1201: " in shown.err
    assert "job 1202: " in shown.err


def test_refusal_of_the_server_is_told_with_field_remedy_and_code(demo: Started, call: Call) -> None:
    shown = call(
        "jobs", "create", "--cron", "0 0 30 2 *", "--url", "https://example.com/", "--server", demo.url, "--json"
    )
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("error: ")
    for part in ("field:", "remedy:", "never_fires"):
        assert part in shown.err


@pytest.mark.parametrize("name", ["..", "a/b", "job_../../keys", "job_", "?x", ""])
def test_text_that_names_no_job_never_becomes_a_path(demo: Started, call: Call, name: str) -> None:
    for command in (("jobs", "get"), ("jobs", "delete"), ("runs", "get")):
        shown = call(*command, name, "--server", demo.url)
        assert (shown.code, shown.out) == (2, "")
        assert "id_invalid" in shown.err


def test_follow_ends_with_130_when_interrupted(demo: Started, tmp_path: Path) -> None:
    with started("runs", "list", "--follow", "--server", demo.url, cwd=tmp_path) as following:
        following.wait_for("run_")
        following.process.send_signal(signal.SIGINT)
        assert following.process.wait(timeout=DEADLINE_S) == 130


def test_nobody_there_is_exit_code_3(call: Call) -> None:
    shown = call("jobs", "list", "--server", "http://127.0.0.1:9")
    assert (shown.code, shown.out) == (3, "")
    assert "server_unreachable" in shown.err


@pytest.mark.parametrize("server", ["localhost:8623", "ftp://localhost", "http://", "http://[x", "http://a:b", ""])
def test_text_that_is_no_url_is_bad_input(call: Call, server: str) -> None:
    for command in (("jobs", "list"), ("worker",)):
        shown = call(*command, "--server", server)
        assert (shown.code, shown.out) == (2, "")
        assert "--server" in shown.err


@pytest.mark.parametrize("key", ["schlüssel", "a b", "a\x00", "a\nb"])
def test_text_that_is_no_key_is_bad_input_and_not_shown(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (tmp_path / "key").write_text(key)
    monkeypatch.setenv("ONBEAT_API_KEY_FILE", str(tmp_path / "key"))
    shown = call("jobs", "list")
    assert (shown.code, shown.out) == (2, "")
    assert key not in shown.err


def test_dev_stops_in_order_and_its_file_is_whole(call: Call, tmp_path: Path) -> None:
    with started("dev", "--port", "0", cwd=tmp_path) as server:
        server.wait_for("Fires, as they happen")
        data = tmp_path / "onbeat.sqlite3"
        second = call("secrets", "show", "--data", str(data))
        assert (second.code, str(server.process.pid) in second.err) == (1, True)
        assert server.stop() == 0
    assert call("db", "check", "--data", str(data)).code == 0


def test_served_api_asks_for_a_key(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("--data", str(tmp_path / "onbeat.sqlite3"))
    key = call("keys", "create", "--name", "ops", *data, "--json").json["key"]
    with started("serve", "--port", "0", *data, cwd=tmp_path) as server:
        ask = ("jobs", "list", "--server", server.url, "--json")
        refused = call(*ask)
        assert (refused.code, refused.out) == (4, "")
        (tmp_path / "key").write_text(key + "\n")
        monkeypatch.setenv("ONBEAT_API_KEY_FILE", str(tmp_path / "key"))
        assert call(*ask).json["items"] == []
        made = call("keys", "create", "--name", "more", "--scope", "jobs:read", "--server", server.url, "--json")
        assert made.json["key"].startswith("onb_")
        listed = call("keys", "list", "--server", server.url, "--json").json["items"]
        assert {item["name"] for item in listed} == {"ops", "more"}
        assert call("keys", "revoke", made.json["id"], "--server", server.url).code == 0
        assert call("secrets", "rotate", "--server", server.url, "--json").json["secret"].startswith("whsec_")
        assert call("secrets", "list", "--server", server.url).code == 0
        assert server.stop() == 0
