"""A test process that has a PostgreSQL server and waits to be killed: prints the server's directory and its URL."""

from __future__ import annotations

import signal

from tests.support.postgres import running_postgres

with running_postgres() as server:
    print(server.directory, server.url(), flush=True)
    signal.pause()
