"""Settings that do not fit together do not start, and say which one it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from onbeat.config import load_settings
from onbeat.domain.errors import ConfigError


def test_a_lease_shorter_than_two_default_heartbeats_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(environment={"ONBEAT_LEASE_S": "5"})
    assert raised.value.field == "heartbeat_s"
    assert load_settings(environment={"ONBEAT_LEASE_S": "5", "ONBEAT_HEARTBEAT_S": "1"}).lease_s == 5


@pytest.mark.parametrize("url", ["http://[::1", "https://host:99999", "https://", "text", "https://host:0"])
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
