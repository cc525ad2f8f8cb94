"""What peers keep their jobs in: servers started for one run, on loopback, with durable settings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from tests.support.postgres import UNPRIVILEGED, Databases, running_postgres

from bench.measures import cpu_s_of_server
from bench.peers.environment import NotInstallable
from bench.processes import UP_WITHIN_S, stopping, wait_until_answers


@dataclass(frozen=True, slots=True)
class Service:
    """One that runs."""

    store: str
    """How a peer reaches it."""
    cpu_s: Callable[[], float]
    """Of its processes, so far."""


@contextlib.contextmanager
def nothing(_folder: Path) -> Iterator[Service]:
    """Jobs are kept in memory."""
    yield Service("", lambda: 0.0)


@contextlib.contextmanager
def sqlite_file(folder: Path) -> Iterator[Service]:
    """A file that SQLAlchemy opens; SQLite's defaults are durable."""
    yield Service(f"sqlite:///{folder / 'jobs.sqlite3'}", lambda: 0.0)


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Service]:
    """Every write is synced before it is answered."""
    program = shutil.which("redis-server")
    if program is None:
        raise NotInstallable("needs redis-server")
    port = free_port()
    command = [
        program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes",
        "--appendfsync", "always", "--save", "", "--maxmemory-policy", "noeviction",
    ]  # fmt: skip
    with stopping(subprocess.Popen(command, stdout=subprocess.DEVNULL)) as server:
        wait_until_answers(port)
        yield Service(f"redis://127.0.0.1:{port}/0", lambda: cpu_s_of_server(server.pid))


@contextlib.contextmanager
def postgres(_folder: Path) -> Iterator[Service]:
    """The server that onbeat's benchmarks use, with fsync and synchronous_commit on; an empty database."""
    with running_postgres() as server:
        url = asyncio.run(Databases(server).create(has_schema=False))
        yield Service(url, lambda: cpu_s_of_server(server.pid))


class CronServer:
    """The system's PostgreSQL 15 with pg_cron, on data of its own. It is the scheduler, so it is what is killed."""

    BIN = Path("/usr/lib/postgresql/15/bin")
    SETTINGS = (
        "listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_preload_libraries=pg_cron",
        "cron.database_name=postgres", "cron.use_background_workers=on", "cron.max_running_jobs=32",
        "max_worker_processes=128", "max_connections=200",
    )  # fmt: skip

    def __init__(self, folder: Path) -> None:
        if not (self.BIN.parent / "lib" / "pg_cron.so").exists():
            raise NotInstallable("needs PostgreSQL 15 with pg_cron (Debian: postgresql-15-cron)")
        if shutil.which("curl") is None:
            raise NotInstallable("needs curl: pg_cron runs SQL and has no HTTP")
        self.data = folder / "data"
        self.port = free_port()
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as_user = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid}
            shutil.chown(folder, UNPRIVILEGED)
        self._run("initdb", "--pgdata", str(self.data), "--username", "onbeat", "--auth", "trust", "--no-sync")

    def start(self) -> subprocess.Popen[bytes]:
        """Start it. After a kill it refuses until the last of its children has noticed, so: again and again."""
        must_run_by = time.monotonic() + UP_WITHIN_S
        while not self._is_up(process := self._spawn()):
            process.wait()
            if time.monotonic() > must_run_by:
                raise RuntimeError(f"PostgreSQL 15 did not start:\n{(self.data / 'server.log').read_text()[-2_000:]}")
            time.sleep(0.2)
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(self.BIN / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for setting in self.SETTINGS:
            command += ["-c", setting]
        with (self.data / "server.log").open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data, start_new_session=True,
                **self._as_user,
            )  # fmt: skip

    def _is_up(self, process: subprocess.Popen[bytes]) -> bool:
        """Once it answers. False: it has ended."""
        ready = [str(self.BIN / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        while process.poll() is None:
            if subprocess.run(ready, check=False).returncode == 0:
                return True
            time.sleep(0.05)
        return False

    @property
    def url(self) -> str:
        return f"postgresql://onbeat@127.0.0.1:{self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.BIN / program), *arguments], check=True, cwd=self.data.parent, stdout=subprocess.DEVNULL,
            **self._as_user,
        )  # fmt: skip


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that servers of another user can reach."""
    with tempfile.TemporaryDirectory(prefix="onbeat-peers-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def kill_server(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a PostgreSQL server and its children, each of which leads a group of its own."""
    if process.poll() is not None:
        return
    stats = [(entry, entry / "stat") for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    children: list[int] = []
    for entry, stat in stats:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process.pid:
                children.append(int(entry.name))
    for pid in (process.pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process that leads a group, and to its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
