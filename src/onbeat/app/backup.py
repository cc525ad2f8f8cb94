"""Backup and restore of a SQLite data file, together with the master key that its signing secrets need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onbeat.clock import host_time_us
from onbeat.config import Settings
from onbeat.domain.errors import ConfigError
from onbeat.services.secret_box import SecretBox, parse_master_key, read_master_key, save_master_key
from onbeat.services.signing_secrets import check_secrets
from onbeat.store.sqlite.copying import (
    CopiedFile,
    copy_data_file,
    discard_data_file,
    drafting,
    pause_everything,
    put_in_place,
)
from onbeat.store.sqlite.datafile import DataFileLock, read_mounts, refuse_network_filesystem, resolve_data_file
from onbeat.store.values import SecretVersion


@dataclass(frozen=True, slots=True)
class Copy:
    """What was written where. `key` None: no key file was written."""

    path: Path
    content: CopiedFile
    key: Path | None


def key_file_of(path: Path) -> Path:
    """Where the master key of a data file or a backup stands."""
    return path.with_name(path.name + ".key")


def back_up(settings: Settings, target: Path, *, replaces: bool, with_key: bool) -> Copy:
    """Copy the data file to `target` and its key file, if it has one, to `<target>.key`. Also while a server runs.

    Raises ConfigError where there is nothing to copy, or something in the way that must not be replaced, or where the
    key does not open the secrets; StoreUnavailable, SchemaTooNew.
    """
    source, target = _data_file(settings), target.expanduser().resolve()
    if not source.exists():
        raise ConfigError(f"there is no data file {source}", field="data", remedy="name it with --data or ONBEAT_DATA")
    if target == source:
        raise ConfigError("the backup and the data file are the same file", remedy="name another file")
    key_target = key_file_of(target) if with_key and settings.master_key is None else None
    for path in (target, key_target):
        _refuse_to_replace(path, replaces=replaces)
    key = _configured_key(settings) or read_master_key(key_file_of(source))
    with drafting(target) as draft:
        content = copy_data_file(source, draft)
        _check_key(key, content.secrets, remedy=f"put the key file that belongs to it at {key_file_of(source)}")
        if key is None or key_target is None:
            key_target = None
        else:
            # First the key: a backup that is there can be restored.
            save_master_key(key_target, key)
        put_in_place(draft, target)
    return Copy(target, content, key_target)


def restore(settings: Settings, backup: Path, *, replaces: bool, paused: bool) -> Copy:
    """Make the data file of the settings out of a backup, and its key file out of `<backup>.key`, if that is there.

    `paused`: a pause of everything has begun in it.

    Raises DataFileInUse while any process works on the data file; ConfigError where the backup is none, something is in
    the way that must not be replaced, or no key opens the secrets; StoreUnavailable, SchemaTooNew. Then nothing was
    changed.
    """
    target, backup = _data_file(settings), backup.expanduser().resolve()
    if not backup.is_file():
        raise ConfigError(f"there is no backup {backup}")
    if target == backup:
        raise ConfigError("the backup and the data file are the same file", remedy="name another file with --data")
    refuse_network_filesystem(target.parent.resolve(), mounts=read_mounts())
    lock = DataFileLock(target)
    try:
        key_target = key_file_of(target)
        kept_key, key_there = read_master_key(key_file_of(backup)), read_master_key(key_target)
        brought_key = kept_key if settings.master_key is None and kept_key != key_there else None
        for path in (target, None if brought_key is None else key_target):
            _refuse_to_replace(path, replaces=replaces)
        key = _configured_key(settings) or kept_key or key_there
        with drafting(target) as draft:
            content = copy_data_file(backup, draft)
            _check_key(key, content.secrets, remedy=f"put its key file at {key_file_of(backup)}, or set master_key")
            if paused:
                pause_everything(draft, note=f"restored from {backup.name}", now=host_time_us())
            discard_data_file(target)
            if brought_key is not None:
                save_master_key(key_target, brought_key)
            put_in_place(draft, target)
    finally:
        lock.release()
    return Copy(target, content, None if brought_key is None else key_target)


def _data_file(settings: Settings) -> Path:
    if settings.data.startswith(("postgres://", "postgresql://")):
        raise ConfigError(
            "this backs up SQLite data files only",
            field="data",
            remedy="use PostgreSQL's own tools: pg_dump, or base backups with an archive of the log",
        )
    return resolve_data_file(settings.data)


def _configured_key(settings: Settings) -> bytes | None:
    return None if settings.master_key is None else parse_master_key(settings.master_key)


def _refuse_to_replace(path: Path | None, *, replaces: bool) -> None:
    if path is None or not path.exists():
        return
    if path.is_dir():
        raise ConfigError(f"{path} is a directory", remedy="name a file in it")
    if not replaces:
        raise ConfigError(f"{path} is there already", remedy="name another file, or replace it with --force")


def _check_key(key: bytes | None, secrets: Sequence[SecretVersion], *, remedy: str) -> None:
    """A copy whose secrets nothing opens is no backup."""
    if key is not None:
        check_secrets(SecretBox(key), secrets)
    elif secrets:
        raise ConfigError("the master key of the signing secrets is missing", field="master_key", remedy=remedy)
