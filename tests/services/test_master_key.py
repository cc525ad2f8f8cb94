"""The master key's file: whole or not there, one per data file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onbeat.app.services import open_services
from onbeat.config import Settings
from onbeat.domain.errors import ConfigError
from onbeat.services.secret_box import SecretBox, load_or_create_master_key


def test_a_kill_while_the_key_is_written_leaves_none_and_the_next_start_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.key"

    def die(_descriptor: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            load_or_create_master_key(path)
    assert not path.exists()
    key = load_or_create_master_key(path)
    assert load_or_create_master_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"c2hvcnQ="])
def test_a_file_that_is_no_key_is_a_mistake_of_configuration(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_or_create_master_key(path)


async def test_a_data_file_has_one_key_whatever_path_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with open_services(Settings(data="~/onbeat.db")) as services:
        await services.secrets.ensure_default("default")
        secret = await services.secrets.reveal("default", "default")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.db").symlink_to(tmp_path / "onbeat.db")
    for data in (f"sqlite:///{tmp_path}/onbeat.db", str(tmp_path / "elsewhere" / "link.db")):
        async with open_services(Settings(data=data)) as services:
            assert await services.secrets.reveal("default", "default") == secret


@pytest.mark.parametrize("length", [0, 1, 8, 13, 40])
def test_a_secret_that_was_cut_short_says_so(length: int) -> None:
    box = SecretBox(bytes(32))
    with pytest.raises(ConfigError):
        box.decrypt(box.encrypt("whsec_x" * 9, context="a")[:length], context="a")
