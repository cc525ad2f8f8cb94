"""A real PgBouncer before a server, where one is installed: each transaction may get another server connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from tests.support.ports import free_port
from tests.support.postgres import UNPRIVILEGED, PostgresServer

STARTS_WITHIN_S = 30.0

SETTINGS = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
admin_users = onbeat
pool_mode = transaction
default_pool_size = {connections}
server_round_robin = 1
"""


class Pooler:
    """One PgBouncer, which can be ended and started again on its port."""

    def __init__(self, program: str, directory: Path, *, server: PostgresServer, connections: int) -> None:
        self._command = [program, "-q", f"{directory}/pgbouncer.ini"]
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        (directory / "users").write_text('"onbeat" ""\n')
        (directory / "pgbouncer.ini").write_text(
            SETTINGS.format(server=server.port, port=self.port, directory=directory, connections=connections)
        )
        directory.chmod(0o755)

    def url(self, direct: str, *, options: str = "pooled=1") -> str:
        """How to reach a database of the server through it."""
        return urlsplit(direct)._replace(netloc=f"onbeat@127.0.0.1:{self.port}", query=options).geturl()

    def start(self) -> None:
        """Also after `kill`. It listens a moment later: see `until_it_answers`."""
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=UNPRIVILEGED if os.geteuid() == 0 else None,
        )

    def kill(self) -> None:
        """At once, with all that goes through it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None


@contextmanager
def pooling(server: PostgresServer, *, connections: int = 3) -> Iterator[Pooler]:
    """One that ends with the block, with so many connections to the server for each database."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed; on Debian it is the package of that name")
    with tempfile.TemporaryDirectory(prefix="onbeat-pgbouncer-") as directory:
        pooler = Pooler(program, Path(directory), server=server, connections=connections)
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.kill()


async def until_it_answers(url: str) -> None:
    """It is there a moment after it was started."""
    must_end = time.monotonic() + STARTS_WITHIN_S
    while True:
        try:
            connection = await asyncpg.connect(url.partition("?")[0], statement_cache_size=0)
        except OSError:
            if time.monotonic() > must_end:
                raise
            await asyncio.sleep(0.02)
        else:
            await connection.close()
            return
