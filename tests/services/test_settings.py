"""Settings that do not fit together do not start, and say which one it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from onbeat.app.egress import egress_proxy
from onbeat.config import load_settings
from onbeat.domain.errors import ConfigError


def test_a_lease_shorter_than_two_default_heartbeats_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environment={"ONBEAT_LEASE_S": "5"})
    assert raised.value.field == "heartbeat_s"
    assert load_settings(environment={"ONBEAT_LEASE_S": "5", "ONBEAT_HEARTBEAT_S": "1"}).lease_s == 5


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1", "https://host:99999", "https://", "text", "https://host:0", "https://j\u00f6bs.example",
        "https://a/b c", "https://a/b\tc", "https://a/\x7f", "https://a/\u0660",
    ],
)  # fmt: skip
def test_a_public_url_that_no_parser_reads_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environment={"ONBEAT_PUBLIC_URL": url})
    assert raised.value.field == "public_url"


def test_files_that_are_no_text_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        load_settings(environment={"ONBEAT_MASTER_KEY_FILE": str(path)})
    with pytest.raises(ConfigError):
        load_settings(environment={"ONBEAT_CONFIG": str(path)})


def test_a_proxy_comes_whole_from_a_file_and_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "proxy"
    path.write_text("http://onbeat:hunter2@proxy.example:3128\n")
    settings = load_settings(environment={"ONBEAT_EGRESS_PROXY_FILE": str(path), "ONBEAT_EGRESS_PROXY_RESOLVES": "1"})
    proxy = egress_proxy(settings)
    assert proxy is not None
    assert (proxy.host, proxy.port, proxy.resolves) == ("proxy.example", 3128, True)
    assert "hunter2" not in repr(settings)
    assert egress_proxy(load_settings(environment={})) is None


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"ONBEAT_EGRESS_PROXY": "http://u:hunter2@proxy.example"}, "egress_proxy"),
        ({"ONBEAT_EGRESS_PROXY": "https://u:hunter2@proxy.example:1"}, "egress_proxy"),
        ({"ONBEAT_EGRESS_PROXY_RESOLVES": "true"}, "egress_proxy_resolves"),
    ],
)
def test_a_proxy_that_cannot_be_meant_is_refused_without_its_password(environment: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environment=environment)
    assert raised.value.field == field
    assert "hunter2" not in str(raised.value)


def test_delivery_processes_share_the_attempts() -> None:
    assert load_settings(environment={"ONBEAT_WORKERS": "2", "ONBEAT_DELIVERY_PROCESSES": "2"}).delivery_processes == 2
    with pytest.raises(ConfigError, match=r"delivery_processes: .* more processes than the 2 attempts of `workers`"):
        load_settings(environment={"ONBEAT_WORKERS": "2", "ONBEAT_DELIVERY_PROCESSES": "3"})


@pytest.mark.parametrize("name", ["ALLOW_HOSTS", "HOST", "DATA"])
def test_bytes_that_are_no_text_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name.lower()}: not UTF-8 text"):
        load_settings(environment={f"ONBEAT_{name}": "a\udcff"})
