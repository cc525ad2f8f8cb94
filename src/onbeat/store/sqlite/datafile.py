"""Who may write the data file: the path's rules and the lock that one process holds.

The lock is the operating system's (flock on `<file>.lock`), so it ends with its process and a lock file that was
left behind never blocks a start. What stands in the file is only for the message to the second process.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from pathlib import Path
from typing import Final

from onbeat.domain.errors import ConfigError, DataFileInUse

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"}
)
_MOUNTS: Final = Path("/proc/self/mounts")
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


def resolve_data_file(url: str) -> Path:
    """The file behind `sqlite:///relative`, `sqlite:////absolute` or a plain path. Raises ConfigError.

    Links are followed, as SQLite does: whatever name leads to it, a file has one lock and one master key.
    """
    text = url
    if "://" in url:
        scheme, _, rest = url.partition("://")
        if scheme != "sqlite" or not rest.startswith("/"):
            raise ConfigError(f"{url!r} is not a data file", remedy="write sqlite:///path/to/file, or the path alone")
        text = rest[1:]
    if not text or text == ":memory:" or "\0" in text:
        raise ConfigError(
            f"{url!r} names no file", remedy="give the path of a file; onbeat keeps nothing in memory only"
        )
    return Path(text).expanduser().resolve()


def refuse_network_filesystem(path: Path, *, mounts: str) -> None:
    """WAL needs one host and shared memory: refuse a path on a network filesystem. `mounts` as in /proc/self/mounts."""
    kind = filesystem_of(path, mounts=mounts)
    if kind in NETWORK_FILESYSTEMS:
        raise ConfigError(
            f"{path} lies on a network filesystem ({kind}), where SQLite cannot keep commits safe",
            remedy="put the file on a local disk, or use PostgreSQL",
        )


def filesystem_of(path: Path, *, mounts: str) -> str | None:
    """The type of the filesystem that `path` lies on. None: no mount holds it."""
    best, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1]))
        # A later mount on the same point hides the earlier one.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def read_mounts() -> str:
    """The mount table; empty where the system has none to read."""
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


class DataFileLock:
    """The right of this process to write one data file, held until `release`."""

    def __init__(self, data_file: Path) -> None:
        """Take the lock. Raises DataFileInUse, naming the holder, or ConfigError where the place is not writable."""
        self._path = data_file.with_name(data_file.name + ".lock")
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{data_file} cannot be written: {error.strerror}: {self._path}",
                remedy="choose a directory that exists and that onbeat may write to",
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise DataFileInUse(
                f"{data_file} is in use by {holder or 'another onbeat process'}",
                remedy="stop that process, or give this one a file of its own; several nodes need PostgreSQL",
            ) from error
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}") from error

    def release(self) -> None:
        """Let the next process in. The file stays: removing it would race with a process that has just opened it."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
